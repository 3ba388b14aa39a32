/* generate.h - text from a model: one way to pick the next token, used by
 * `zerod generate` and by the samples of a run. */
#pragma once

#include "model/adapters/merge.h"

#include <stdint.h>

struct sampler {
    double temperature; /* 0 = greedy: the largest logit, the lowest id of
                           equal ones */
    double top_p;       /* keep the likeliest tokens up to this mass; 1 = all */
    uint64_t seed, stream;
};

/* The next token of (V) logits, which are overwritten. `position` keys the
 * random number, so a text is a function of (seed, stream). `order`: scratch of
 * V ids. */
int32_t sampler_pick(
        const struct sampler *sampler, float *logits, int32_t *order, int V,
        int64_t position);

struct generate_options {
    const char *model;                     /* a Hugging Face directory */
    const struct adapter_choice *adapters; /* added to it */
    int adapter_count;
    const char *const *prompts; /* UTF-8; the tokenizer's BOS is put in front */
    int prompt_count;           /* at least 1 */
    bool chat; /* each is a user's message; the answer ends with its turn */
    int max_new_tokens;
    double temperature, top_p; /* temperature 0: greedy */
    uint64_t seed;
    int threads; /* 0 = from the affinity mask */
};

struct generate_options generate_options_default(void);

/* Write the continuation and a newline to `out` as it is made. Stops at end of
 * text. Of several prompts the texts are made side by side, a token of each at
 * a time, so that weights are read once for all, and written when all are
 * whole: a line of JSON each, {"prompt", "text"}, in their order. The i-th's
 * random numbers are those of (seed, stream i). Computes in fp32 whatever the
 * files hold; memory: the model, and for each prompt a key/value cache of the
 * longest prompt + max_new_tokens positions. */
enum zd_status generate_text(const struct generate_options *options, FILE *out);
