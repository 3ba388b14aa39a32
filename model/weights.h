/* weights.h - where weights come from and go to, tensor range by tensor range,
 * so that no process ever holds a second copy of the model. */
#pragma once

#include "model/params.h"

struct quantized;

/* Something that can produce elements [begin, begin+count) of tensor `id` of a
 * table as fp32: a Hugging Face directory, random numbers, a checkpoint. The
 * first two may be read by several threads at once. */
struct weight_source {
    enum zd_status (*read)(
            void *ctx, int id, size_t begin, size_t count, float *out);
    void (*close)(void *ctx); /* may be NULL */
    void *ctx;
    /* The tensor as it is stored quantized; NULL, or NULL returned: it is not.
     */
    const struct quantized *(*stored)(void *ctx, int id);
};

/* Random initial weights keyed on (seed, tensor name, element): the same at
 * every world size and stage. */
enum zd_status weights_open_random(
        uint64_t seed, const struct param_table *table,
        struct weight_source *source_out);

/* The same by all threads of the caller, of a source that several may read. */
enum zd_status weights_read_parallel(
        const struct weight_source *source, int id, size_t begin, size_t count,
        float *out);

void weights_close(struct weight_source *source);
