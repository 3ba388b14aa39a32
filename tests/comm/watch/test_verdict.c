#include "comm/watch/verdict.h"

#include <criterion/criterion.h>
#include <string.h>

/* Four ranks; rank 0 has waited for barrier #7 for 12 s, 10 are allowed. */
enum { RANKS = 4, NUMBER = 7 };

static struct seat_told told[RANKS];
static bool heard[RANKS], ever[RANKS];
static struct verdict_ask ask;
static struct verdict verdict;

static void setup(void)
{
    uint64_t word = seat_word(SEAT_BARRIER, DTYPE_FP32, 0);
    for (int r = 0; r < RANKS; r++) {
        told[r] = (struct seat_told){
                .begun = NUMBER,
                .done = NUMBER - 1,
                .waits = word,
                .silent_ms = 12000,
                .state = SEAT_WAITS};
        heard[r] = ever[r] = true;
    }
    ask = (struct verdict_ask){
            .rank = 0,
            .number = NUMBER,
            .word = word,
            .step = 3,
            .seconds = 12,
            .limit = 10,
            .size = RANKS,
            .told = told,
            .heard = heard,
            .ever_heard = ever};
}

TestSuite(verdict, .init = setup);

/* A rank that computes, and gave its last sign so long ago. */
static void compute(int rank, uint32_t silent_ms)
{
    told[rank].begun = told[rank].done = NUMBER - 1;
    told[rank].waits = 0;
    told[rank].state = SEAT_RUNS;
    told[rank].silent_ms = silent_ms;
}

static void expect(int rank)
{
    cr_assert(verdict_find(&ask, &verdict));
    cr_expect_eq(verdict.rank, rank, "rank %d", verdict.rank);
    cr_expect(verdict_is_known(&verdict, RANKS));
}

Test(verdict, a_rank_in_an_endless_loop_is_named)
{
    compute(2, 12000);
    expect(2);
    cr_expect_eq(verdict.step, 3);
    cr_expect_eq(verdict.exit_code, 75);
}

Test(verdict, a_rank_with_recent_progress_is_waited_for)
{
    compute(2, 12000);
    compute(3, 9000);
    cr_expect_not(verdict_find(&ask, &verdict));
    compute(3, 10001);
    cr_expect(verdict_find(&ask, &verdict));
}

Test(verdict, a_silent_process_is_blamed_first)
{
    compute(1, 12000);
    heard[3] = false;
    expect(3);
}

Test(verdict, a_rank_that_never_answered_counts_as_doing_the_same_work)
{
    heard[3] = ever[3] = false;
    ask.work = WORK_SAVE;
    cr_expect_not(verdict_find(&ask, &verdict));
    ask.work = WORK_NONE;
    expect(3);
}

Test(verdict, work_in_progress_is_waited_for)
{
    compute(2, 500000);
    told[2].state = SEAT_WORKS;
    told[2].work = WORK_SAVE;
    cr_expect_not(verdict_find(&ask, &verdict));
    told[1].begun--; /* and waits for rank 2 elsewhere */
    cr_expect_not(verdict_find(&ask, &verdict));
    heard[2] = false;
    expect(2);
}

Test(verdict, work_that_reports_progress_must_keep_reporting)
{
    compute(2, 99000);
    told[2].state = SEAT_WORKS;
    told[2].work = WORK_EVALUATE;
    cr_expect_not(verdict_find(&ask, &verdict));
    compute(2, 101000);
    told[2].state = SEAT_WORKS;
    expect(2);
}

Test(verdict, where_all_wait_the_link_is_down)
{
    told[1].done--;
    expect(1);
    told[3].silent_ms = 9000; /* it came late */
    cr_expect_not(verdict_find(&ask, &verdict));
}

Test(verdict, a_rank_that_entered_and_does_not_wait_is_named)
{
    told[3].state = SEAT_RUNS;
    told[3].waits = 0;
    expect(3);
}

/* As one that loops in a signal's handler, or in a call of MPI. */
Test(verdict, a_rank_that_does_not_poll_is_named)
{
    for (int r = 1; r < 4; r++)
        told[r].begun = told[r].done = NUMBER - 1;
    expect(1);
    told[3].poll_ms = 11000;
    expect(3);
}

Test(verdict, a_rank_that_does_not_poll_blames_itself)
{
    expect(1);
    told[0].poll_ms = 11000;
    expect(0);
    heard[2] = false;
    expect(2);
}

Test(verdict, in_the_ranks_end_those_that_have_left_are_not_waited_for)
{
    ask.word = seat_word(SEAT_PART, DTYPE_FP32, 0);
    told[1].state = told[3].state = SEAT_LEFT;
    heard[3] = false; /* its process too */
    expect(2);
    told[2].state = SEAT_LEFT;
    expect(0);
}

Test(verdict, a_rank_alone_is_not_to_blame)
{
    ask.size = 1;
    cr_expect_not(verdict_find(&ask, &verdict));
}

Test(verdict, rank_0_writes_or_the_next_whose_process_runs)
{
    ask.rank = 1;
    compute(3, 12000);
    expect(3);
    cr_expect_eq(verdict.writer, 0);
    heard[0] = false;
    expect(0);
    cr_expect_eq(verdict.writer, 1);
}

Test(verdict, a_datagram_may_hold_any)
{
    struct verdict wild;
    memset(&wild, 0xff, sizeof wild);
    cr_expect_not(verdict_is_known(&wild, RANKS));
    compute(2, 12000);
    cr_assert(verdict_find(&ask, &verdict));
    verdict.rank = RANKS;
    cr_expect_not(verdict_is_known(&verdict, RANKS));
}
