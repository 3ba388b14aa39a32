/* family.h - a tensor with its states and gradients, updated whole or in spans,
 * for tests of every optimizer and format. */
#pragma once

#include "base/number/rng.h"
#include "optim/elements.h"
#include "optim/isa.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* A warning of Criterion's own would make a program that speaks TAP end with
 * 1. */
static inline void tell_skipped(enum isa isa)
{
    fprintf(stderr, "skipped: no %s on this machine\n", isa_name(isa));
}

/* An optimizer and its states. */
struct variant {
    const char *label;
    enum optim_name name;
    enum optim_state_type state_type;
    double momentum;
};

/* Every word of optim.name but the paged ones, after two that have none. */
enum { PLAIN_SGD, ADAMW_BF16, ADAMW, ADAMW_8BIT };
static const struct variant variants[] = {
        {"sgd without momentum", OPTIM_SGD, OPTIM_STATE_FP32, 0},
        {"adamw bf16", OPTIM_ADAMW, OPTIM_STATE_BF16, 0},
#define VARIANT_true(...)
#define VARIANT_false(word, ID, states)                                        \
    {word, OPTIM_##ID, OPTIM_STATE_##states, 0.9},
#define OPTIM_WORD(word, ID, states, is_paged)                                 \
    VARIANT_##is_paged(word, ID, states)
#include "optim/optimizers.inc"
};
enum { VARIANTS = sizeof variants / sizeof variants[0] };

/* What the arrays of a test are. */
struct shape {
    const struct variant *variant;
    enum dtype master_type, grad_type, param_type;
    bool has_param, in_place; /* param in the memory of grad */
    bool is_extreme;          /* gradients of very different sizes */
    struct tensor_blocks blocks;
};

struct tensor {
    struct shape shape;
    struct optim_options options;
    struct optim_layout layout;
    size_t count;
    void *master, *grad, *param;
    void *state[OPTIM_LANES];
    float *scale[OPTIM_LANES];
    float *block_v;
};

/* (rows, columns) like GPT-2's c_attn: three sections by column. */
static inline struct tensor_blocks fused_blocks(int64_t rows, int64_t columns)
{
    int64_t third = columns / 3, head = third / 4;
    int64_t heads = (third + head - 1) / head;
    return (struct tensor_blocks){
            .rows = rows,
            .columns = columns,
            .by_column = true,
            .section_count = 3,
            .sections =
                    {{0, head, 0},
                     {third, head, heads},
                     {2 * third, 1, 2 * heads}},
            .count = 2 * heads + columns - 2 * third};
}

static inline struct tensor_blocks row_blocks(
        int64_t rows, int64_t columns, int64_t group)
{
    return (struct tensor_blocks){
            .rows = rows,
            .columns = columns,
            .section_count = 1,
            .sections = {{0, group, 0}},
            .count = (rows + group - 1) / group};
}

static inline struct tensor tensor_make(const struct shape *shape)
{
    struct tensor t = {.shape = *shape, .options = optim_options_default()};
    size_t count = (size_t)(shape->blocks.rows * shape->blocks.columns);
    t.options.name = shape->variant->name;
    t.options.state_type = shape->variant->state_type;
    t.options.momentum = shape->variant->momentum;
    t.count = count;
    t.layout = optim_layout_of(&t.options, count, false, &shape->blocks);
    float *wide = malloc(count * sizeof *wide);
    rng_normal(1, 1, 0, count, wide);
    t.master = malloc(count * 4);
    dtype_convert(t.master, shape->master_type, wide, DTYPE_FP32, count);
    free(wide);
    t.grad = calloc(count, 4);
    t.param = calloc(count, 4);
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        enum optim_format format = t.layout.lane[lane];
        t.state[lane] = malloc(optim_lane_bytes(format, count) + 1);
        t.scale[lane] =
                malloc((optim_scale_count(format, count) + 1) * sizeof(float));
        optim_lane_clear(
                (enum optim_lane)lane, format, t.state[lane], t.scale[lane],
                count);
    }
    t.block_v = calloc((size_t)shape->blocks.count, sizeof(float));
    return t;
}

static inline void tensor_drop(struct tensor *t)
{
    free(t->master);
    free(t->grad);
    free(t->param);
    free(t->block_v);
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        free(t->state[lane]);
        free(t->scale[lane]);
    }
}

/* Gradients over nine decades, with zeros among them and a qblock of zeros; a
 * gradient of fp16 keeps within its range. Extreme ones also have qblocks of
 * zeros but one, where only m becomes 0, and of denormal and huge values. */
static inline void tensor_draw_grad(struct tensor *t, int64_t step)
{
    static const float sizes[] = {1, 0, 1e-44f, 1e15f, 1e-30f, 7e4f, 1e-20f};
    float *wide = malloc(t->count * sizeof *wide);
    rng_normal(2, (uint64_t)step, 0, t->count, wide);
    for (size_t i = 0; i < t->count; i++) {
        double decade = 9 * rng_uniform(3, (uint64_t)step, i / 16);
        wide[i] = (float)((double)wide[i] * pow(10, -decade));
        if (i % 97 == 5 || i / 256 == 3)
            wide[i] = 0;
        if (t->shape.is_extreme)
            wide[i] *= i / 256 == 2 && i % 2 ? 0 : sizes[i / 256 % 7];
    }
    if (t->shape.is_extreme)
        wide[256 + 100] = 1e-3f;
    dtype_convert(t->grad, t->shape.grad_type, wide, DTYPE_FP32, t->count);
    free(wide);
}

/* Applied steps of the run before the tensor's first: its own t is what counts,
 * so no reference knows of them. */
enum { BEGAN = 1000 };

static inline struct optim_step tensor_step(const struct tensor *t, int64_t at)
{
    return (struct optim_step){
            .options = &t->options,
            .learning_rate = 3e-3,
            .t = BEGAN + at,
            .grad_scale = 0.37f,
            .seed = 0x123456789abcdefu};
}

static inline struct optim_span tensor_span(
        const struct tensor *t, size_t begin, size_t count)
{
    const struct shape *s = &t->shape;
    size_t grad_at = begin * dtype_bytes(s->grad_type);
    struct optim_span span = {
            .master = (char *)t->master + begin * dtype_bytes(s->master_type),
            .master_type = s->master_type,
            .grad = (char *)t->grad + grad_at,
            .grad_type = s->grad_type,
            .param_type = s->param_type,
            .layout = t->layout,
            .block_v = t->block_v,
            .blocks = &t->shape.blocks,
            .begin = begin,
            .count = count,
            .tensor = rng_stream("a tensor"),
            .decays = true,
            .began = BEGAN};
    if (s->in_place)
        span.param = (char *)t->grad + grad_at;
    else if (s->has_param)
        span.param = (char *)t->param + begin * dtype_bytes(s->param_type);
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        enum optim_format format = t->layout.lane[lane];
        span.lanes.state[lane] =
                (char *)t->state[lane] + optim_lane_bytes(format, begin);
        span.lanes.scale[lane] =
                t->scale[lane] + optim_scale_count(format, begin);
    }
    return span;
}

/* Weights that an update in place left in front of a span's gradients. */
static inline void tensor_keep_param(
        struct tensor *t, size_t begin, size_t count)
{
    size_t bytes = dtype_bytes(t->shape.param_type);
    if (t->shape.in_place)
        memcpy((char *)t->param + begin * bytes,
               (char *)t->grad + begin * dtype_bytes(t->shape.grad_type),
               count * bytes);
}

static inline double tensor_norm(const struct tensor *t)
{
    struct exact_sum squares = {0};
    optim_add_squares(&squares, t->grad, t->shape.grad_type, t->count);
    return sqrt(exact_sum_value(&squares));
}

/* The v of the blocks for the step; `norm` of the whole gradient. */
static inline void tensor_update_blocks_by(
        struct tensor *t, const struct optim_step *step, double norm)
{
    if (t->layout.lane[OPTIM_V] != OPTIM_BLOCKS)
        return;
    const struct tensor_blocks *blocks = &t->shape.blocks;
    int64_t *sums = calloc((size_t)blocks->count * 2, sizeof *sums);
    optim_add_block_sums(
            sums, blocks, t->grad, t->shape.grad_type, 0, t->count, norm);
    optim_update_blocks(t->block_v, sums, blocks, step, norm);
    free(sums);
}

static inline void tensor_update_blocks(
        struct tensor *t, const struct optim_step *step)
{
    tensor_update_blocks_by(t, step, tensor_norm(t));
}

/* A gradient of its own: the caller frees it. */
static inline void *grad_draw(enum dtype type, size_t count)
{
    struct shape shape = {
            .variant = &variants[PLAIN_SGD],
            .grad_type = type,
            .blocks = row_blocks((int64_t)count, 1, 1)};
    struct tensor t = tensor_make(&shape);
    tensor_draw_grad(&t, 1);
    void *grad = t.grad;
    t.grad = NULL;
    tensor_drop(&t);
    return grad;
}

/* Shape `kind` of all pairs of types, with the parameter apart, in place and
 * absent; false where it cannot be or is another one again. */
enum { SHAPE_KINDS = 2 * 3 * 3 * 3 };
static inline bool shape_of_kind(
        int kind, const struct variant *variant,
        const struct tensor_blocks *blocks, struct shape *shape)
{
    bool is_absent = kind / 18 == 0;
    *shape = (struct shape){
            .variant = variant,
            .master_type = kind % 2 ? DTYPE_BF16 : DTYPE_FP32,
            .grad_type = (enum dtype)(kind / 2 % 3),
            .param_type = (enum dtype)(kind / 6 % 3),
            .has_param = kind / 18 == 1,
            .in_place = kind / 18 == 2,
            .blocks = *blocks};
    if (shape->in_place)
        return dtype_bytes(shape->param_type) <= dtype_bytes(shape->grad_type);
    return !(is_absent && shape->param_type > DTYPE_FP32);
}

/* "adamw, master fp32, gradient bf16, parameter bf16 in place" */
static inline const char *shape_text(const struct shape *shape)
{
    static char text[160];
    snprintf(
            text, sizeof text, "%s, master %s, gradient %s, parameter %s%s",
            shape->variant->label, dtype_name(shape->master_type),
            dtype_name(shape->grad_type), dtype_name(shape->param_type),
            shape->in_place    ? " in place"
            : shape->has_param ? ""
                               : " absent");
    return text;
}

static inline bool tensor_equal(const struct tensor *a, const struct tensor *b)
{
    const struct shape *s = &a->shape;
    bool has_param = s->has_param || s->in_place;
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        enum optim_format format = a->layout.lane[lane];
        if (memcmp(a->state[lane], b->state[lane],
                   optim_lane_bytes(format, a->count)) != 0 ||
            memcmp(a->scale[lane], b->scale[lane],
                   optim_scale_count(format, a->count) * sizeof(float)) != 0)
            return false;
    }
    return memcmp(a->master, b->master,
                  a->count * dtype_bytes(s->master_type)) == 0 &&
           (!has_param || memcmp(a->param, b->param,
                                 a->count * dtype_bytes(s->param_type)) == 0) &&
           memcmp(a->block_v, b->block_v,
                  (size_t)s->blocks.count * sizeof(float)) == 0;
}
