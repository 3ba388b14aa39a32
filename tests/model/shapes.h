/* shapes.h - batches for small models. Their configurations, odd on purpose, are
 * in cases/shapes.json. */
#pragma once

#include "base/number/rng.h"
#include "model/model.h"

enum { BATCH_MAX = 256 };

struct tokens {
    int32_t tokens[BATCH_MAX], targets[BATCH_MAX], doc_start[BATCH_MAX];
    struct model_batch batch;
};

/* Random tokens; each sample has a second document, and some targets are
 * masked. */
static inline void tokens_fill(
        struct tokens *t, uint64_t seed, int B, int T, int vocab)
{
    for (int i = 0; i < B * T; i++) {
        int second = 1 + T / 3 + i / T;
        t->tokens[i] =
                (int32_t)(rng_u64(seed, 0, (uint64_t)i) % (uint64_t)vocab);
        t->targets[i] =
                (int32_t)(rng_u64(seed, 1, (uint64_t)i) % (uint64_t)vocab);
        t->doc_start[i] = i % T >= second ? second : 0;
        if (i % 5 == 2)
            t->targets[i] = -1;
    }
    t->batch = (struct model_batch){t->tokens, t->targets, t->doc_start, B, T};
}

/* The same rows without their last `cut` tokens; in `t` these lose their
 * targets, so that both have the same loss. */
static inline void tokens_narrow(
        struct tokens *narrow, struct tokens *t, int cut)
{
    int B = t->batch.B, T = t->batch.T, most = T - cut;
    for (int i = 0; i < B * T; i++) {
        int to = i / T * most + i % T;
        if (i % T >= most) {
            t->targets[i] = -1;
            continue;
        }
        narrow->tokens[to] = t->tokens[i];
        narrow->targets[to] = t->targets[i];
        narrow->doc_start[to] = t->doc_start[i];
    }
    narrow->batch = (struct model_batch){
            narrow->tokens, narrow->targets, narrow->doc_start, B, most};
}
