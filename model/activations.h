/* activations.h - where every intermediate array of a pass lies.
 *
 * A pass (training, evaluation, decoding) lays its arrays on a stack in the one
 * span "model.activations"; the passes never overlap in time, so they share it.
 * Within a training pass, from the bottom up:
 *
 *     inputs of the segments | dx | last | of adapters
 *         kept for the whole step; with offload_activations two inputs take
 *         turns
 *     slots
 *         of all layers, or, where layers are recomputed, of one segment;
 *         a layer below the first that trains lies where they do
 *     on top of them, in turn
 *         forward   attention's scratch
 *         head      one chunk of tokens; where layers are recomputed it
 *                   begins where the slots do: no segment is alive then
 *         backward  gradients inside one layer
 *
 * A slot holds what one layer's backward reads. In a layer that keeps nothing
 * ("lean": evaluation, decoding, layers below every trained tensor) the arrays
 * of a slot share bytes where their lifetimes allow, and x is updated in place.
 *
 * With SELECTIVE all layers share some arrays of a slot (the table in slots.c):
 * these lie below the slots, and a layer's backward recomputes them before it
 * reads them. With FP8 they share inputs of matmuls, whose
 * transposed codes are kept: backward reads those.
 *
 * Of A micro-batches at once each has its inputs, dx, last and slots, but where
 * layers are recomputed the last slot of a segment: backward recomputes that
 * layer and goes back through it for one micro-batch after the other, so they
 * share it, except its x. The head of one reads `last` before it writes dx,
 * which is where the micro-batch before had `last`. Of offloaded inputs A + 1
 * take turns. All else is in use for one micro-batch at a time.
 *
 * With tensor parallelism (model/slice.h) a place has a share of the tokens in
 * the residual stream, the norms and what they add to, and all of them between:
 * "(N, C)" of hidden channels is (N / tp, C) then, of heads and of F it is all
 * tokens and the place's channels.
 *
 * With context parallelism N is the place's tokens. Where heads are exchanged,
 * a slot holds attention's inputs and output for all tokens of the place's
 * heads. All layers share q, k and v of the place's own tokens: only the
 * exchange reads those.
 *
 * N tokens, C hidden, F intermediate, q = H*D, kv = KV*D channels. */
#pragma once

#include "base/number/sizes.h"
#include "model/adapter.h"
#include "model/fp8.h"
#include "model/model.h"

/* Rows: struct row_strides. q_raw and k_raw are before their norms; without
 * such norms they are q and k themselves. */
struct qkv {
    void *q_raw, *k_raw, *q, *k, *v;
};

/* Of a branch: attention or the MLP. */
struct branch_acts {
    void *x;            /* (N, C) input; the first slot's is inputs[...] */
    float *mean, *rstd; /* (N) */
    void *norm;         /* (N, C); without such a norm x */
    void *out;          /* (N, C) what it makes; of the MLP NULL: straight into
                           the layer's output */
    void *post;       /* (N, C) out as it is added to x: its norm, or it; of the
                         MLP NULL likewise */
    float *post_rstd; /* (N) */
};

struct layer_acts {
    struct branch_acts attention, mlp;
    struct qkv qkv;
    float *q_rstd, *k_rstd;  /* (N*H), (N*KV) */
    void *att;               /* (N, q) */
    float *lse;              /* (B, H, T) */
    char *heads, *heads_att; /* by heads: (B, T, share) of q | k | v, and of att
                                (model/context.c) */
    void *gate, *up; /* (N, F), then their gradients; up NULL without a gate */
    void *act;       /* (N, F) */
    void *low;       /* (N, r of all adapters), one after the other */
    void *mlp_low;   /* (P, r ..) of an MLP in pieces, in the places that `low`
                        has for them; NULL: in `low` */
    float *gains;    /* DoRA: gains, then inverses of each adapter's rows */
    struct fp8_codes xt[FP8_GROUPS]; /* (in, P) of a group's input, in place of
                                        it; NULL: it is kept itself */
    float *x_amax;      /* (FP8_GROUPS) of inputs, tensorwise; else NULL */
    unsigned recompute; /* enum layer_part: shared by all layers, recomputed
                           by backward */
};

/* What a layer's backward reads and can be recomputed without a matmul. */
enum layer_part {
    PART_NORM1 = 1,
    PART_NORM2 = 2,
    PART_ACT = 4,
    PART_HEADS = 8,   /* q and k after their norms and rotation */
    PART_OUTPUT = 16, /* by heads: heads_att, exchanged once more */
    PART_MLP = 32 /* in pieces, with its matmuls: norm2, gate, up, act, mlp_out
                     and mlp_low are of one, (P, ..), and NORM2 and ACT are
                     part of it */
};

struct layer_grads {      /* inside one layer's backward */
    void *hidden;         /* (N, max(C, q)) */
    void *mlp_out, *proj; /* (N, C); dx where they are added as they are */
    void *sum;            /* (N, C): second term of a sum in bf16; else NULL; of
                             all tokens also with tensor parallelism */
    void *act;            /* (N, F), or of a piece (P, F) */
    struct qkv qkv;
    void *scratch; /* of attention */
};

/* Elements between the rows of consecutive tokens. What one matmul makes lies
 * in one array: gpt2's q | k | v, with JOIN_QKV q_raw | k_raw | v, and q | k
 * where they have norms; with JOIN_GATE_UP gate | up. */
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
    void *all_logits;   /* (tp, chunk, stride) of each place: decoding; NULL */
    void *dlogits;      /* (chunk, V); of one type with them: the logits
                           themselves */
    enum dtype logits_dtype;
    float *losses;            /* (chunk) */
    struct row_score *scores; /* (tp + 1, chunk): of each place, then its own */
    void *low;                /* (chunk, r) of the head's adapter */
    float *gains;             /* (2, V) of it: DoRA */
};

struct activations {
    size_t bytes;
    int first;   /* layers before it keep nothing; L + 1: none keeps */
    int segment; /* layers of a segment */
    int segments;
    bool recompute;
    int mlp_pieces;   /* of P tokens at most, as many as N / pieces */
    bool head_covers; /* the head's arrays overlap the last layer's */
    int micros;       /* that take turns, each with a struct like this one */
    bool is_shared;   /* the last slot, by micro-batches */
    void **inputs;    /* (segments) forward; owned */
    void **returned;  /* .. and in backward; owned */
    int offloaded;    /* inputs of all micro-batches that visit the host */
    int buffers;      /* of inputs, on the device, one after the other .. */
    void *first_buffer;
    size_t input_bytes;       /* of one on the host, .. */
    size_t moved_bytes;       /* .. without what aligns it */
    struct layer_acts *slots; /* (segment); owned */
    struct layer_acts lean;
    void *lean_scratch, *scratch; /* of attention, forward */
    size_t scratch_bytes;         /* of these and of grads.scratch */
    void *last;                   /* (N, C) what the last layer gives */
    void *dx;                     /* (N, C) gradient of the layer at hand */
    void *gathered;               /* (N, C) what the head reads of `last`; lies
                                     over what is not in use meanwhile */
    struct layer_grads grads;
    struct head_acts head;
    struct adapter_scratch adapters;
    size_t layer_gains; /* floats between the gains of layers, which decoding
                           keeps from its first token on; else 0 */
    char *k_cache, *v_cache;  /* (L, texts, capacity, kv) */
    size_t cache_layer_bytes; /* of one layer's keys */
    size_t cache_text_bytes;  /* of them, one text's */
};

/* The next of the arrays that lie from `base` on (NULL: none are there). */
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

/* Of the kernel table that the shape will run with (kernels.h). */
static inline enum dtype shape_logits_dtype(const struct model_shape *shape)
{
    return shape->backend == DEVICE_CUDA ? shape->dtype : DTYPE_FP32;
}

/* The first layer that has a backward; L + 1 when none has. */
int activations_first_layer(
        const struct model_config *config, const struct param_table *table);

static inline int shape_micros(const struct model_shape *shape)
{
    return shape->micros > 1 ? shape->micros : 1;
}

/* The passes of a model; arrays of one are not used during another. Training
 * has one for each micro-batch. */
enum { PASS_EVAL, PASS_DECODE, PASS_TRAIN };
static inline int activations_passes(const struct model_shape *shape)
{
    return PASS_TRAIN + shape_micros(shape);
}
/* Lay out the passes that the shape asks for, each from `base` on. With base
 * NULL only sizes are known (planning). (activations_passes), owned. */
struct activations *activations_lay_out(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape, char *base);
void activations_free(struct activations *passes, int count);

/* Of B samples of T tokens in a layer (1 .. L), `model` being the shape of the
 * model; the caller adds documents and scratch. */
struct attention_shape activations_attention(
        const struct model_config *config, const struct model_shape *model,
        int layer, int B, int T);
/* By heads: of all tokens, and of the heads that one of the places has, whose
 * q, k and v are columns of one array. */
void activations_share_heads(struct attention_shape *shape, int places);
