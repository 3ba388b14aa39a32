#include "comm/watch/seat.h"

#include <criterion/criterion.h>

Test(seat, an_operation_is_told_with_the_group_that_is_in_it)
{
    const uint64_t sum = seat_word(SEAT_REDUCE_SCATTER, DTYPE_BF16, 77);
    const uint64_t exchange = seat_word(SEAT_ALL_TO_ALL, DTYPE_FP32, 8);
    const uint64_t barrier = seat_word(SEAT_BARRIER, DTYPE_FP32, 0);
    const struct {
        const char *group;
        struct seat_op op; /* but for the group's name */
        const char *text;
    } ops[] = {
            {"", {.word = sum}, "reduce_scatter (bf16, 77 bytes)"},
            {"", {.word = barrier, .number = 6}, "barrier #6"},
            {"", {0}, "a collective"},
            {"cp",
             {exchange, 5, 0, 0, 4, 2, 2},
             "all_to_all #5 (fp32, 8 bytes) of cp (ranks 4, 6)"},
            {"tp", {barrier, 6, 0, 0, 4, 1, 4}, "barrier #6 of tp (ranks 4-7)"},
            {"shard",
             {barrier, 6, 0, 0, 1, 2, 4},
             "barrier #6 of shard (ranks 1, 3, 5, 7)"},
            {"replicate",
             {barrier, 6, 0, 0, 0, 8, 64},
             "barrier #6 of replicate (ranks 0, 8, 16, .. 504)"},
            {"mine",
             {barrier, 6, 0, 0, 0, 1, 2},
             "barrier #6 of a group (ranks 0, 1)"},
    };
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        struct seat_op op = ops[i].op;
        char text[SEAT_TEXT];
        op.group = (uint16_t)seat_group(ops[i].group);
        seat_op_text(&op, text);
        cr_expect_str_eq(text, ops[i].text);
    }
}

/* A datagram may hold any: none may be taken for the number of a name. */
Test(seat, words_of_unknown_kind_or_type_are_rejected)
{
    for (uint64_t kind = 0; kind < 256; kind++)
        for (uint64_t type = 0; type < 256; type++) {
            bool has_type = kind <= SEAT_ALL_TO_ALL;
            bool is_one = kind >= SEAT_ALL_GATHER && kind < SEAT_KINDS;
            cr_expect_eq(
                    seat_word_is_known(kind << 56 | type << 48 | 5),
                    is_one && type < (has_type ? 3 : 1), "kind %d type %d",
                    (int)kind, (int)type);
        }
}

Test(seat, invalid_values_of_a_datagram_are_cleared)
{
    uint64_t word = seat_word(SEAT_BARRIER, DTYPE_FP32, 0);
    const struct {
        struct seat_op op;
        bool is_kept;
    } ops[] = {
            {{word, 7, LANE_MESSAGES, 0, 0, 0, 0}, true},
            {{word, 7, LANE_OPERATIONS, 3, 1, 2, 4}, true}, /* 1 3 5 7 of 8 */
            {{~0ull, 7, LANE_MESSAGES, 0, 0, 0, 0}, false},
            {{word, 7, SEAT_LANES, 0, 0, 0, 0}, false},
            {{word, 7, LANE_MESSAGES, 60000, 0, 0, 0}, false},
            {{word, 7, LANE_MESSAGES, 0, 2, 2, 4}, false},
            {{word, 7, LANE_MESSAGES, 0, 0, 0, 2}, false},
            {{word, 7, LANE_MESSAGES, 0, ~0u, 1, 2}, false},
            {{word, 7, LANE_MESSAGES, 0, 0, ~0u, ~0u}, false},
    };
    struct seat_told told = {.state = 200, .work = 200};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        told.waits = ops[i].op;
        seat_told_check(&told, 8);
        cr_expect_eq(
                told.waits.word, ops[i].is_kept ? word : 0, "operation %zu", i);
    }
    cr_expect_lt(told.state, SEAT_STATES);
    cr_expect_lt(told.work, WORKS);
}

Test(seat, the_state_of_a_rank_is_read)
{
    static struct seat seat;
    uint64_t word = seat_word(SEAT_BARRIER, DTYPE_FP32, 0);
    cr_expect_eq(seat_look(&seat).state, SEAT_RUNS);
    seat_begin(
            &seat, LANE_MESSAGES, 3, word, seat_row(seat_group("cp"), 1, 2, 4));
    seat_wait_begin(&seat, LANE_MESSAGES, 3);
    struct seat_told told = seat_tell(&seat);
    cr_expect_eq(told.state, SEAT_WAITS);
    cr_expect_eq(told.begun[LANE_MESSAGES], 3);
    cr_expect_eq(told.done[LANE_MESSAGES], 0);
    cr_expect_eq(told.waits.word, word);
    cr_expect_eq(told.waits.number, 3);
    cr_expect_eq(told.waits.lane, LANE_MESSAGES);
    cr_expect_eq(told.waits.first, 1);
    cr_expect_eq(told.waits.stride, 2);
    cr_expect_eq(told.waits.count, 4);
    cr_expect_eq(told.waits.group, seat_group("cp"));
    seat_wait_end(&seat);
    told = seat_tell(&seat);
    cr_expect_eq(told.state, SEAT_RUNS);
    cr_expect_eq(told.done[LANE_MESSAGES], 3);
    cr_expect_eq(told.waits.word, 0);
}

/* What sends nothing is in no way. */
Test(seat, an_operation_that_ends_by_itself_is_waited_for_until_it_is_done)
{
    static struct seat seat;
    uint64_t word = seat_word(SEAT_ALL_GATHER, DTYPE_FP32, 8);
    seat_begin(&seat, LANE_OPERATIONS, 1, 0, 0);
    seat_begin(&seat, LANE_OPERATIONS, 2, word, seat_row(0, 0, 1, 2));
    seat_begin(&seat, LANE_OPERATIONS, 3, 0, 0);
    cr_expect_eq(seat_tell(&seat).waits.word, 0);
    atomic_store(&seat.runs_alone, true);
    cr_expect_eq(seat_tell(&seat).waits.number, 2);
    cr_expect_eq(seat_tell(&seat).waits.count, 2);
    atomic_store(&seat.lanes[LANE_OPERATIONS].done, 2);
    cr_expect_eq(seat_tell(&seat).waits.word, 0);
}

/* A wait in the middle of work is one of work. */
Test(seat, work_is_interrupted_by_waits)
{
    static struct seat seat;
    enum comm_work none = seat_work(&seat, WORK_EXPORT);
    enum comm_work outer = seat_work(&seat, WORK_SAVE);
    cr_expect_eq(none, WORK_NONE);
    cr_expect_eq(outer, WORK_EXPORT);
    seat_begin(&seat, LANE_OPERATIONS, 1, 0, 0);
    seat_wait_begin(&seat, LANE_OPERATIONS, 1);
    cr_expect_eq(seat_look(&seat).state, SEAT_WAITS);
    cr_expect_eq(seat_look(&seat).work, WORK_SAVE);
    seat_wait_end(&seat);
    cr_expect_eq(seat_look(&seat).state, SEAT_WORKS);
    cr_expect_eq(seat_work(&seat, outer), WORK_SAVE);
    cr_expect_eq(seat_look(&seat).work, WORK_EXPORT);
    seat_work(&seat, none);
    cr_expect_eq(seat_look(&seat).state, SEAT_RUNS);
}

Test(seat, a_wait_that_is_looked_after_is_told_from_one_that_is_not)
{
    static struct seat seat;
    uint64_t now = seat_clock();
    seat_begin(
            &seat, LANE_MESSAGES, 3, seat_word(SEAT_BARRIER, DTYPE_FP32, 0), 0);
    seat_wait_begin(&seat, LANE_MESSAGES, 3);
    atomic_store(&seat.doing, atomic_load(&seat.doing) - 20 * 1000 * 1000);
    cr_expect_eq(seat_tell(&seat).poll_ms, 0);
    seat_polls(&seat, now - 30 * 1000 * 1000); /* in an earlier wait */
    cr_expect_geq(seat_tell(&seat).poll_ms, 20000);
    cr_expect_lt(seat_tell(&seat).poll_ms, 30000);
    seat_polls(&seat, now - 9 * 1000 * 1000);
    cr_expect_geq(seat_tell(&seat).poll_ms, 9000);
    cr_expect_lt(seat_tell(&seat).poll_ms, 20000);
    seat_wait_end(&seat);
    cr_expect_eq(seat_tell(&seat).poll_ms, 0);
}
