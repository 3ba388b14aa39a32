/* text.h - which tokenizer a job or a model directory means, and its end of
 * text. Internal to train; daemon uses it for `zerod data inspect`. */
#pragma once

#include "data/dataset.h"
#include "model/config.h"
#include "train/job/options.h"

struct text {
    struct tokenizer *tokenizer; /* NULL: pre-tokenized data and none given */
    int eos;                     /* -1: none */
    int32_t turn_end;            /* ends an answer of a chat; -1: no chat */
    const char *dir;             /* folder of its files; NULL: built in */
    const char *config; /* the tokenizer_config.json by which a model's folder
                           says that bytes are its tokens; NULL: they are not */
};

/* Does a model.tokenizer ask for bytes ("bytes") rather than name a path? */
bool text_is_bytes(const char *tokenizer);
/* ZD_ERR_NO_INPUT when model.path has no tokenizer and does not say that bytes
 * are its tokens (`config`), none is named, and data needs one: a model that
 * was trained on other tokens learns nothing of bytes. */
enum zd_status text_check(const struct train_job *job);
/* The job's: model.tokenizer, else model.path's; of a model from scratch bytes,
 * unless every data entry is pre-tokenized. ZD_ERR_DATA when it has more ids
 * than the model's vocabulary; as text_check. `text` borrows strings of `job`.
 */
enum zd_status text_open(
        const struct train_job *job, const struct model_config *config,
        struct text *text);
/* Its samples for training or for evaluation, of which val_split makes one set
 * two. Borrows `job` and `text`. */
struct dataset_request text_request(
        const struct train_job *job, const struct text *text, int vocab_size,
        bool eval);
/* A model directory's; without one bytes, and a line says so. */
enum zd_status text_open_dir(
        const char *dir, const struct model_config *config, struct text *text);
void text_close(struct text *text);

/* Is `id` an end: the tokenizer's, any of config.json's, or of the answer? */
bool text_ends(
        const struct text *text, const struct model_config *config, int32_t id);
