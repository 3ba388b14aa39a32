/* norm.c - the norm of the whole model's gradient, the same bits at every world
 * size and stage.
 *
 * Each tensor is cut into pieces of 256 elements from its start. Parts are
 * multiples of 256, so a piece lies on one rank; sums of pieces go into an
 * exact sum, whose order does not matter (optim_add_squares). On the device the
 * sum is queued after the last reduction and read once: there a step waits for
 * the device. */
#include "zero/private.h"

#include <math.h>

enum zd_status norm_begin(struct zero *zero)
{
    const struct zero_plan *plan = zero->plan;
    size_t bytes = dtype_bytes(plan->grad_dtype);
    ZD_TRY(device_clear(zero->squares, sizeof *zero->squares));
    for (int s = 0; s < plan->segment_count; s++) {
        const struct zero_segment *segment = &plan->segments[s];
        if (!segment->trainable)
            continue;
        size_t begin = (size_t)zero->part * segment->part_count;
        struct zero_extent extent = {.id = -1};
        while (zero_extent_next(
                plan, s, begin, begin + segment->part_count, &extent))
            ZD_TRY(optim_device()->add_squares(
                    zero->squares,
                    (const char *)zero->memory[s].grad_part +
                            (extent.offset - begin) * bytes,
                    plan->grad_dtype, plan_counted(plan, s, &extent)));
    }
    return ZD_OK;
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
    if (zero->plan->states_on_host)
        ZD_TRY(offload_squares(zero->offload.engine, &squares));
    else
        ZD_TRY(device_read(&squares, zero->squares, sizeof squares));
    /* at stage 0 all ranks have all gradients on the host: only the first
     * counts */
    if (zero->plan->states_on_host && !zero->plan->states_cut && zero->part > 0)
        exact_sum_clear(&squares);
    pack(words, &squares);
    if (extra)
        pack(extra_words, extra);
    int world = comm_size(zero->comm);
    if (world > 1)
        ZD_TRY(comm_all_reduce_i64(
                zero->comm, words, ZERO_NORM_WORDS, COMM_SUM));
    unpack(&squares, words, world);
    if (extra)
        unpack(extra, extra_words, world);
    zero->norm = sqrt(exact_sum_value(&squares));
    *norm_out = zero->norm;
    return ZD_OK;
}
