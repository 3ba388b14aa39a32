#include "plan_case.h"

#include <criterion/criterion.h>

TestSuite(zero_plan_states, .init = plan_setup, .fini = plan_teardown);

static size_t lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Bytes of the lanes of whole tensors, and of their scales, each from a line
 * on. */
static size_t all_bytes(const struct zero_plan *plan)
{
    size_t bytes = 0;
    for (int id = 0; id < fake.table.count; id++)
        for (int lane = 0; lane < OPTIM_LANES; lane++) {
            enum optim_format format = zero_layout_of(plan, id).lane[lane];
            size_t count = fake.table.params[id].count;
            bytes += lines(optim_lane_bytes(format, count)) +
                     lines(4 * optim_scale_count(format, count));
        }
    return bytes;
}

Test(zero_plan_states, one_rank_takes_the_bytes_of_its_formats)
{
    plan_teardown();
    shape.scale = 12; /* tensors above and below 4096 elements */
    plan_setup();
    for (enum optim_name name = OPTIM_ADAMW; name <= OPTIM_SGD; name++)
        for (enum optim_state_type type = OPTIM_STATE_FP32;
             type <= OPTIM_STATE_8BIT; type++) {
            struct zero_request r = request(3, 1, 1);
            r.optim = optim_options_default();
            r.optim.name = name;
            r.optim.state_type = type;
            const struct zero_plan *plan = build(&r);
            cr_expect_eq(bytes_of(plan, "zero.states"), all_bytes(plan));
            cr_expect_eq(
                    bytes_of(plan, "zero.blocks") > 0, name == OPTIM_ADAM_MINI);
            cr_expect_eq(
                    bytes_of(plan, "zero.blocks.sums"),
                    4 * bytes_of(plan, "zero.blocks"));
            cr_expect_eq(bytes_of(plan, "zero.states") > 0, name != OPTIM_SGD);
        }
    shape.scale = 1;
}

/* A span is that of the rank that needs most: no less than the mean, and the
 * same on every rank, whatever tensors fall to it. */
Test(zero_plan_states, spans_of_states_hold_any_ranks_part)
{
    plan_teardown();
    shape.scale = 12;
    plan_setup();
    for (int world = 2; world <= 8; world++) {
        struct zero_request r = request(world % 3 + 1, world, 1);
        r.optim = optim_options_default();
        r.optim.state_type = OPTIM_STATE_8BIT;
        const struct zero_plan *plan = build(&r);
        size_t all = all_bytes(plan);
        cr_expect_geq(bytes_of(plan, "zero.states") * (size_t)world, all);
        cr_expect_lt(bytes_of(plan, "zero.states"), all);
    }
    shape.scale = 1;
}

Test(zero_plan_states, block_sums_are_on_the_wire_where_states_are_cut)
{
    for (int stage = 0; stage <= 3; stage++) {
        struct zero_request r = request(stage, 3, 1);
        r.optim.name = OPTIM_ADAM_MINI;
        const struct zero_plan *plan = build(&r);
        cr_assert_gt(plan->block_count, 0);
        cr_expect_eq(
                sent(plan).bytes[COMM_ALL_REDUCE],
                zero_scalar_bytes(3) +
                        (stage ? comm_all_reduce_bytes(3, 2 * plan->block_count)
                               : 0));
    }
}

Test(zero_plan_states, without_masters_the_parameters_are_updated)
{
    struct zero_request r = request(1, 4, 1);
    r.optim.master = OPTIM_MASTER_NONE;
    const struct zero_plan *plan = build(&r);
    cr_expect_eq(bytes_of(plan, "zero.master"), 0);
    cr_expect_gt(bytes_of(plan, "zero.states"), 0);
}

Test(zero_plan_states, fp32_parameters_are_their_own_master)
{
    for (int stage = 0; stage <= 3; stage++) {
        struct zero_request r = request(stage, 3, 1);
        r.dtype = DTYPE_FP32;
        const struct zero_plan *plan = build(&r);
        cr_expect_eq(bytes_of(plan, "zero.master"), 0);
        cr_expect_eq(bytes_of(plan, "zero.grads.work") > 0, stage >= 2);
    }
}

Test(zero_plan_states, frozen_tensors_have_their_parameters_alone)
{
    struct zero_request r = request(1, 4, 1);
    const struct zero_plan *plan = build(&r);
    size_t frozen = all(plan) - trainable(plan);
    cr_expect_gt(frozen, 0);
    cr_expect_eq(bytes_of(plan, "zero.params.frozen"), 2 * frozen);
    cr_expect_eq(bytes_of(plan, "zero.master"), 4 * trainable(plan) / 4);
}
