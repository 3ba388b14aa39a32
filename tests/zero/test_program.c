#include "plan_case.h"

#include <criterion/criterion.h>
#include <string.h>

/* At stage 3, on four ranks. */
static struct zero_request program(int layers, bool tied, int accumulation)
{
    static bool is_there;
    if (is_there)
        plan_teardown();
    is_there = true;
    shape = (struct fake_shape){.layers = layers, .tied = tied, .scale = 1};
    plan_setup();
    struct zero_request r = request(3, 4, accumulation);
    r.dtype = DTYPE_FP32;
    return r;
}

TestSuite(zero_program, .fini = plan_teardown);

static size_t unit_bytes(const struct zero_plan *plan, int unit)
{
    size_t bytes = 0;
    for (int s = 0; s < plan->segment_count; s++)
        if (plan->segments[s].unit == unit)
            bytes += zero_segment_bytes(
                    &plan->segments[s], plan->segments[s].count);
    return bytes;
}

static int gathers(const struct zero_move *moves, int count)
{
    int gathered = 0;
    for (int i = 0; i < count; i++)
        gathered += moves[i].gather;
    return gathered;
}

/* Replay a program against the slots: what is acquired is in its slot, nothing
 * is overwritten while it is held or still to be used without a new gather, and
 * gathers begin in the order of their use. */
static void check_moves(
        const struct zero_plan *plan, const struct zero_move *moves, int count)
{
    int content[64], held[64] = {0};
    memset(content, -1, sizeof content);
    int next = 0, last = -1;
    for (int i = -1; i < count; i++) {
        if (i >= 0 && moves[i].acquire && moves[i].slot >= 0) {
            while (next <= i && (!moves[next].gather || next == i)) {
                if (moves[next].gather) {
                    cr_assert_eq(held[moves[next].slot], 0);
                    content[moves[next].slot] = moves[next].unit;
                }
                next++;
            }
            cr_assert_gt(next, i, "move %d was not gathered in time", i);
            cr_assert_eq(content[moves[i].slot], moves[i].unit);
            cr_assert_leq(
                    unit_bytes(plan, moves[i].unit),
                    plan->slots[moves[i].slot].bytes);
            held[moves[i].slot]++;
        } else if (i >= 0 && !moves[i].acquire) {
            for (int s = 0; s < plan->outer_slots + plan->layer_slots; s++)
                if (content[s] == moves[i].unit)
                    held[s] = 0;
        }
        while (next < count &&
               (!moves[next].gather || moves[next].start <= i)) {
            const struct zero_move *move = &moves[next++];
            if (!move->gather)
                continue;
            cr_assert_geq(move->start, last);
            last = move->start;
            cr_assert_eq(held[move->slot], 0);
            content[move->slot] = move->unit;
        }
    }
}

static void check_plan(const struct zero_plan *plan)
{
    check_moves(plan, plan->train_moves, plan->train_move_count);
    check_moves(plan, plan->eval_moves, plan->eval_move_count);
}

Test(zero_program, every_unit_is_in_its_slot_when_it_is_used)
{
    static const int64_t sizes[] = {0, 1, 3000, 6000, 1 << 30};
    for (int variant = 0; variant < 2 * 2 * 4; variant++) {
        struct zero_request r =
                program(1 + variant % 4 * 3, variant & 4, variant & 8 ? 3 : 1);
        for (int k = 0; k < 5 * 2; k++) {
            r.options.prefetch_bucket_size = sizes[k % 5];
            r.options.overlap_comm = k / 5;
            r.checkpointing.mode =
                    k % 3 ? CHECKPOINTING_SQRT : CHECKPOINTING_NONE;
            const struct zero_plan *plan = build(&r);
            check_plan(plan);
        }
    }
}

Test(zero_program, units_are_kept_as_the_options_say)
{
    static const struct {
        const char *what;
        int layers, micros, every; /* checkpointing */
        int64_t prefetch;
        int layer_slots, outer_slots, gathers;
    } cases[] = {
            /* forward: all; backward: all but those that are still there */
            {"two layers at a time", 9, 1, 0, 0, 2, 1, 2 + 9 + 7},
            {"all layers ahead", 6, 4, 0, 1 << 30, 6, 1, 6 + 4 * 2},
            {"segments that are recomputed", 9, 1, 3, 0, 4, 1, 2 + 9 + 5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct zero_request r =
                program(cases[i].layers, false, cases[i].micros);
        r.options.prefetch_bucket_size = cases[i].prefetch;
        if (cases[i].every)
            r.checkpointing = (struct checkpointing){
                    .mode = CHECKPOINTING_EVERY, .every = cases[i].every};
        const struct zero_plan *plan = build(&r);
        cr_expect_eq(
                plan->layer_slots, cases[i].layer_slots, "%s", cases[i].what);
        cr_expect_eq(plan->outer_slots, cases[i].outer_slots);
        cr_expect_eq(
                gathers(plan->train_moves, plan->train_move_count),
                cases[i].gathers, "%s: %d", cases[i].what,
                gathers(plan->train_moves, plan->train_move_count));
        cr_expect_gt(sent(plan).bytes[COMM_ALL_GATHER], 0);
        if (i == 0)
            cr_expect_eq(
                    gathers(plan->eval_moves, plan->eval_move_count), 2 + 9);
    }
}

Test(zero_program, the_next_layer_is_gathered_while_one_computes)
{
    struct zero_request r = program(6, false, 1);
    const struct zero_plan *plan = build(&r);
    int ahead = 0;
    for (int i = 0; i < plan->train_move_count; i++) {
        const struct zero_move *move = &plan->train_moves[i];
        ahead += move->gather && move->start < i - 1;
    }
    cr_expect_eq(
            ahead, gathers(plan->train_moves, plan->train_move_count) - 1,
            "%d gathers are early", ahead);
    r.options.overlap_comm = false;
    plan = build(&r);
    for (int i = 0; i < plan->train_move_count; i++)
        if (plan->train_moves[i].gather)
            cr_expect_eq(plan->train_moves[i].start, i);
    cr_expect_eq(plan->layer_slots, 1);
}

Test(zero_program, a_tied_head_finds_the_embedding_where_it_was)
{
    struct zero_request r = program(5, true, 3);
    const struct zero_plan *plan = build(&r);
    int embeddings = 0;
    for (int i = 0; i < plan->train_move_count; i++)
        embeddings +=
                plan->train_moves[i].gather && plan->train_moves[i].unit == 0;
    cr_expect_eq(plan->outer_slots, 2);
    cr_expect_eq(plan->slots[0].bytes, unit_bytes(plan, 0));
    cr_expect_eq(plan->slots[1].bytes, unit_bytes(plan, 6));
    cr_expect_eq(embeddings, 1);
}
