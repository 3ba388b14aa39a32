/* decoder.h - texts grown token by token: prompts in, tokens out. Used by
 * generate (one process) and by the samples of a run (all ranks in step).
 * Internal to train. */
#pragma once

#include "base/printable.h"
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

/* A text that grows. */
struct decoder_text {
    struct token_vector prompt; /* ids */
    uint64_t stream;            /* of its random numbers */
    struct printable *live;     /* each token is shown there; may be NULL */
    char *bytes;                /* what was made; owned */
    size_t count, capacity;
};
void decoder_text_fini(struct decoder_text *text);
/* {"prompt": .., "text": ..}. A model may write any bytes: those that are not
 * UTF-8, and NUL, which many readers of JSON refuse, become U+FFFD. New
 * reference. */
json_t *decoder_text_json(const struct decoder_text *text, const char *prompt);

/* Run the prompts and then up to `max_new` tokens of each text, a token of all
 * of them at a time; the shape of the model has room for so many. A text stops
 * at its end (not emitted) and when its cache is full. `sampler`'s stream is
 * not used. */
enum zd_status decoder_run(
        const struct decoder *decoder, struct decoder_text *texts,
        int text_count, int max_new, const struct sampler *sampler);

/* Flush `out`; ZD_ERR_IO where it cannot be written. */
enum zd_status decoder_flush(FILE *out);

/* Ids of a prompt with what the tokenizer puts in front. */
enum zd_status decoder_encode(
        const struct text *text, const char *prompt, struct token_vector *ids);
