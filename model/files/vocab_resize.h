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
/* weights_open_hf, where `config` may have more rows than `dir`: the embedding
 * and the head are then read whole at the first row that is beyond. */
enum zd_status weights_open_resized(
        const char *dir, const struct model_config *config,
        const struct param_table *table, enum dtype *storage_out,
        struct weight_source *source_out);

#endif
