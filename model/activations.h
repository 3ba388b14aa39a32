/* activations.h - the layout of all intermediate arrays of a pass.
 *
 * A pass (training, evaluation, decoding) places its arrays on a stack in the
 * span "model.activations"; passes never overlap in time, so they share it. A
 * training pass has, from the bottom up:
 *
 *     inputs of the segments | dx | last | scratch of adapters
 *         kept for the whole step; with offload_activations two inputs take
 *         turns
 *     slots
 *         of all layers, or with recomputation of one segment; a layer below
 *         the first that trains overlaps them
 *     above the slots, one after the other
 *         forward   attention's scratch
 *         head      one chunk of tokens; with recomputation it overlaps the
 *                   slots, because no segment is alive then
 *         backward  gradients inside one layer
 *
 * A slot holds what one layer's backward reads. In a layer that keeps nothing
 * ("lean": evaluation, decoding, layers below every trained tensor) the arrays
 * of a slot share bytes where their lifetimes allow, and x is updated in place.
 *
 * With SELECTIVE all layers share some arrays of a slot (the table in slots.c):
 * these are below the slots, and a layer's backward recomputes them before it
 * reads them. With FP8 layers also share those inputs of matmuls of which
 * backward reads only transposed codes, which are kept.
 *
 * With A micro-batches at once each has its inputs, dx, last and slots. With
 * recomputation they share the last slot of a segment, except its x: backward
 * recomputes that layer and runs its backward for one micro-batch after the
 * other. The head of a micro-batch reads `last` before it writes dx, which has
 * the memory of the previous micro-batch's `last`. Offloaded inputs share A + 1
 * buffers. All other arrays serve one micro-batch at a time.
 *
 * With tensor parallelism (model/slice.h) a place has a share of the tokens in
 * the residual stream and the norms, and all tokens between: "(N, C)" of hidden
 * channels then means (N / tp, C); arrays of heads and of F have all tokens and
 * the place's channels.
 *
 * With context parallelism N is the place's tokens. If heads are exchanged, a
 * slot holds attention's inputs and output for all tokens of the place's heads.
 * All layers share q, k and v of the place's own tokens, because only the
 * exchange reads them.
 *
 * N tokens, C hidden, F intermediate, q = H*D, kv = KV*D channels. */
#pragma once

#include "base/number/sizes.h"
#include "model/adapter.h"
#include "model/fp8.h"
#include "model/model.h"

/* Row strides: struct row_strides. q_raw and k_raw are q and k before their
 * norms; without such norms they are the same arrays. */
struct qkv {
    void *q_raw, *k_raw, *q, *k, *v;
};

/* Arrays of a branch: attention or the MLP. */
struct branch_acts {
    void *x;            /* (N, C) input; the first slot's is inputs[...] */
    float *mean, *rstd; /* (N) */
    void *norm;         /* (N, C); without this norm: x */
    void *out;          /* (N, C) result; MLP: NULL if written directly to the
                           layer's output */
    void *post;         /* (N, C) what is added to x: the norm of out, or out;
                           MLP: may be NULL, too */
    float *post_rstd;   /* (N) */
};

struct layer_acts {
    struct branch_acts attention, mlp;
    struct qkv qkv;
    float *q_rstd, *k_rstd;  /* (N*H), (N*KV) */
    void *att;               /* (N, q) */
    float *lse;              /* (B, H, T) */
    char *heads, *heads_att; /* by heads: (B, T, share) of q | k | v, and att
                                (model/context.c) */
    void *gate, *up; /* (N, F), then their gradients; up NULL without a gate */
    void *act;       /* (N, F) */
    void *low;       /* (N, r of all adapters), one after the other */
    void *mlp_low;   /* (P, r ..) for an MLP in pieces, with the offsets of
                        `low`; NULL: use `low` */
    float *gains;    /* DoRA: gains, then inverses of each adapter's rows */
    struct fp8_codes xt[FP8_GROUPS]; /* (in, P) instead of a group's input;
                                        NULL: the input is kept */
    float *x_amax;      /* (FP8_GROUPS) of inputs, tensorwise; else NULL */
    unsigned recompute; /* enum layer_part: shared by all layers, recomputed
                           by backward */
};

/* Arrays that a layer's backward reads and that can be recomputed (except
 * PART_MLP, without matmuls). */
enum layer_part {
    PART_NORM1 = 1,
    PART_NORM2 = 2,
    PART_ACT = 4,
    PART_HEADS = 8,   /* q and k after their norms and rotation */
    PART_OUTPUT = 16, /* by heads: heads_att, exchanged again */
    PART_MLP = 32 /* in pieces, with its matmuls: norm2, gate, up, act, mlp_out
                     and mlp_low are per piece, (P, ..); includes NORM2 and
                     ACT */
};

struct layer_grads {      /* inside one layer's backward */
    void *hidden;         /* (N, max(C, q)) */
    void *mlp_out, *proj; /* (N, C); dx if added without change */
    void *sum;            /* (N, C): second term of a sum in bf16; else NULL.
                             All tokens, also with tensor parallelism */
    void *act;            /* (N, F), or of a piece (P, F) */
    struct qkv qkv;
    void *scratch; /* of attention */
};

/* Elements between the rows of consecutive tokens. The results of one matmul
 * are one array: gpt2's q | k | v; with JOIN_QKV q_raw | k_raw | v, and q | k
 * if they have norms; with JOIN_GATE_UP gate | up. */
struct row_strides {
    int64_t q_raw, k_raw, q, k, v, gate;
};
struct row_strides activations_strides(
        const struct model_config *config, unsigned joined);

struct head_acts {
    int chunk;          /* tokens at a time */
    void *norm, *dnorm; /* (chunk, C) */
    float *mean, *rstd; /* (chunk) */
    int stride;         /* elements between rows of logits and dlogits */
    void *logits;       /* (chunk, V) of logits_dtype */
    void *all_logits;   /* (tp, chunk, stride) of all places, for decoding; else
                           NULL */
    void *dlogits;      /* (chunk, V); if the types agree, the same array as
                           logits */
    enum dtype logits_dtype;
    float *losses;            /* (chunk) */
    struct row_score *scores; /* (tp + 1, chunk): all places', then its own */
    void *low;                /* (chunk, r) for the head's adapter */
    float *gains;             /* (2, V) for its DoRA */
};

struct activations {
    size_t bytes;
    int first;   /* the first layer that keeps arrays; L + 1: none */
    int segment; /* layers of a segment */
    int segments;
    bool recompute;
    int mlp_pieces;   /* P = N / pieces tokens at most */
    bool head_covers; /* the head's arrays overlap the last layer's */
    int micros;       /* at once; each has a struct like this one */
    bool is_shared;   /* micro-batches share the last slot */
    void **inputs;    /* (segments) in forward; owned */
    void **returned;  /* (segments) in backward; owned */
    int offloaded;    /* inputs of all micro-batches that go to the host */
    int buffers;      /* for inputs on the device, contiguous */
    void *first_buffer;
    size_t input_bytes;       /* of an input on the host, */
    size_t moved_bytes;       /* .. without padding */
    struct layer_acts *slots; /* (segment); owned */
    struct layer_acts lean;
    void *lean_scratch, *scratch; /* for attention, forward */
    size_t scratch_bytes;         /* of these and of grads.scratch */
    void *last;                   /* (N, C) output of the last layer */
    void *dx;                     /* (N, C) gradient of the current layer */
    void *gathered;               /* (N, C) rows of `last` for the head;
                                     overlaps arrays unused by the head */
    struct layer_grads grads;
    struct head_acts head;
    struct adapter_scratch adapters;
    size_t layer_gains; /* floats between the gains of layers, which decoding
                           computes once; else 0 */
    char *k_cache, *v_cache;  /* (L, texts, capacity, kv) */
    size_t cache_layer_bytes; /* keys of a layer */
    size_t cache_text_bytes;  /* keys of a text in a layer */
};

/* The next array of a span that begins at `base` (NULL: only counts). */
static inline void *span_take(char *base, size_t *used, size_t bytes)
{
    char *at = base ? base + *used : NULL;
    *used += size_round_up(bytes, ARENA_ALIGN);
    return at;
}

static inline int decode_texts(const struct model_shape *shape)
{
    return shape->decode_texts > 0 ? shape->decode_texts : 1;
}

static inline enum device_backend shape_backend(const struct model_shape *shape)
{
    return shape->backend == DEVICE_CUDA ? DEVICE_CUDA : DEVICE_CPU;
}

/* logits_dtype of the shape's kernel table (kernels.h). */
static inline enum dtype shape_logits_dtype(const struct model_shape *shape)
{
    return shape->backend == DEVICE_CUDA ? shape->dtype : DTYPE_FP32;
}

/* The first layer that has a backward; L + 1: none. */
int activations_first_layer(
        const struct model_config *config, const struct param_table *table);

static inline int shape_micros(const struct model_shape *shape)
{
    return shape->micros > 1 ? shape->micros : 1;
}

/* The passes of a model, which never overlap in time. Training has one for each
 * micro-batch. */
enum { PASS_EVAL, PASS_DECODE, PASS_TRAIN };
static inline int activations_passes(const struct model_shape *shape)
{
    return PASS_TRAIN + shape_micros(shape);
}
/* Lays out the passes of the shape, each from `base` on; with base NULL only
 * sizes (planning). Returns (activations_passes) structs, which the caller
 * frees. */
struct activations *activations_lay_out(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape, char *base);
void activations_free(struct activations *passes, int count);

/* Attention's shape for B samples of T tokens in a layer (1 .. L); the caller
 * adds documents and scratch. */
struct attention_shape activations_attention(
        const struct model_config *config, const struct model_shape *model,
        int layer, int B, int T);
/* By heads: changes the shape to all tokens and the heads of one place, with q,
 * k and v as columns of one array. */
void activations_share_heads(struct attention_shape *shape, int places);
