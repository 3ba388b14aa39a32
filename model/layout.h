/* layout.h - shared by activations.c (passes) and slots.c (arrays of a layer):
 * the stack for a pass's arrays. Without a base every array is NULL, and only
 * the stack's maximum height is computed. */
#pragma once

#include "model/activations.h"

/* A pass during layout: a stack of arrays, and the pass's dimensions. */
struct layout {
    char *base;       /* NULL while planning */
    size_t top, peak; /* current and maximum height */
    size_t element;   /* bytes of the compute type */
    const struct model_config *config;
    const struct param_table *table;
    const struct model_shape *shape;
    const struct model_family *family;
    enum device_backend backend;
    enum dtype dtype, logits_dtype;
    size_t N, C, F, q, kv, H, KV;
    size_t S;     /* tokens of the share; N without tensor parallelism */
    size_t cp;    /* places that share a sample */
    int pieces;   /* of the MLP */
    size_t piece; /* tokens of the longest, per share */
    int logits_stride;
    unsigned joined;
    size_t attention_scratch;
    unsigned recompute; /* enum layer_part */
    struct fp8_use fp8;
    bool keeps_codes[FP8_GROUPS]; /* instead of a group's input */
    struct adapter_sizes adapters;
    bool drops, decodes, by_heads, head_trains;
};

static inline void *push_bytes(struct layout *l, size_t bytes)
{
    void *at = span_take(l->base, &l->top, bytes);
    l->peak = size_max(l->peak, l->top);
    return at;
}

static inline void *push_rows(struct layout *l, size_t rows, size_t columns)
{
    return push_bytes(l, rows * columns * l->element);
}

static inline float *push_floats(struct layout *l, size_t count)
{
    return push_bytes(l, count * sizeof(float));
}

/* Parts that layers share because backward recomputes them. */
unsigned layout_recomputed(const struct layout *l);
/* Chooses which inputs are kept only as codes; `recompute` must be set. */
void layout_choose_codes(struct layout *l);

/* Lays out what a layer's backward reads, except shared arrays and x, which
 * exists already. */
struct layer_acts layout_shared(struct layout *l);
void layout_slot(
        struct layout *l, const struct layer_acts *shared,
        struct layer_acts *a);
/* Lays out a layer that keeps only x, which exists already, and attention's
 * forward scratch. */
void layout_lean(
        struct layout *l, bool decode, struct layer_acts *a, void **scratch);
/* Lays out the gradients inside one layer's backward. */
void layout_grads(struct layout *l, void *dx, struct layer_grads *g);
/* Lays out the adapters' scratch, for `chunk` tokens at a time in the head. */
void layout_adapters(
        struct layout *l, int chunk, bool train, struct adapter_scratch *a);
/* Lays out the inputs of segments for all micro-batches. */
void layout_inputs(struct layout *l, bool offload, struct activations *acts);
