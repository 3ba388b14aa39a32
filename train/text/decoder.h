/* decoder.h - generates texts from prompts, token by token. Used by generate
 * (one process) and for samples of a run (all ranks in lockstep). Internal to
 * train. */
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
    struct comm *comm; /* NULL: one process. Rank 0 picks tokens for all */
    float *logits;     /* (texts, V) */
    int32_t *order;    /* (V) */
    int capacity;      /* positions of the cache per text */
    int batch;         /* maximum tokens of a call; at least the texts */
};

/* A text being generated. */
struct decoder_text {
    struct token_vector prompt; /* ids */
    uint64_t stream;            /* stream of its random numbers */
    struct printable *live;     /* shows each token; may be NULL */
    char *bytes;                /* the generated text; owned */
    size_t count, capacity;
};
void decoder_text_fini(struct decoder_text *text);
/* {"prompt": .., "text": ..}. A model may generate any bytes: invalid UTF-8,
 * and NUL, which many JSON readers refuse, become U+FFFD. New reference. */
json_t *decoder_text_json(const struct decoder_text *text, const char *prompt);

/* Runs the prompts, then up to `max_new` tokens of each text, one token of all
 * texts at a time; the model's shape must have room for them. A text stops at
 * an end token (not emitted) or when its cache is full. `sampler`'s stream is
 * not used. */
enum zd_status decoder_run(
        const struct decoder *decoder, struct decoder_text *texts,
        int text_count, int max_new, const struct sampler *sampler);

/* Flushes `out`; ZD_ERR_IO if it cannot be written. */
enum zd_status decoder_flush(FILE *out);

/* The ids of a prompt with the tokenizer's prefix. */
enum zd_status decoder_encode(
        const struct text *text, const char *prompt, struct token_vector *ids);
