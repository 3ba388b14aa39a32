#include "plan_case.h"

#include <criterion/criterion.h>

TestSuite(zero_plan_states, .init = plan_setup, .fini = plan_teardown);

static size_t lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Bytes of the lanes of whole tensors in `format`, each from a line on. */
static size_t lane_bytes(const struct zero_plan *plan, enum optim_format format)
{
    size_t bytes = 0;
    for (int id = 0; id < fake.table.count; id++)
        for (int lane = 0; lane < OPTIM_LANES; lane++)
            if (zero_layout_of(plan, id).lane[lane] == format)
                bytes += lines(
                        optim_lane_bytes(format, fake.table.params[id].count));
    return bytes;
}

static size_t states_of(const struct zero_plan *plan)
{
    return bytes_of(plan, "zero.m") + bytes_of(plan, "zero.v") +
           bytes_of(plan, "zero.states.8bit") +
           bytes_of(plan, "zero.states.bf16");
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
            size_t narrow = bytes_of(plan, "zero.states.8bit");
            cr_expect_eq(
                    bytes_of(plan, "zero.m") + bytes_of(plan, "zero.v"),
                    lane_bytes(plan, OPTIM_FP32));
            cr_expect_eq(
                    bytes_of(plan, "zero.states.bf16"),
                    lane_bytes(plan, OPTIM_BF16));
            cr_expect_eq(narrow, lane_bytes(plan, OPTIM_8BIT));
            cr_expect_eq(
                    narrow > 0, type == OPTIM_STATE_8BIT && name < OPTIM_SGD);
            cr_expect_geq(bytes_of(plan, "zero.states.scales"), narrow / 64);
            cr_expect_eq(
                    bytes_of(plan, "zero.blocks") > 0, name == OPTIM_ADAM_MINI);
            cr_expect_eq(
                    bytes_of(plan, "zero.blocks.sums"),
                    4 * bytes_of(plan, "zero.blocks"));
            cr_expect_eq(states_of(plan) > 0, name != OPTIM_SGD);
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
        size_t codes = 0;
        for (int id = 0; id < fake.table.count; id++)
            if (zero_layout_of(plan, id).lane[OPTIM_M] == OPTIM_8BIT)
                codes += 2 * fake.table.params[id].count;
        cr_expect_geq(
                bytes_of(plan, "zero.states.8bit") * (size_t)world, codes);
        cr_expect_lt(bytes_of(plan, "zero.states.8bit"), codes);
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
    cr_expect_gt(bytes_of(plan, "zero.m"), 0);
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
