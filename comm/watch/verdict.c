#include "comm/watch/verdict.h"

/* Work that reports its own progress may take this many limits between two
 * reports. */
static const double WORK_TIMES = 10;

/* The state of a rank that others wait for. The worst state explains the
 * others: stopped or gone, then running, then waiting. */
enum standing {
    STANDS_WELL,    /* makes progress: waiting for it is no hang */
    STANDS_WAITING, /* waits for others, or its link is down */
    STANDS_RUNNING,
    STANDS_WORKING, /* runs without progress */
    STANDS_GONE,
    STANDS_SILENT /* its process is stopped or gone, or its host or link is */
};

static bool is_late(
        const struct verdict_ask *ask, const struct seat_op *op, int rank)
{
    const struct rank_known *known = &ask->ranks[rank];
    return !known->heard || known->told.begun[op->lane] < op->number;
}

/* When ranks finish: a rank that has left, even if its process is gone, is
 * done. */
static bool has_parted(
        const struct verdict_ask *ask, const struct seat_op *op, int rank)
{
    const struct rank_known *known = &ask->ranks[rank];
    return op->kind == SEAT_PART &&
           (known->heard ? known->told.state == SEAT_LEFT : known->ever_heard);
}

/* A waiting rank polls every millisecond; half of the limit is allowed, since
 * it may have stopped some time after its wait began. */
static bool looks(const struct verdict_ask *ask, int rank)
{
    return ask->ranks[rank].told.poll_ms <= 500 * ask->limit;
}

static enum standing stands(const struct verdict_ask *ask, int rank)
{
    const struct rank_known *known = &ask->ranks[rank];
    const struct seat_told *told = &known->told;
    double limit_ms = 1000 * ask->limit;
    /* If ranks cannot query each other, assume that all do the same work as
     * this rank: all ranks do such work together. */
    if (!known->heard)
        return known->ever_heard || ask->ranks[ask->rank].told.work == WORK_NONE
                       ? STANDS_SILENT
                       : STANDS_WELL;
    if (told->state == SEAT_LEFT)
        return STANDS_GONE;
    if (told->state == SEAT_WORKS) {
        bool reports = told->work == WORK_EVALUATE || told->work == WORK_SAMPLE;
        return reports && told->silent_ms > WORK_TIMES * limit_ms
                       ? STANDS_WORKING
                       : STANDS_WELL;
    }
    if (told->silent_ms <= limit_ms)
        return STANDS_WELL;
    return told->waits.kind && looks(ask, rank) ? STANDS_WAITING
                                                : STANDS_RUNNING;
}

static const struct seat_op *op_of(const struct verdict_ask *ask, int rank)
{
    return &ask->ranks[rank].told.waits;
}

/* Of two ranks in the same state, whether `a` is further behind. */
static bool is_behind(const struct verdict_ask *ask, int a, int b)
{
    const struct seat_told *first = &ask->ranks[a].told,
                           *second = &ask->ranks[b].told;
    uint32_t lane = op_of(ask, ask->rank)->lane;
    return ask->ranks[a].heard && (first->begun[lane] < second->begun[lane] ||
                                   (first->begun[lane] == second->begun[lane] &&
                                    first->done[lane] < second->done[lane]));
}

/* Who can write the event: rank 0 if its process runs, else the next. */
static int find_writer(const struct verdict_ask *ask)
{
    int r = 0;
    while (r != ask->rank && !ask->ranks[r].heard)
        r++;
    return r;
}

/* Does the waiting rank itself hang? It no longer polls, or is the only one
 * left at the end. */
static bool keeps_itself(const struct verdict_ask *ask)
{
    if (!looks(ask, ask->rank))
        return true;
    for (int r = 0; r < ask->size; r++)
        if (r != ask->rank && !has_parted(ask, op_of(ask, ask->rank), r))
            return false;
    return ask->size > 1;
}

/* --- who waits for whom --------------------------------------------------- */

enum { NO_ONE = -1 };

/* Ranks that are waited for are a list in the order found: `next`. */
static void add(const struct verdict_ask *ask, int rank, int from, int *last)
{
    if (ask->ranks[rank].from != NO_ONE)
        return;
    ask->ranks[rank].from = from;
    ask->ranks[*last].next = rank;
    *last = rank;
}

/* Adds the ranks of its group that `waiter` waits for. True: all have
 * entered. */
static bool follow(const struct verdict_ask *ask, int waiter, int *last)
{
    const struct seat_op *op = op_of(ask, waiter);
    int count = op->count ? (int)op->count : ask->size;
    int stride = op->count ? (int)op->stride : 1;
    bool any_late = false;
    if (waiter != ask->rank && (!ask->ranks[waiter].heard || !op->kind))
        return false;
    for (int p = 0, r = (int)op->first; p < count; p++, r += stride)
        any_late = any_late || (r != waiter && is_late(ask, op, r) &&
                                !has_parted(ask, op, r));
    for (int p = 0, r = (int)op->first; p < count; p++, r += stride)
        if (r != waiter && (!any_late || is_late(ask, op, r)) &&
            !has_parted(ask, op, r))
            add(ask, r, waiter, last);
    return !any_late;
}

bool verdict_find(const struct verdict_ask *ask, struct verdict *verdict)
{
    struct rank_known *ranks = ask->ranks;
    int worst = keeps_itself(ask) ? ask->rank : NO_ONE;
    int from = ask->rank, last = ask->rank;
    enum standing how_worst = STANDS_RUNNING;
    for (int r = 0; r < ask->size; r++)
        ranks[r].from = ranks[r].next = NO_ONE;
    ranks[ask->rank].from = ask->rank;
    bool is_own = follow(ask, ask->rank, &last);
    for (int r = ranks[ask->rank].next; r != NO_ONE; r = ranks[r].next) {
        enum standing how = stands(ask, r);
        if (how == STANDS_WELL)
            return false;
        bool have_entered = follow(ask, r, &last);
        if (worst < 0 || how > how_worst ||
            (how == how_worst && is_behind(ask, r, worst))) {
            worst = r;
            how_worst = how;
            /* all have entered this collective and it does not end: that is the
             * cause, whatever others wait for */
            from = how == STANDS_WAITING && have_entered ? r : ranks[r].from;
        }
    }
    if (worst < 0)
        return false;
    if (how_worst == STANDS_WAITING && is_own &&
        is_behind(ask, ask->rank, worst))
        worst = from = ask->rank;
    *verdict = (struct verdict){
            .rank = worst,
            .kind = END_HANG,
            .exit_code = 75,
            .writer = find_writer(ask),
            .step = ranks[ask->rank].told.step,
            .op = *op_of(ask, from),
            .seconds = ask->seconds,
            .has_entered = !is_late(ask, op_of(ask, from), worst)};
    return true;
}
