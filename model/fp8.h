/* fp8.h - which matmuls of a layer are in FP8 ([train] fp8), and their memory.
 *
 *   forward   y(N, out)   = X(N, in)     W(out, in)^T
 *   backward  dx(N, in)   = dY(N, out)   Wt(in, out)^T
 *             dW(out, in) = dYt(out, P)  Xt(in, P)^T      P: N rounded up to 16
 *
 * An operand is cast right before its matmul (kernels/fp8/fp8.h). X, W and
 * their transposes are E4M3; dY is E5M2 tensorwise, E4M3 blockwise. Projections
 * of one input are a group: its tensors share their amax (tensorwise: of the
 * whole W, even if sharded or cut by tensor parallelism, and of a micro-batch's
 * x or dy), and all or none of them are in FP8. A group stays in the compute
 * type if a side of one of its weights is not a multiple of FP8_ALIGN; so do
 * all groups in decoding, and adapters' own matmuls. All groups also do if a
 * layer has a tensor whose length is not a multiple of FP8_UNIT: weights after
 * it would not begin at 16 bytes, as casts on a GPU need.
 *
 * Xt is kept for backward instead of x if backward does not read x otherwise
 * (slots.c); else backward casts x again, with the amax from forward.
 *
 * If the base is stored in blocks of FP8, its codes are multiplied as they are
 * (blockwise), or decoded first (tensorwise).
 *
 * Source: tensorwise as torchao's float8; blockwise DeepSeek-V3,
 *         arXiv:2412.19437, section 3.3. */
#pragma once

#include "kernels/kernels.h"
#include "model/params.h"

enum fp8_group { FP8_QKV, FP8_O, FP8_GATE_UP, FP8_DOWN, FP8_GROUPS };
enum { FP8_UNIT = 8 };

/* A matrix as codes and their scales. */
struct fp8_codes {
    uint8_t *codes;
    float *scales;
};

struct model_shape;
struct fp8_use {
    enum fp8_mode mode;
    bool has[FP8_GROUPS];    /* in FP8 */
    bool trains[FP8_GROUPS]; /* a weight of the group trains, in some layer */
    bool adapts[FP8_GROUPS]; /* an adapter reads the group's input */
    /* sides of the group's widest matmul */
    int in[FP8_GROUPS], out[FP8_GROUPS];
};
/* The same in all layers. */
struct fp8_use fp8_use_of(
        const struct param_table *table, const struct model_shape *shape);
/* The group of a layer's linear weight; FP8_GROUPS: none. */
enum fp8_group fp8_group_of(enum role role);
/* Is the weight's matmul in FP8? */
bool fp8_has(const struct fp8_use *use, const struct param *param);

/* Sizes of the transpose of `tokens` rows of `in`: bytes of codes, floats of
 * scales. */
size_t fp8_transposed_bytes(int tokens, int in);
size_t fp8_transposed_scales(const struct fp8_use *use, int tokens, int in);

/* The span "model.fp8": operands of one matmul at a time, and maxima. */
struct fp8_scratch {
    struct fp8_codes weight;
    struct fp8_codes tokens; /* x, or dy */
    struct fp8_codes dy, x;  /* transposed */
    float *weights;          /* amax of each unit's groups */
    float *inputs;           /* by group, for passes without a backward */
    float *grads;            /* (1) */
    float *all;              /* (tp, FP8_GROUPS), all places' */
    size_t maxima;           /* floats of these four, from `weights` on */
    size_t bytes;
};
struct model_config;
/* Lays out the scratch from `base` on; NULL: only sizes. */
struct fp8_scratch fp8_scratch_at(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape, char *base);
