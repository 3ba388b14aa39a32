#include "comm/watch/verdict.h"

#include <criterion/criterion.h>
#include <string.h>

/* Four ranks; rank 0 has waited for barrier #7 for 12 s, 10 are allowed. */
enum { RANKS = 4, NUMBER = 7 };

static struct rank_known ranks[RANKS];
static struct verdict_ask ask;
static struct verdict verdict;

static struct seat_told *told(int rank)
{
    return &ranks[rank].told;
}

static void setup(void)
{
    for (int r = 0; r < RANKS; r++) {
        ranks[r].told = (struct seat_told){
                .begun = {NUMBER, NUMBER},
                .done = {NUMBER - 1, NUMBER - 1},
                .waits = {.kind = SEAT_BARRIER, .number = NUMBER},
                .step = 3,
                .silent_ms = 12000,
                .state = SEAT_WAITS};
        ranks[r].heard = ranks[r].ever_heard = true;
    }
    ask = (struct verdict_ask){
            .rank = 0,
            .size = RANKS,
            .seconds = 12,
            .limit = 10,
            .ranks = ranks};
}

TestSuite(verdict, .init = setup);

/* A rank that computes, and gave its last sign so long ago. */
static void compute(int rank, uint32_t silent_ms)
{
    told(rank)->begun[0] = told(rank)->done[0] = NUMBER - 1;
    told(rank)->waits.kind = SEAT_NOTHING;
    told(rank)->state = SEAT_RUNS;
    told(rank)->silent_ms = silent_ms;
}

static void expect(int rank)
{
    cr_assert(verdict_find(&ask, &verdict));
    cr_expect_eq(verdict.rank, rank, "rank %d", verdict.rank);
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
    ranks[3].heard = false;
    expect(3);
}

Test(verdict, a_rank_that_never_answered_counts_as_doing_the_same_work)
{
    ranks[3].heard = ranks[3].ever_heard = false;
    told(0)->work = WORK_SAVE;
    cr_expect_not(verdict_find(&ask, &verdict));
    told(0)->work = WORK_NONE;
    expect(3);
}

Test(verdict, work_in_progress_is_waited_for)
{
    compute(2, 500000);
    told(2)->state = SEAT_WORKS;
    told(2)->work = WORK_SAVE;
    cr_expect_not(verdict_find(&ask, &verdict));
    told(1)->begun[0]--; /* and waits for rank 2 elsewhere */
    told(1)->waits.number--;
    cr_expect_not(verdict_find(&ask, &verdict));
    ranks[2].heard = false;
    expect(2);
}

Test(verdict, work_that_reports_progress_must_keep_reporting)
{
    compute(2, 99000);
    told(2)->state = SEAT_WORKS;
    told(2)->work = WORK_EVALUATE;
    cr_expect_not(verdict_find(&ask, &verdict));
    compute(2, 101000);
    told(2)->state = SEAT_WORKS;
    expect(2);
}

Test(verdict, where_all_wait_the_link_is_down)
{
    told(1)->done[0]--;
    expect(1);
    told(3)->silent_ms = 9000; /* it came late */
    cr_expect_not(verdict_find(&ask, &verdict));
}

Test(verdict, a_rank_that_entered_and_does_not_wait_is_named)
{
    told(3)->state = SEAT_RUNS;
    told(3)->waits.kind = SEAT_NOTHING;
    expect(3);
}

/* As one that loops in a signal's handler, or in a call of MPI. */
Test(verdict, a_rank_that_does_not_poll_is_named)
{
    for (int r = 1; r < 4; r++)
        told(r)->begun[0] = told(r)->done[0] = NUMBER - 1;
    expect(1);
    told(3)->poll_ms = 11000;
    expect(3);
}

Test(verdict, a_rank_that_does_not_poll_blames_itself)
{
    expect(1);
    told(0)->poll_ms = 11000;
    expect(0);
    ranks[2].heard = false;
    expect(2);
}

Test(verdict, in_the_ranks_end_those_that_have_left_are_not_waited_for)
{
    for (int r = 0; r < RANKS; r++)
        told(r)->waits.kind = SEAT_PART;
    told(1)->state = told(3)->state = SEAT_LEFT;
    ranks[3].heard = false; /* its process too */
    expect(2);
    told(2)->state = SEAT_LEFT;
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
    ranks[0].heard = false;
    expect(0);
    cr_expect_eq(verdict.writer, 1);
}

/* --- ranks in groups ------------------------------------------------------ */

/* A mesh of up to 16 ranks; all begin the same operations in the same order,
 * each in one of its three groups or in all ranks, and wait for each some
 * operations later. By themselves: operations end in their order, and the host
 * waits when so many are under way. One rank stops somewhere. */
enum { MOST = 16, ROLES = 4, OPS = 60 };

struct world {
    int size, sizes[3]; /* of the groups, innermost first */
    int role[OPS];
    int ahead; /* operations that are begun before a wait */
    bool by_themselves;
    int stops, at;                          /* which rank, before which event */
    int begun[MOST], done[MOST], at_[MOST]; /* events that it got to */
};

static unsigned seed = 1;

static int draw(int below)
{
    return (int)((unsigned)rand_r(&seed) % (unsigned)below);
}

static struct seat_op op_of(const struct world *w, int rank, int i)
{
    int stride = 1, role = w->role[i];
    struct seat_op op = {.kind = SEAT_ALL_GATHER, .number = (uint64_t)i + 1};
    if (role == 3)
        return op;
    for (int r = 0; r < role; r++)
        stride *= w->sizes[r];
    int place = rank / stride % w->sizes[role];
    op.first = (uint32_t)(rank - place * stride);
    op.stride = (uint32_t)stride;
    op.count = (uint32_t)w->sizes[role];
    return op;
}

/* Has every rank of its group begun it, and ended what comes before? */
static bool is_met(const struct world *w, int rank, int i)
{
    struct seat_op op = op_of(w, rank, i);
    int count = op.count ? (int)op.count : w->size;
    for (int p = 0; p < count; p++) {
        int r = op.count ? (int)(op.first + (unsigned)p * op.stride) : p;
        if (w->begun[r] <= i || (w->by_themselves && w->done[r] < i))
            return false;
    }
    return true;
}

/* False: the rank cannot go on. */
static bool move(struct world *w, int rank)
{
    int next = w->begun[rank], oldest = w->done[rank];
    bool may_end = oldest < next && is_met(w, rank, oldest);
    if (w->by_themselves && may_end)
        return ++w->done[rank], true;
    if (rank == w->stops && w->at_[rank] == w->at)
        return false;
    if (next - oldest <= w->ahead && next < OPS)
        return ++w->begun[rank], ++w->at_[rank], true;
    if (!may_end)
        return false;
    return ++w->done[rank], ++w->at_[rank], true;
}

static struct world world_of(bool by_themselves)
{
    static const int sizes[][3] = {{2, 2, 2}, {2, 2, 4}, {4, 2, 1},
                                   {1, 8, 2}, {3, 1, 5}, {2, 1, 1}};
    struct world w = {
            .by_themselves = by_themselves,
            .ahead = draw(4),
            .at = draw(OPS / 2)};
    memcpy(w.sizes, sizes[draw(sizeof sizes / sizeof *sizes)], sizeof w.sizes);
    w.size = w.sizes[0] * w.sizes[1] * w.sizes[2];
    w.stops = draw(w.size);
    for (int i = 0; i < OPS; i++)
        w.role[i] = i % 8 == 7 ? 3 : draw(ROLES);
    for (bool moves = true; moves;) {
        moves = false;
        for (int tries = 0; tries < 4 * w.size; tries++)
            moves |= move(&w, draw(w.size));
        for (int r = 0; r < w.size; r++)
            moves |= move(&w, r);
    }
    return w;
}

/* All stand still: what each tells. */
static void tell(const struct world *w, struct rank_known *all, bool is_silent)
{
    for (int r = 0; r < w->size; r++) {
        bool under_way = w->done[r] < w->begun[r];
        bool waits = r != w->stops && !w->by_themselves;
        all[r].told = (struct seat_told){
                .begun = {(uint64_t)w->begun[r]},
                .done = {(uint64_t)w->done[r]},
                .silent_ms = 12000,
                .state = waits ? SEAT_WAITS : SEAT_RUNS};
        if (under_way && (waits || w->by_themselves))
            all[r].told.waits = op_of(w, r, w->done[r]);
        all[r].heard = r != w->stops || !is_silent;
        all[r].ever_heard = true;
    }
}

static void expect_stopped(const struct world *w, bool is_silent)
{
    struct rank_known all[MOST];
    struct verdict_ask in_mesh = ask;
    tell(w, all, is_silent);
    in_mesh.size = w->size;
    in_mesh.ranks = all;
    for (int r = 0; r < w->size; r++) {
        if (r == w->stops || !all[r].told.waits.kind)
            continue;
        in_mesh.rank = r;
        cr_assert(verdict_find(&in_mesh, &verdict), "rank %d asks", r);
        cr_assert_eq(
                verdict.rank, w->stops, "rank %d asks: %d is named, not %d", r,
                verdict.rank, w->stops);
        /* as long as it gives signs, no one hangs */
        all[w->stops].told.silent_ms = 9000;
        cr_assert_eq(verdict_find(&in_mesh, &verdict), is_silent);
        all[w->stops].told.silent_ms = 12000;
    }
}

Test(verdict, the_rank_that_stopped_is_named_whoever_waits_for_whom)
{
    int asked = 0;
    for (int i = 0; i < 4000; i++) {
        struct world w = world_of(i % 2);
        bool has_gpu_work =
                w.by_themselves && w.done[w.stops] < w.begun[w.stops];
        if (has_gpu_work) /* its GPU waits for the others as well */
            continue;
        expect_stopped(&w, i % 4 < 2);
        asked++;
    }
    cr_expect_gt(asked, 2500, "%d", asked);
}

/* Rank 0 waits for 1 in one group, which waits for 3 in another; 2 is behind
 * too, and its group is not in the way. */
Test(verdict, a_rank_of_another_group_is_not_named_for_being_behind)
{
    told(0)->waits = (struct seat_op){
            NUMBER, 0, 0, 1, 2, SEAT_BARRIER, 0, LANE_OPERATIONS, ""};
    told(1)->begun[0] = 5;
    told(1)->waits = (struct seat_op){
            5, 0, 1, 2, 2, SEAT_BARRIER, 0, LANE_OPERATIONS, "cp"};
    compute(2, 500000);
    told(2)->begun[0] = 1;
    compute(3, 12000);
    told(3)->begun[0] = 4;
    expect(3);
    cr_expect_eq(verdict.op.number, 5, "what rank 1 waits for");
    cr_expect_str_eq(verdict.op.group, "cp");
    cr_expect_eq(verdict.op.first, 1);
    cr_expect_not(verdict.has_entered);
    compute(3, 9000);
    cr_expect_not(verdict_find(&ask, &verdict));
}
