/* decoder.h - a text grown token by token: prompt in, tokens out. Used by
 * generate (one process) and by the samples of a run (all ranks in step).
 * Internal to train. */
#ifndef ZD_TRAIN_TEXT_DECODER_H
#define ZD_TRAIN_TEXT_DECODER_H

#include "comm/comm.h"
#include "train/text/generate.h"
#include "train/text/text.h"

struct decoder {
    struct model *model;
    const struct model_config *config;
    const struct model_hooks *hooks;
    const struct text *text;
    struct comm *comm; /* NULL: alone. Rank 0 picks, all follow */
    float *logits;     /* (V) */
    int32_t *order;    /* (V) */
    int capacity;      /* positions of the cache */
    int batch;         /* tokens of one call at most */
};

/* Run `prompt` (ids) and then up to `max_new` tokens; each new one is handed to
 * `emit` (which may be NULL) with its bytes. Stops at end of text (not emitted)
 * and when the cache is full. */
enum zd_status decoder_run(
        const struct decoder *decoder, const int32_t *prompt, int prompt_count,
        int max_new, const struct sampler *sampler,
        enum zd_status (*emit)(void *ctx, const char *bytes, size_t count),
        void *ctx);

/* Ids of a prompt with what the tokenizer puts in front. */
enum zd_status decoder_encode(
        const struct text *text, const char *prompt, struct token_vector *ids);

#endif
