/* trainer_words.h - what Hugging Face's arguments and axolotl's files have in
 * common: words of schedules, data and adapters. */
#ifndef ZD_DAEMON_INIT_TRAINER_WORDS_H
#define ZD_DAEMON_INIT_TRAINER_WORDS_H

#include "daemon/init/foreign.h"

foreign_fn words_schedule;      /* lr_scheduler_type, lr_scheduler */
foreign_fn words_model;         /* a folder, or a name on a hub */
foreign_fn words_modules;       /* target modules: a list, or "all-linear" */
foreign_fn words_train_file;    /* a file of data */
foreign_fn words_fsdp;          /* "full_shard auto_wrap offload", or a list */
foreign_fn words_bits;          /* load_in_4bit, load_in_8bit */
foreign_fn words_nested;        /* use_bnb_nested_quant */
foreign_fn words_checkpointing; /* false, true */

/* Where data are a name on a hub, how they come here. */
void words_tell_hub_data(struct foreign *foreign, const char *name);
/* What follows from several keys: warm-up of a constant schedule, states of
 * other optimizers. `defaults`: as the trainer has them. */
void words_finish(struct foreign *foreign);
/* Of a key that `finish` looks at, where all keys are known. */
void words_nothing(
        struct foreign *foreign, const char *name, const json_t *value);

#endif
