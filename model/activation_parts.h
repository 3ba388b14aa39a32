/* activation_parts.h - what the layouts of model/activations.c are made of: the
 * dimensions of a pass, and a stack on which its arrays are laid.
 *
 * Nothing here is allocated. On a stack without a base every array is NULL, and
 * what counts is how high the stack was. */
#ifndef ZD_MODEL_ACTIVATION_PARTS_H
#define ZD_MODEL_ACTIVATION_PARTS_H

#include "model/activations.h"

/* A stack of arrays; `peak` is how high it ever was. */
struct stack {
    char *base; /* NULL while planning */
    size_t top, peak;
    size_t element; /* bytes of the compute type */
};

/* What every layout is made from. */
struct dims {
    const struct model_config *config;
    enum device_backend backend;
    enum dtype dtype, logits_dtype;
    size_t N, C, F, q, kv, H, KV;
    int logits_stride;
    int B, T;
    const struct model_family *family;
    unsigned joined;
    struct row_strides strides;
    /* adapters: of the layer that has most, r of all; of the head; the widest
     * in and out and the largest r of any; shares of dropout */
    size_t low, head_low, widest, most_in, most_r;
    bool drops;
    size_t attention_scratch;
    /* DoRA: floats of gains of a layer and of the head, of a product W A^T, the
     * widest product */
    size_t gains, head_gains, cross, columns;
    unsigned recompute; /* enum layer_part */
};

static inline size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Of B x T tokens. attention_scratch and recompute stay 0. */
struct dims dims_of(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape, int B, int T);
/* Bytes that attention scratches. */
size_t dims_attention_scratch(const struct dims *d);

/* Arrays on top of the stack: bytes, rows x columns of the compute type, and
 * floats, each aligned to ARENA_ALIGN. */
void *push_bytes(struct stack *s, size_t bytes);
void *push_rows(struct stack *s, size_t rows, size_t columns);
float *push_floats(struct stack *s, size_t count);

void *push_attention_scratch(struct stack *s, const struct dims *d);

/* Bits of enum layer_part that backward recomputes. */
unsigned parts_recomputed(
        const struct model_config *config, struct checkpointing checkpointing);

/* What one layer's arrays share with all others: of one layer at a time. */
struct layer_acts push_shared(struct stack *s, const struct dims *d);
/* All that a layer's backward reads; x only where it is the layer's own. */
void push_slot(
        struct stack *s, const struct dims *d, bool own_x,
        const struct layer_acts *shared, struct layer_acts *a);
/* A layer that keeps nothing. */
void push_lean(
        struct stack *s, const struct dims *d, bool decode,
        struct layer_acts *a, void **scratch);
/* Gradients within a layer, and what its attention scratches. */
void push_grads(struct stack *s, const struct dims *d, struct layer_grads *g);
/* Of all adapters; nothing without them. chunk: tokens of the head.
 */
void push_adapters(
        struct stack *s, const struct dims *d, int chunk, bool train,
        struct adapter_scratch *a);
/* Inputs of the segments. */
void push_inputs(
        struct stack *s, const struct dims *d, bool offload,
        struct activations *a);

#endif
