#include "comm/watch/seat.h"

#include <criterion/criterion.h>
#include <string.h>

static struct seat seat;

static struct seat_op barrier_of(uint64_t number)
{
    return (struct seat_op){
            .number = number, .kind = SEAT_BARRIER, .lane = LANE_MESSAGES};
}

static void begin(enum seat_kind kind, uint64_t number, uint32_t count)
{
    seat_begin(
            &seat, &(struct seat_op){
                           .number = number,
                           .count = count,
                           .kind = (uint8_t)kind,
                           .lane = LANE_OPERATIONS});
}

Test(seat, an_operation_is_told_with_the_group_that_is_in_it)
{
    const struct {
        struct seat_op op;
        const char *text;
    } ops[] = {
            {{.kind = SEAT_REDUCE_SCATTER, .type = DTYPE_BF16, .bytes = 77},
             "reduce_scatter (bf16, 77 bytes)"},
            {barrier_of(6), "barrier #6"},
            {{0}, "a collective"},
            {{5, 8, 4, 2, 2, SEAT_ALL_TO_ALL, 0, 0, "cp"},
             "all_to_all #5 (fp32, 8 bytes) of cp (ranks 4, 6)"},
            {{6, 0, 4, 1, 4, SEAT_BARRIER, 0, LANE_MESSAGES, "tp"},
             "barrier #6 of tp (ranks 4-7)"},
            {{6, 0, 1, 2, 4, SEAT_BARRIER, 0, LANE_MESSAGES, "shard"},
             "barrier #6 of shard (ranks 1, 3, 5, 7)"},
            {{6, 0, 0, 8, 64, SEAT_BARRIER, 0, LANE_MESSAGES, "replicate"},
             "barrier #6 of replicate (ranks 0, 8, 16, .. 504)"},
    };
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        char text[SEAT_TEXT];
        seat_op_text(&ops[i].op, text);
        cr_expect_str_eq(text, ops[i].text);
    }
}

Test(seat, the_state_of_a_rank_is_read)
{
    const struct seat_op op = {3,   0, 1, 2, 4, SEAT_BARRIER, 0, LANE_MESSAGES,
                               "cp"};
    cr_expect_eq(seat_tell(&seat).state, SEAT_RUNS);
    seat_begin(&seat, &op);
    seat_wait_begin(&seat, LANE_MESSAGES, 3);
    struct seat_told told = seat_tell(&seat);
    cr_expect_eq(told.state, SEAT_WAITS);
    cr_expect_eq(told.begun[LANE_MESSAGES], 3);
    cr_expect_eq(told.done[LANE_MESSAGES], 0);
    cr_expect_eq(memcmp(&told.waits, &op, sizeof op), 0);
    seat_wait_end(&seat);
    told = seat_tell(&seat);
    cr_expect_eq(told.state, SEAT_RUNS);
    cr_expect_eq(told.done[LANE_MESSAGES], 3);
    cr_expect_eq(told.waits.kind, SEAT_NOTHING);
}

/* What sends nothing is in no way. */
Test(seat, an_operation_that_ends_by_itself_is_waited_for_until_it_is_done)
{
    begin(SEAT_NOTHING, 1, 0);
    begin(SEAT_ALL_GATHER, 2, 2);
    begin(SEAT_NOTHING, 3, 0);
    cr_expect_eq(seat_tell(&seat).waits.kind, SEAT_NOTHING);
    seat.runs_alone = true;
    cr_expect_eq(seat_tell(&seat).waits.number, 2);
    cr_expect_eq(seat_tell(&seat).waits.count, 2);
    seat.pending_since -= 5000;
    uint64_t since = seat_tell(&seat).since;
    seat_done(&seat, 1);
    cr_expect_geq(seat_tell(&seat).since, since + 5000, "it goes on");
    seat_done(&seat, 2);
    cr_expect_eq(seat_tell(&seat).waits.kind, SEAT_NOTHING);
}

/* A wait in the middle of work is one of work. */
Test(seat, work_is_interrupted_by_waits)
{
    enum comm_work none = seat_work(&seat, WORK_EXPORT);
    enum comm_work outer = seat_work(&seat, WORK_SAVE);
    cr_expect_eq(none, WORK_NONE);
    cr_expect_eq(outer, WORK_EXPORT);
    begin(SEAT_NOTHING, 1, 0);
    seat_wait_begin(&seat, LANE_OPERATIONS, 1);
    cr_expect_eq(seat_tell(&seat).state, SEAT_WAITS);
    cr_expect_eq(seat_tell(&seat).work, WORK_SAVE);
    seat_wait_end(&seat);
    cr_expect_eq(seat_tell(&seat).state, SEAT_WORKS);
    cr_expect_eq(seat_work(&seat, outer), WORK_SAVE);
    cr_expect_eq(seat_tell(&seat).work, WORK_EXPORT);
    seat_work(&seat, none);
    cr_expect_eq(seat_tell(&seat).state, SEAT_RUNS);
}

Test(seat, a_wait_that_is_looked_after_is_told_from_one_that_is_not)
{
    uint64_t now = seat_clock();
    const struct seat_op barrier = barrier_of(3);
    seat_begin(&seat, &barrier);
    seat_wait_begin(&seat, LANE_MESSAGES, 3);
    seat.since -= 20 * 1000 * 1000;
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
