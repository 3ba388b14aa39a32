/* optim.h - optimizers over spans of elements; knows no ranks, no shards.
 *
 * optim/optimizers.inc lists them and defines what each computes. Powers of
 * beta are taken in double; t counts the applied steps of the tensor, from 1,
 * as PyTorch counts them for each parameter.
 *
 * States. A lane is one array of state (m or v); its format is chosen for a
 * whole tensor. In 8 bits a lane is a code per element and a scale (the largest
 * magnitude, fp32) per qblock of 256 elements, counted from the tensor's start
 * (optim/codec.h; Dettmers et al. 2022, arXiv:2110.02861). The update uses the
 * new m and v before they are rounded.
 *
 * Bits. The result of an element depends on its inputs and its qblock, never on
 * how a tensor is cut into spans at multiples of 256, on threads or on the
 * instruction set: each fast path gives the bits of the plain definition. */
#pragma once

#include "base/number/dtype.h"
#include "base/number/exact_sum.h"
#include "base/number/tensor_blocks.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { OPTIM_QBLOCK = 256, OPTIM_8BIT_MIN = 4096 };

enum optim_name {
#define OPTIMIZER(ID, ...) OPTIM_##ID,
#include "optim/optimizers.inc"
};
enum optim_state_type { OPTIM_STATE_FP32, OPTIM_STATE_BF16, OPTIM_STATE_8BIT };
enum optim_master { OPTIM_MASTER_FP32, OPTIM_MASTER_NONE };
enum lr_schedule { LR_LINEAR, LR_COSINE, LR_CONSTANT, LR_WSD };

struct optim_options { /* [optim] */
    enum optim_name name;
    enum optim_state_type state_type; /* 8BIT by the names that end in _8bit */
    bool paged;                       /* the names that begin with paged_ */
    bool stable_embedding;            /* embeddings keep 32-bit states */
    enum optim_master master;
    double learning_rate;
    enum lr_schedule lr_scheduler_type;
    double min_lr_ratio;
    double warmup_steps;    /* whole steps; a fraction < 1 of max_steps */
    double wsd_decay_steps; /* whole steps, or a fraction < 1 */
    double weight_decay;
    /* hyper-parameters of the optimizers: adam_beta1 .. momentum */
#define OPTIM_PARAM(key, ...) double key;
#include "optim/optimizers.inc"
    double max_grad_norm; /* 0 = off */
};

struct optim_options optim_options_default(void);

/* Warm-up and decay in whole steps; a fraction is rounded up. */
int64_t optim_warmup_steps(
        const struct optim_options *options, int64_t max_steps);
int64_t optim_wsd_decay_steps(
        const struct optim_options *options, int64_t max_steps);

/* Learning rate of step i (from 0). With w = warm-up, r = (i-w)/(max_steps-w):
 * i < w: max (i+1)/w; linear max (1 - (1-min) r); cosine
 * max (min + (1-min)(1 + cos(pi r))/2); constant max; wsd max, then linearly to
 * max*min over the last decay steps. */
double optim_learning_rate(
        const struct optim_options *options, int64_t step, int64_t max_steps);

/* --- states --------------------------------------------------------------- */

enum optim_lane { OPTIM_M, OPTIM_V, OPTIM_LANES };
enum optim_format {
    OPTIM_NONE, /* the optimizer has no such lane */
    OPTIM_FP32,
    OPTIM_BF16,
    OPTIM_8BIT,  /* m: signed map; v: unsigned map */
    OPTIM_BLOCKS /* Adam-mini's v: one fp32 per block of the tensor, kept apart
                    from the elements */
};
struct optim_layout {
    enum optim_format lane[OPTIM_LANES];
};
/* The positions of a run's lanes (optim/lanes.h). */
struct optim_lanes {
    void *state[OPTIM_LANES];  /* NULL: none, or blocks */
    float *scale[OPTIM_LANES]; /* 8-bit lanes, else NULL */
};

/* Formats of a tensor's lanes: 8 bits and bf16 only from OPTIM_8BIT_MIN
 * elements of the whole tensor on, and not for an embedding under
 * stable_embedding. A tensor whose blocks are single elements (a bias) has an
 * fp32 v under Adam-mini and is updated as by AdamW; `blocks` is not read for
 * other optimizers. */
struct optim_layout optim_layout_of(
        const struct optim_options *options, size_t tensor_count,
        bool is_embedding, const struct tensor_blocks *blocks);
/* Bytes of `count` elements of a lane, scales not counted; 0 for BLOCKS. */
size_t optim_lane_bytes(enum optim_format format, size_t count);
/* fp32 scales of a lane that begins at a qblock; 0 unless it has 8 bits. */
size_t optim_scale_count(enum optim_format format, size_t count);
/* A lane at the start of training: nothing, as its format writes it. Returns
 * ZD_OK, as all functions here do that optim/device.h has for a GPU too. */
typedef enum zd_status optim_lane_clear_fn(
        enum optim_lane lane, enum optim_format format, void *values,
        float *scales, size_t count);
optim_lane_clear_fn optim_lane_clear;
/* A lane as fp32 and back, e.g. when a checkpoint has another format. */
void optim_lane_read(
        enum optim_lane lane, enum optim_format format, const void *values,
        const float *scales, size_t count, float *out);
void optim_lane_write(
        enum optim_lane lane, enum optim_format format, void *values,
        float *scales, size_t count, const float *in);

/* --- the update ----------------------------------------------------------- */

/* A run of elements of one tensor, from a multiple of 256 of it. Arrays begin
 * with that element. `grad` and `param` may be the same memory when their types
 * have the same size, or when grad is fp32 and param has 16 bits: then the
 * weights fill the front of the span's gradients, so that spans of one array of
 * gradients leave gaps between their weights.
 *
 * bf16: a master and a v are rounded stochastically, because changes smaller
 * than half a unit would be lost at every step; m rounds to nearest even. */
struct optim_span {
    void *master; /* (count) weights, updated: fp32 or bf16 */
    enum dtype master_type;
    const void *grad; /* (count) fp32, bf16 or fp16 */
    enum dtype grad_type;
    void *param; /* (count) the new master, rounded to nearest even;
                    NULL: the master is the weight */
    enum dtype param_type;
    struct optim_layout layout;
    struct optim_lanes lanes;
    const float *block_v; /* OPTIM_BLOCKS: the new v of every block */
    const struct tensor_blocks *blocks; /* of the tensor */
    size_t begin, count;                /* in the tensor */
    uint64_t tensor;                    /* rng_stream of its name */
    bool decays;                        /* apply weight_decay here */
    float rate;    /* multiplies the step's learning rate; 0: 1 */
    int64_t began; /* applied steps of the run before the tensor began to train:
                      its t counts from there */
};

struct optim_step {
    const struct optim_options *options;
    double learning_rate; /* of this step */
    int64_t t;        /* applied steps of the run including this one, from 1 */
    float grad_scale; /* clipping factor / loss scale; multiplies g in fp32 */
    uint64_t seed;    /* of stochastic rounding, with t and the element */
};

/* Runs in the calling thread only. */
void optim_update(const struct optim_span *span, const struct optim_step *step);
/* On all OpenMP threads. */
typedef enum zd_status optim_update_fn(
        const struct optim_span *span, const struct optim_step *step);
optim_update_fn optim_update_threads;

/* --- sums over gradients -------------------------------------------------- */

/* Add the squares of a run to `sum`: pieces of 256 elements from the tensor's
 * start, each summed in fp64 in eight lanes (lane k has elements k, k+8, ..;
 * lanes added pairwise), pieces added exactly. `grad` begins at a multiple of
 * 256 of its tensor. The second runs on all OpenMP threads. */
void optim_add_squares(
        struct exact_sum *sum, const void *grad, enum dtype type, size_t count);
typedef enum zd_status optim_add_squares_fn(
        struct exact_sum *sum, const void *grad, enum dtype type, size_t count);
optim_add_squares_fn optim_add_squares_threads;

/* Adam-mini's block sums, the same bits for every cut: with N the norm of the
 * whole gradient, g^2 / N^2 is added as a fixed-point number of two words, so
 * that sums over threads and ranks are exact. sums: (count, 2) words (high,
 * low) of a tensor's blocks, cleared by the caller. Additions are atomic, so
 * that threads may share them; over ranks the words are summed as integers,
 * each by itself. Nothing is added when N is 0. The second runs on all OpenMP
 * threads. */
void optim_add_block_sums(
        int64_t *sums, const struct tensor_blocks *blocks, const void *grad,
        enum dtype type, size_t begin, size_t count, double norm);
typedef enum zd_status optim_add_block_sums_fn(
        int64_t *sums, const struct tensor_blocks *blocks, const void *grad,
        enum dtype type, size_t begin, size_t count, double norm);
optim_add_block_sums_fn optim_add_block_sums_threads;
/* v of every block from the sums over all ranks; `norm` as above, before
 * step->grad_scale is applied. */
typedef enum zd_status optim_update_blocks_fn(
        float *block_v, const int64_t *sums, const struct tensor_blocks *blocks,
        const struct optim_step *step, double norm);
optim_update_blocks_fn optim_update_blocks;
