/* text.h - the tokenizer of a job or a model folder, and its end of text.
 * Internal to train; daemon uses it for `zerod data inspect`. */
#pragma once

#include "data/dataset.h"
#include "model/config.h"
#include "train/job/options.h"

struct text {
    struct tokenizer *tokenizer; /* NULL: pre-tokenized data without a
                                    tokenizer */
    int eos;                     /* -1: none */
    int32_t turn_end;            /* ends a chat's answer; -1: no chat */
    const char *dir;             /* folder of its files; NULL: built in */
    const char *config; /* the tokenizer_config.json that marks a model as
                           byte-level; NULL: not byte-level */
};

/* Is model.tokenizer "bytes" instead of a path? */
bool text_is_bytes(const char *tokenizer);
/* ZD_ERR_NO_INPUT if data needs a tokenizer, none is named, and model.path has
 * none and is not marked as byte-level (`config`): a model trained on other
 * tokens would learn nothing from bytes. */
enum zd_status text_check(const struct train_job *job);
/* Opens the job's tokenizer: model.tokenizer, else model.path's; for a model
 * from scratch bytes, unless every data entry is pre-tokenized. ZD_ERR_DATA if
 * it has more ids than the model's vocabulary; else as text_check. `text`
 * borrows strings of `job`. */
enum zd_status text_open(
        const struct train_job *job, const struct model_config *config,
        struct text *text);
/* The request for the job's training or evaluation samples (val_split divides
 * one set into both). Borrows `job` and `text`. */
struct dataset_request text_request(
        const struct train_job *job, const struct text *text, int vocab_size,
        bool eval);
/* Opens a model folder's tokenizer; without one uses bytes and logs it. */
enum zd_status text_open_dir(
        const char *dir, const struct model_config *config, struct text *text);
void text_close(struct text *text);

/* Is `id` an end token: the tokenizer's, one of config.json's, or the end of an
 * answer? */
bool text_ends(
        const struct text *text, const struct model_config *config, int32_t id);
