/* generate.h - generates text: the sampler of `zerod generate` and of a run's
 * samples, and the command itself. */
#pragma once

#include "model/adapters/merge.h"

#include <stdint.h>

struct sampler {
    double temperature; /* 0: greedy: the largest logit, of equal ones the
                           lowest id */
    double top_p;       /* keep the most likely tokens up to this mass; 1:
                           all */
    uint64_t seed, stream;
};

/* Picks the next token from (V) logits, which are overwritten. `position` is
 * part of the random number's key, so a text depends only on (seed, stream).
 * `order`: scratch, V ids. */
int32_t sampler_pick(
        const struct sampler *sampler, float *logits, int32_t *order, int V,
        int64_t position);

struct generate_options {
    const char *model;                     /* a Hugging Face directory */
    const struct adapter_choice *adapters; /* merged into it */
    int adapter_count;
    const char *const *prompts; /* UTF-8; the tokenizer's BOS is prepended */
    int prompt_count;           /* at least 1 */
    bool chat; /* each is a user's message; the answer ends with its turn */
    int max_new_tokens;
    double temperature, top_p; /* temperature 0: greedy */
    uint64_t seed;
    int threads; /* 0 = from the affinity mask */
};

struct generate_options generate_options_default(void);

/* Writes the continuation and a newline to `out` during generation; stops at an
 * end of text. With several prompts the texts are generated together, one token
 * of each at a time, so that weights are read once for all; when all are
 * complete, writes a line of JSON per text, {"prompt", "text"}, in order. Text
 * i uses random numbers of (seed, stream i). Computes in fp32 for any storage
 * type. Memory: the model, and per prompt a key/value cache of the longest
 * prompt + max_new_tokens positions. */
enum zd_status generate_text(const struct generate_options *options, FILE *out);
