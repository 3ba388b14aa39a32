/* plain.c - the definition of an update, for every optimizer and format: plain
 * loops that vectorize, compiled for each instruction set. fp32 arrays are
 * updated where they lie; others pass through buffers of a qblock, which stay
 * in the first-level cache. */
#include "optim/elements.h"
#include "optim/lanes.h"

#include <assert.h>

/* --- draws ---------------------------------------------------------------- */

/* Philox 4x32-10 (base/number/rng.c) for the calls of a qblock side by side. */
INLINED void draw(
        uint64_t seed, uint64_t stream, int64_t t, size_t qblock,
        uint16_t *restrict draws)
{
    const uint64_t m0 = 0xd2511f53, m1 = 0xcd9e8d57;
    uint32_t c0[OPTIM_DRAW_CALLS], c1[OPTIM_DRAW_CALLS];
    uint32_t c2[OPTIM_DRAW_CALLS], c3[OPTIM_DRAW_CALLS];
    uint64_t first = (uint64_t)t << 32 | (uint64_t)qblock * OPTIM_DRAW_CALLS;
    for (uint32_t i = 0; i < OPTIM_DRAW_CALLS; i++) {
        c0[i] = (uint32_t)first + i; /* the low word does not overflow */
        c1[i] = (uint32_t)(first >> 32);
        c2[i] = (uint32_t)stream;
        c3[i] = (uint32_t)(stream >> 32);
    }
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < OPTIM_DRAW_CALLS; i++) {
            uint64_t p0 = m0 * c0[i], p1 = m1 * c2[i];
            c0[i] = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
            c2[i] = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
            c1[i] = (uint32_t)p1;
            c3[i] = (uint32_t)p0;
        }
        k0 += 0x9e3779b9;
        k1 += 0xbb67ae85;
    }
    const uint32_t *words[] = {c0, c1, c2, c3};
    for (int k = 0; k < 8; k++)
        for (int i = 0; i < OPTIM_DRAW_CALLS; i++)
            draws[k * OPTIM_DRAW_CALLS + i] =
                    (uint16_t)(words[k / 2][i] >> (k % 2 * 16));
}

void optim_draws(
        uint64_t seed, uint64_t stream, int64_t t, size_t qblock,
        uint16_t draws[OPTIM_QBLOCK])
{
    draw(seed, stream, t, qblock, draws);
}

INLINED void narrow_by_chance(
        const struct optim_span *span, const struct optim_step *step,
        uint64_t stream, size_t at, size_t count, float *restrict x,
        uint16_t *restrict out)
{
    uint16_t draws[OPTIM_QBLOCK];
    draw(step->seed, stream, step->t, (span->begin + at) / OPTIM_QBLOCK, draws);
    for (size_t i = 0; i < count; i++) {
        out[i] = round_stochastic(x[i], draws[i]);
        x[i] = bf16_to_float(out[i]);
    }
}

/* --- elements ------------------------------------------------------------- */

/* fp32 values; lanes that the rule does not have are not looked at. */
INLINED void update_elements(
        enum optim_rule rule, const struct optim_factors *factors,
        float *restrict weight, float *restrict m, float *restrict v,
        const float *restrict grad, size_t count)
{
    const struct optim_factors f = *factors;
    switch (rule) {
#define OPTIM_RULE(ID, element, ...)                                           \
    case OPTIM_RULE_##ID:                                                      \
        for (size_t i = 0; i < count; i++)                                     \
            weight[i] = element(&f, weight[i], &m[i], &v[i], grad[i]);         \
        break;
#include "optim/optimizers.inc"
    case OPTIM_RULES:
        break;
    }
}

/* --- a qblock ------------------------------------------------------------- */

struct buffers {
    float weight[OPTIM_QBLOCK], grad[OPTIM_QBLOCK];
    float lanes[OPTIM_LANES][OPTIM_QBLOCK];
};

INLINED void *after(const void *array, size_t bytes)
{
    return (char *)(uintptr_t)array + bytes;
}

/* `lanes` begin at the qblock. */
INLINED float *read_lane(
        const struct optim_span *span, const struct optim_lanes *lanes,
        enum optim_lane lane, size_t at, size_t count, float *buffer)
{
    enum optim_format format = span->layout.lane[lane];
    if (format == OPTIM_FP32)
        return lanes->state[lane];
    if (format == OPTIM_BLOCKS)
        optim_expand_blocks(
                span->blocks, span->block_v, span->begin + at, count, buffer);
    else
        optim_lane_read(
                lane, format, lanes->state[lane], lanes->scale[lane], count,
                buffer);
    return buffer;
}

INLINED void write_lane(
        const struct optim_span *span, const struct optim_step *step,
        const struct optim_lanes *lanes, enum optim_lane lane, size_t at,
        size_t count, float *values)
{
    enum optim_format format = span->layout.lane[lane];
    void *out = lanes->state[lane];
    if (format == OPTIM_BF16 && lane == OPTIM_V)
        narrow_by_chance(span, step, ~span->tensor, at, count, values, out);
    else if (format == OPTIM_BF16 || format == OPTIM_8BIT)
        optim_lane_write(lane, format, out, lanes->scale[lane], count, values);
}

INLINED void write_weight(
        const struct optim_span *span, const struct optim_step *step, size_t at,
        size_t count, float *weight)
{
    if (span->master_type == DTYPE_BF16)
        narrow_by_chance(
                span, step, span->tensor, at, count, weight,
                (uint16_t *)span->master + at);
    if (span->param)
        dtype_convert(
                after(span->param, at * dtype_bytes(span->param_type)),
                span->param_type, weight, DTYPE_FP32, count);
}

INLINED void update_qblock(
        const struct optim_span *span, const struct optim_step *step,
        enum optim_rule rule, const struct optim_factors *f, size_t at,
        size_t count)
{
    struct buffers b;
    const struct optim_lanes lanes =
            optim_lanes_from(&span->layout, &span->lanes, at);
    float *weight = (float *)span->master + at, *m, *v;
    dtype_convert(
            b.grad, DTYPE_FP32,
            after(span->grad, at * dtype_bytes(span->grad_type)),
            span->grad_type, count);
    if (span->master_type != DTYPE_FP32) {
        weight = b.weight;
        dtype_convert(
                b.weight, DTYPE_FP32, (const uint16_t *)span->master + at,
                span->master_type, count);
    }
    m = read_lane(span, &lanes, OPTIM_M, at, count, b.lanes[OPTIM_M]);
    v = read_lane(span, &lanes, OPTIM_V, at, count, b.lanes[OPTIM_V]);
    update_elements(rule, f, weight, m, v, b.grad, count);
    write_lane(span, step, &lanes, OPTIM_M, at, count, m);
    write_lane(span, step, &lanes, OPTIM_V, at, count, v);
    write_weight(span, step, at, count, weight);
}

INLINED void update(
        const struct optim_span *span, const struct optim_step *step)
{
    struct optim_factors f = optim_factors_of(span, step);
    enum optim_rule rule = optim_rule_of(step->options, &span->layout);
    size_t whole = span->count - span->count % OPTIM_QBLOCK;
    for (size_t at = 0; at < whole; at += OPTIM_QBLOCK)
        update_qblock(span, step, rule, &f, at, OPTIM_QBLOCK);
    if (whole < span->count)
        update_qblock(span, step, rule, &f, whole, span->count - whole);
}

/* --- instruction sets ----------------------------------------------------- */

ISA_VERSIONS(
        update, (const struct optim_span *span, const struct optim_step *step),
        (span, step))

void optim_update_plain(
        const struct optim_span *span, const struct optim_step *step)
{
    assert(span->begin % OPTIM_QBLOCK == 0);
    update_by[isa_best()](span, step);
}
