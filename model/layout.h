/* layout.h - what activations.c and slots.c share: the stack on which a pass
 * lays its arrays. activations.c has the passes, slots.c the arrays of a layer
 * and their neighbors. Without a base every array is NULL, and only the
 * stack's greatest height is computed. */
#pragma once

#include "model/activations.h"

/* A pass being laid out: a stack of arrays, and the dimensions of the pass. */
struct layout {
    char *base;       /* NULL while planning */
    size_t top, peak; /* of the stack, now and at its highest */
    size_t element;   /* bytes of the compute type */
    const struct model_config *config;
    const struct param_table *table;
    const struct model_shape *shape;
    const struct model_family *family;
    enum device_backend backend;
    enum dtype dtype, logits_dtype;
    size_t N, C, F, q, kv, H, KV;
    size_t S;     /* tokens of the share: N without tensor parallelism */
    size_t cp;    /* places that share a sample */
    int pieces;   /* of the MLP; its longest has .. */
    size_t piece; /* .. so many tokens of the share */
    int logits_stride;
    unsigned joined;
    size_t attention_scratch;
    unsigned recompute; /* enum layer_part */
    struct fp8_use fp8;
    bool keeps_codes[FP8_GROUPS]; /* in place of a group's input */
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

/* What layers share because backward recomputes it: enum layer_part. */
unsigned layout_recomputed(const struct layout *l);
/* With `recompute` set: which inputs are kept as codes alone. */
void layout_choose_codes(struct layout *l);

/* All that a layer's backward reads, but for what layers share and the layer's
 * x, which is there. */
struct layer_acts layout_shared(struct layout *l);
void layout_slot(
        struct layout *l, const struct layer_acts *shared,
        struct layer_acts *a);
/* A layer that keeps nothing but x, which is there, and attention's scratch in
 * its forward. */
void layout_lean(
        struct layout *l, bool decode, struct layer_acts *a, void **scratch);
/* Gradients inside one layer's backward. */
void layout_grads(struct layout *l, void *dx, struct layer_grads *g);
/* Scratch of all adapters, `chunk` tokens at a time in the head; nothing
 * without adapters. */
void layout_adapters(
        struct layout *l, int chunk, bool train, struct adapter_scratch *a);
/* Inputs of segments, of all micro-batches. */
void layout_inputs(struct layout *l, bool offload, struct activations *acts);
