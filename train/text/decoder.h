/* decoder.h - texts grown token by token: prompts in, tokens out. Used by
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
    float *logits;     /* (texts, V) */
    int32_t *order;    /* (V) */
    int capacity;      /* positions of the cache, of each text */
    int batch;         /* tokens of one call at most; at least the texts */
};

/* A text that grows. `emit` (which may be NULL) is handed the bytes of each new
 * token. */
struct decoder_text {
    struct token_vector prompt; /* ids */
    uint64_t stream;            /* of its random numbers */
    enum zd_status (*emit)(void *ctx, const char *bytes, size_t count);
    void *ctx;
};

/* Run the prompts and then up to `max_new` tokens of each text, a token of all
 * of them at a time; the shape of the model has room for so many. A text stops
 * at its end (not emitted) and when its cache is full. `sampler`'s stream is
 * not used. */
enum zd_status decoder_run(
        const struct decoder *decoder, const struct decoder_text *texts,
        int text_count, int max_new, const struct sampler *sampler);

/* Ids of a prompt with what the tokenizer puts in front. */
enum zd_status decoder_encode(
        const struct text *text, const char *prompt, struct token_vector *ids);

#endif
