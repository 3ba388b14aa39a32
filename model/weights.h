/* weights.h - sources of weights, read in ranges of tensors, so that no process
 * holds a second copy of the model. */
#pragma once

#include "model/params.h"

struct quantized;

/* Produces elements [begin, begin+count) of tensor `id` of a table as fp32: a
 * Hugging Face folder, random numbers, a checkpoint. Several threads may read
 * the first two at once. */
struct weight_source {
    enum zd_status (*read)(
            void *ctx, int id, size_t begin, size_t count, float *out);
    void (*close)(void *ctx); /* may be NULL */
    void *ctx;
    /* The tensor as stored quantized; NULL, or returning NULL: not quantized.
     */
    const struct quantized *(*stored)(void *ctx, int id);
};

/* Random initial weights keyed on (seed, tensor name, element): the same at
 * every world size and stage. */
enum zd_status weights_open_random(
        uint64_t seed, const struct param_table *table,
        struct weight_source *source_out);

/* Reads on all threads; the source must allow several readers. */
enum zd_status weights_read_parallel(
        const struct weight_source *source, int id, size_t begin, size_t count,
        float *out);

void weights_close(struct weight_source *source);
