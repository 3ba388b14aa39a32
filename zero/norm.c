/* norm.c - the norm of the whole model's gradient, the same bits at every world
 * size and stage.
 *
 * Each tensor is cut into pieces of 256 elements from its start. Shards are
 * multiples of 256, so a piece lies on one rank. Its sum of squares is taken in
 * fp64 over eight lanes (lane k has elements k, k+8, ..), lanes added pairwise;
 * pieces go into an exact sum, whose order does not matter. */
#include "zero/private.h"

#include <math.h>

enum { LANES = 8 };

static double lanes_sum(const double *lane)
{
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

static double piece_fp32(const float *x, size_t count)
{
    double lane[LANES] = {0};
    size_t whole = count / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] += (double)x[i + (size_t)k] * (double)x[i + (size_t)k];
    for (size_t i = whole; i < count; i++)
        lane[i - whole] += (double)x[i] * (double)x[i];
    return lanes_sum(lane);
}

static double piece_bf16(const uint16_t *x, size_t count)
{
    float wide[ZERO_ALIGN];
    for (size_t i = 0; i < count; i++)
        wide[i] = bf16_to_float(x[i]);
    return piece_fp32(wide, count);
}

/* `grad`: a run that begins at a multiple of 256 in its tensor. */
static void add_run(
        struct exact_sum *sum, const void *grad, enum dtype type, size_t count)
{
    enum { TURN = 64 }; /* pieces that keep a thread busy */
    size_t pieces = (count + ZERO_ALIGN - 1) / ZERO_ALIGN;
#pragma omp parallel if (pieces > TURN)
    {
        struct exact_sum mine;
        exact_sum_clear(&mine);
#pragma omp for schedule(static)
        for (size_t piece = 0; piece < pieces; piece++) {
            size_t at = piece * ZERO_ALIGN;
            size_t n = count - at < ZERO_ALIGN ? count - at : ZERO_ALIGN;
            exact_sum_add(
                    &mine, type == DTYPE_BF16
                                   ? piece_bf16((const uint16_t *)grad + at, n)
                                   : piece_fp32((const float *)grad + at, n));
        }
#pragma omp critical(zero_norm)
        exact_sum_merge(sum, &mine);
    }
}

/* Squares of this rank's shard: all shards together are the model once. */
static void add_shard(const struct zero *zero, struct exact_sum *sum)
{
    const struct zero_plan *plan = zero->plan;
    size_t bytes = dtype_bytes(plan->grad_dtype);
    for (int s = 0; s < plan->segment_count; s++) {
        const struct zero_segment *segment = &plan->segments[s];
        if (!segment->trainable)
            continue;
        size_t begin = (size_t)zero->rank * segment->shard_count;
        struct zero_run run = {.id = -1};
        while (zero_run_next(
                plan, s, begin, begin + segment->shard_count, &run))
            add_run(sum,
                    (const char *)zero->memory[s].grad_shard +
                            (run.offset - begin) * bytes,
                    plan->grad_dtype, run.count);
    }
}

/* A sum on the wire: its digits, carried, and its non-finite terms. */
static void pack(int64_t *words, struct exact_sum *sum)
{
    exact_sum_carry(sum);
    memcpy(words, sum->digit, sizeof sum->digit);
    words[EXACT_SUM_DIGITS] = sum->nonfinite;
}

static void unpack(struct exact_sum *sum, const int64_t *words, int world)
{
    memcpy(sum->digit, words, sizeof sum->digit);
    sum->nonfinite = words[EXACT_SUM_DIGITS];
    sum->pending = world;
    exact_sum_carry(sum);
}

enum zd_status zero_grad_norm(
        struct zero *zero, double *norm_out, struct exact_sum *extra)
{
    int64_t words[ZERO_NORM_WORDS] = {0};
    int64_t *extra_words = words + EXACT_SUM_DIGITS + 1;
    struct exact_sum squares;
    exact_sum_clear(&squares);
    add_shard(zero, &squares);
    pack(words, &squares);
    if (extra)
        pack(extra_words, extra);
    if (zero->world > 1)
        ZD_TRY(comm_all_reduce_i64(
                zero->comm, words, ZERO_NORM_WORDS, COMM_SUM));
    unpack(&squares, words, zero->world);
    if (extra)
        unpack(extra, extra_words, zero->world);
    *norm_out = sqrt(exact_sum_value(&squares));
    return ZD_OK;
}
