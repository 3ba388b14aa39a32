/* vocab_resize.h - a vocabulary larger than that of the files: tokens that a
 * tokenizer has beyond the embedding's rows. The rows that are not there are
 * the mean of those that are, of the embedding and of a head that is not tied
 * to it. */
#ifndef ZD_MODEL_GROWN_H
#define ZD_MODEL_GROWN_H

#include "model/config.h"
#include "model/weights.h"

/* `rows` of the vocabulary from here on, in the configuration's keys too. */
void model_config_resize_vocab(struct model_config *config, int rows);
/* As many as the embedding has that PEFT's adapter in this folder saves, where
 * that is more. */
enum zd_status model_config_resize_vocab_for(
        const char *adapter_dir, struct model_config *config);

#endif
