#include "base/must.h"
#include "plan_case.h"

#include "tests/support/must.h"
#include "zero/plan_parts.h"

#include <criterion/criterion.h>
#include <stdlib.h>

TestSuite(zero_plan_offload, .init = plan_setup, .fini = plan_teardown);

static struct zero_request offloaded(int stage, int world, int accumulation)
{
    struct zero_request r = request(stage, world, accumulation);
    r.optim = optim_options_default();
    r.offload = offload_options_default();
    r.offload.optimizer = OFFLOAD_CPU;
    return r;
}

/* Gradients that pass are not kept; masters and states are the engine's. */
Test(zero_plan_offload, offload_leaves_parameters_and_buffers_on_the_device)
{
    for (int world = 1; world <= 4; world++) {
        for (int stage = 0; stage <= 3; stage++) {
            struct zero_request r = offloaded(stage, world, 1);
            const struct zero_plan *plan = build(&r);
            bool keeps = stage == 0 && world > 1;
            cr_assert_eq(bytes_of(plan, "zero.grads") > 0, keeps);
            cr_assert_eq(bytes_of(plan, "zero.states"), 0);
            cr_assert_eq(bytes_of(plan, "zero.master"), 0);
            cr_assert_gt(bytes_of(plan, "zero.params"), 0);
            cr_assert_gt(bytes_of(plan, "offload.states"), 0);
            cr_assert_eq(
                    bytes_of(plan, "zero.grads.passing") > 0,
                    world > 1 && stage > 0);
            cr_assert_eq(
                    arena_plan_kind_bytes(
                            spans_of(plan), ARENA_DEVICE, SPAN_OPTIMIZER),
                    0);
        }
    }
}

/* Of parameters on the host the device holds slots alone. */
Test(zero_plan_offload, parameters_on_the_host_leave_slots_on_the_device)
{
    for (int world = 1; world <= 4; world++) {
        for (int stage = world > 1 ? 3 : 0; stage <= 3; stage++) {
            struct zero_request r = offloaded(stage, world, 1);
            r.offload.params = OFFLOAD_CPU;
            const struct zero_plan *plan = build(&r);
            cr_assert(plan->params_cut);
            cr_assert_eq(plan->layer_slots, 2);
            cr_assert_eq(
                    arena_plan_kind_bytes(
                            spans_of(plan), ARENA_DEVICE, SPAN_PARAMS),
                    0);
            cr_assert_gt(bytes_of(plan, "zero.params.slots"), 0);
            cr_assert_eq(
                    arena_plan_find(spans_of(plan), "zero.params.frozen")
                            ->memory,
                    ARENA_PINNED);
        }
    }
}

/* Shards of a unit stay where they are until the unit after the next one is
 * reduced; two neighbors never share memory. */
Test(zero_plan_offload, passing_shards_of_neighbors_lie_apart)
{
    struct fake_shape deep = {.layers = 9, .scale = 1, .tied = true};
    fake_destroy(&fake);
    fake_create(&fake, &deep);
    for (int variant = 0; variant < 8; variant++) {
        struct zero_request r = offloaded(1 + variant % 3, 2 + variant % 3, 1);
        r.options.overlap_comm = variant & 2;
        const struct zero_plan *plan = build(&r);
        size_t whole = 0;
        for (int i = 0; i < plan->grad_unit_count; i++) {
            int unit = plan->grad_units[i];
            size_t at = plan->passing_offsets[unit];
            size_t count =
                    plan_unit_of(plan, unit).grads / (size_t)r.mesh.world;
            whole += count;
            cr_assert_leq(at + count, plan->passing_count);
            for (int k = 0; k < i; k++) {
                int other = plan->grad_units[k];
                size_t begin = plan->passing_offsets[other];
                size_t end = begin + plan_unit_of(plan, other).grads /
                                             (size_t)r.mesh.world;
                if (i - k <= (r.options.overlap_comm ? 1 : 0))
                    cr_assert(end <= at || at + count <= begin);
            }
        }
        cr_assert_lt(plan->passing_count, whole);
    }
}

Test(zero_plan_offload, each_micro_batch_that_the_host_adds_is_reduced)
{
    for (int stage = 1; stage <= 3; stage++) {
        struct zero_request r = offloaded(stage, 4, 3);
        r.accumulate_on_host = true;
        const struct zero_plan *plan = build(&r);
        cr_assert_eq(
                sent(plan).bytes[COMM_REDUCE_SCATTER],
                3 * share(trainable(plan), 4, 4));
        cr_assert_gt(plan->needs.offload[OFFLOAD_ACCUMULATORS], 0);
        r.accumulate_on_host = false; /* stage 1: only the last one */
        plan = build(&r);
        cr_assert_eq(
                sent(plan).bytes[COMM_REDUCE_SCATTER],
                (stage == 1 ? 1 : 3) * share(trainable(plan), 4, 4));
        cr_assert_eq(plan->needs.offload[OFFLOAD_ACCUMULATORS], 0);
    }
}

/* 4 of master, 2 of the slot; 1 each of m and v and two scales per 256, or 8 of
 * small tensors. */
Test(zero_plan_offload, a_parameter_takes_8_03_bytes_of_the_host)
{
    struct fake_shape big = {.layers = 2, .scale = 64};
    fake_destroy(&fake);
    fake_create(&fake, &big);
    struct zero_request r = offloaded(2, 1, 1);
    r.optim.state_type = OPTIM_STATE_8BIT;
    r.optim.stable_embedding = false;
    const struct zero_plan *plan = build(&r);
    double bytes = 0, want = 0;
    for (int part = 0; part < OFFLOAD_PARTS; part++)
        bytes += (double)plan->needs.offload[part];
    for (int id = 0; id < fake.table.count; id++) {
        size_t count = fake.table.params[id].count;
        want += (double)count *
                (6 + (count >= OPTIM_8BIT_MIN ? 2 + 8.0 / 256 : 8));
    }
    cr_assert_geq(bytes, want);
    cr_assert_leq(bytes, 1.06 * want, "%g bytes", bytes / want);
}

static void refuses(const struct zero_request *r, const char *code)
{
    struct zero_plan plan;
    REFUSED(zero_plan_build(r, &plan), ZD_ERR_CONFIG, code, "");
}

Test(zero_plan_offload, offload_that_does_not_go_together_is_refused)
{
    struct zero_request r;
    for (int stage = 0; stage <= 2; stage++) {
        r = offloaded(stage, 2, 1);
        r.offload.params = OFFLOAD_CPU;
        refuses(&r, "E0661");
    }
    r = offloaded(0, 2, 4);
    r.accumulate_on_host = true;
    refuses(&r, "E0662");
}

/* Everything that offload_measure and offload_snapshot_bytes count of a rank.
 */
static void measure_rank(
        const struct zero_plan *plan, int rank, size_t bytes[OFFLOAD_PARTS + 1])
{
    struct offload_request asked = plan_request_of(plan, rank, NULL);
    offload_measure(&asked, bytes);
    bytes[OFFLOAD_PARTS] = 0;
    bytes[OFFLOAD_PARTS] = offload_snapshot_bytes(&asked);
    plan_request_free(&asked);
}

Test(zero_plan_offload,
     ranks_that_are_passed_over_take_what_the_one_before_takes)
{
    static const enum optim_name names[] = {OPTIM_ADAMW, OPTIM_ADAM_MINI};
    int passed[2] = {0};
    for (int world = 1; world <= 64; world++)
        for (int k = 0; k < 2; k++) {
            struct zero_request r = offloaded(1 + world % 3, world, 1);
            r.optim.name = names[k];
            r.optim.state_type =
                    world % 2 ? OPTIM_STATE_8BIT : OPTIM_STATE_FP32;
            r.offload.chunk_bytes = 4096;
            const struct zero_plan *plan = build(&r);
            size_t bytes[2][OFFLOAD_PARTS + 1];
            ZD_FREED bool *apart = NULL;
            int ranks;
            apart = plan_parts_apart(plan, &ranks);
            cr_assert_eq(ranks, world);
            cr_assert(apart[0]);
            for (int rank = 0; rank < ranks; rank++) {
                measure_rank(plan, rank, bytes[rank % 2]);
                if (apart[rank])
                    continue;
                passed[k]++;
                cr_expect_arr_eq(
                        bytes[0], bytes[1], sizeof bytes[0],
                        "rank %d of %d, optimizer %d", rank, world, k);
            }
        }
    cr_expect_gt(passed[0], 100);
    cr_expect_gt(passed[1], 100);
}
