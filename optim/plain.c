/* plain.c - the definition of an update: a qblock at a time, by plain loops. */
#include "optim/codec.h"
#include "optim/elements.h"

#include <assert.h>

/* A qblock in fp32. */
struct qblock {
    float weight[OPTIM_QBLOCK], grad[OPTIM_QBLOCK];
    float m[OPTIM_QBLOCK], v[OPTIM_QBLOCK];
};

static void *place(void *array, enum dtype type, size_t at)
{
    return (char *)array + at * dtype_bytes(type);
}

/* Addresses of qblock-aligned element `at` of a lane and of its scale. */
static void *lane_place(const struct optim_span *span, int lane, size_t at)
{
    return (char *)span->lanes.state[lane] +
           optim_lane_bytes(span->layout.lane[lane], at);
}

static float *scale_place(const struct optim_span *span, int lane, size_t at)
{
    return span->lanes.scale[lane] ? span->lanes.scale[lane] + at / OPTIM_QBLOCK
                                   : NULL;
}

static void read_qblock(
        const struct optim_span *span, size_t at, size_t count,
        struct qblock *q)
{
    float *lanes[OPTIM_LANES] = {q->m, q->v};
    dtype_convert(
            q->weight, DTYPE_FP32, place(span->master, span->master_type, at),
            span->master_type, count);
    dtype_convert(
            q->grad, DTYPE_FP32,
            (const char *)span->grad + at * dtype_bytes(span->grad_type),
            span->grad_type, count);
    for (int lane = 0; lane < OPTIM_LANES; lane++)
        if (span->layout.lane[lane] == OPTIM_BLOCKS)
            optim_expand_blocks(
                    span->blocks, span->block_v, span->begin + at, count,
                    lanes[lane]);
        else
            optim_lane_read(
                    (enum optim_lane)lane, span->layout.lane[lane],
                    lane_place(span, lane, at), scale_place(span, lane, at),
                    count, lanes[lane]);
}

static void update_elements(
        enum optim_rule rule, const struct optim_factors *f, size_t count,
        struct qblock *q)
{
    for (size_t i = 0; i < count; i++)
        switch (rule) {
#define OPTIM_RULE(ID, element, ...)                                           \
    case OPTIM_RULE_##ID:                                                      \
        q->weight[i] =                                                         \
                element(f, q->weight[i], &q->m[i], &q->v[i], q->grad[i]);      \
        break;
#include "optim/optimizers.inc"
        case OPTIM_RULES:
            break;
        }
}

/* bf16 of x by chance into `out`, and the values that were stored into x. */
static void round_by_chance(
        const struct optim_span *span, const struct optim_step *step,
        uint64_t stream, size_t at, size_t count, float *x, uint16_t *out)
{
    uint16_t draws[OPTIM_QBLOCK];
    optim_draws_plain(
            step->seed, stream, step->t, (span->begin + at) / OPTIM_QBLOCK,
            draws);
    for (size_t i = 0; i < count; i++) {
        out[i] = round_stochastic(x[i], draws[i]);
        x[i] = bf16_to_float(out[i]);
    }
}

static void write_qblock(
        const struct optim_span *span, const struct optim_step *step, size_t at,
        size_t count, struct qblock *q)
{
    float *lanes[OPTIM_LANES] = {q->m, q->v};
    for (int lane = 0; lane < OPTIM_LANES; lane++)
        if (lane == OPTIM_V && span->layout.lane[lane] == OPTIM_BF16)
            round_by_chance(
                    span, step, ~span->tensor, at, count, q->v,
                    lane_place(span, lane, at));
        else
            optim_lane_write(
                    (enum optim_lane)lane, span->layout.lane[lane],
                    lane_place(span, lane, at), scale_place(span, lane, at),
                    count, lanes[lane]);
    void *master = place(span->master, span->master_type, at);
    if (span->master_type == DTYPE_BF16)
        round_by_chance(span, step, span->tensor, at, count, q->weight, master);
    else
        memcpy(master, q->weight, count * sizeof *q->weight);
    if (span->param)
        dtype_convert(
                place(span->param, span->param_type, at), span->param_type,
                q->weight, DTYPE_FP32, count);
}

void optim_update_plain(
        const struct optim_span *span, const struct optim_step *step)
{
    struct optim_factors f = optim_factors_of(span, step);
    enum optim_rule rule = optim_rule_of(step->options, &span->layout);
    struct qblock q;
    assert(span->begin % OPTIM_QBLOCK == 0);
    for (size_t at = 0; at < span->count; at += OPTIM_QBLOCK) {
        size_t left = span->count - at;
        size_t count = left < OPTIM_QBLOCK ? left : OPTIM_QBLOCK;
        read_qblock(span, at, count, &q);
        update_elements(rule, &f, count, &q);
        write_qblock(span, step, at, count, &q);
    }
}
