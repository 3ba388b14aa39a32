#include "comm/watch/verdict.h"

#include <math.h>

/* Work that reports its own progress may take this many limits between two
 * reports. */
static const double WORK_TIMES = 10;

/* The state of a rank that others wait for. The worst state explains the
 * others: stopped or gone, then running, then waiting. */
enum standing {
    STANDS_WELL,    /* no hang as long as one of those is waited for */
    STANDS_WAITING, /* for others, or its link is down */
    STANDS_RUNNING,
    STANDS_WORKING, /* and does not go on */
    STANDS_GONE,
    STANDS_SILENT /* its process is stopped or gone, or its host or link is */
};

static bool is_late(
        const struct verdict_ask *ask, const struct seat_op *op, int rank)
{
    return !ask->heard[rank] || ask->told[rank].begun[op->lane] < op->number;
}

/* At the end of the ranks: a rank that has left, perhaps with its process, has
 * finished. */
static bool has_parted(
        const struct verdict_ask *ask, const struct seat_op *op, int rank)
{
    return op->word == seat_word(SEAT_PART, DTYPE_FP32, 0) &&
           (ask->heard[rank] ? ask->told[rank].state == SEAT_LEFT
                             : ask->ever_heard[rank]);
}

/* One that polls does so every millisecond; half of the limit, for it may have
 * begun a wait before it stood still in it. */
static bool looks(const struct verdict_ask *ask, int rank)
{
    return ask->told[rank].poll_ms <= 500 * ask->limit;
}

static enum standing stands(const struct verdict_ask *ask, int rank)
{
    const struct seat_told *told = &ask->told[rank];
    double limit_ms = 1000 * ask->limit;
    /* If ranks cannot query each other, assume that all do the same work as
     * this rank: all ranks do such work together. */
    if (!ask->heard[rank])
        return ask->ever_heard[rank] || ask->work == WORK_NONE ? STANDS_SILENT
                                                               : STANDS_WELL;
    if (told->state == SEAT_LEFT)
        return STANDS_GONE;
    if (told->state == SEAT_WORKS)
        return seat_work_says((enum comm_work)told->work) &&
                               told->silent_ms > WORK_TIMES * limit_ms
                       ? STANDS_WORKING
                       : STANDS_WELL;
    if (told->silent_ms <= limit_ms)
        return STANDS_WELL;
    return told->waits.word && looks(ask, rank) ? STANDS_WAITING
                                                : STANDS_RUNNING;
}

/* Of two ranks in the same state, take the one that is furthest behind. */
static bool is_behind(const struct verdict_ask *ask, int a, int b)
{
    const struct seat_told *first = &ask->told[a], *second = &ask->told[b];
    uint32_t lane = ask->wait.lane;
    return ask->heard[a] && (first->begun[lane] < second->begun[lane] ||
                             (first->begun[lane] == second->begun[lane] &&
                              first->done[lane] < second->done[lane]));
}

/* Who can write the event: rank 0 where its process runs, else the next. */
static int find_writer(const struct verdict_ask *ask)
{
    for (int r = 0; r < ask->size; r++)
        if (r == ask->rank || ask->heard[r])
            return r;
    return -1;
}

/* Is it this rank itself that keeps it from its end? It does not look whether
 * it has come, or is alone in the ranks' end. */
static bool keeps_itself(const struct verdict_ask *ask)
{
    if (!looks(ask, ask->rank))
        return true;
    for (int r = 0; r < ask->size; r++)
        if (r != ask->rank && !has_parted(ask, &ask->wait, r))
            return false;
    return ask->size > 1;
}

/* --- who waits for whom --------------------------------------------------- */

struct chain {
    const struct verdict_ask *ask;
    int *from;  /* (size) who waits for it; -1: no one that is known */
    int *ranks; /* (count) that are waited for, in the order found */
    int count;
};

static const struct seat_op *op_of(const struct verdict_ask *ask, int rank)
{
    return rank == ask->rank ? &ask->wait : &ask->told[rank].waits;
}

static void add(struct chain *chain, int rank, int from)
{
    if (chain->from[rank] >= 0)
        return;
    chain->from[rank] = from;
    chain->ranks[chain->count++] = rank;
}

/* Those of the waiter's group that it waits for. True: all have entered. */
static bool follow(struct chain *chain, int waiter)
{
    const struct verdict_ask *ask = chain->ask;
    const struct seat_op *op = op_of(ask, waiter);
    int count = op->count ? (int)op->count : ask->size;
    int stride = op->count ? (int)op->stride : 1;
    bool any_late = false;
    if (waiter != ask->rank && (!ask->heard[waiter] || !op->word))
        return false;
    for (int p = 0, r = (int)op->first; p < count; p++, r += stride)
        any_late = any_late || (r != waiter && is_late(ask, op, r) &&
                                !has_parted(ask, op, r));
    for (int p = 0, r = (int)op->first; p < count; p++, r += stride)
        if (r != waiter && (!any_late || is_late(ask, op, r)) &&
            !has_parted(ask, op, r))
            add(chain, r, waiter);
    return !any_late;
}

bool verdict_find(const struct verdict_ask *ask, struct verdict *verdict)
{
    struct chain chain = {ask, ask->scratch, ask->scratch + ask->size, 0};
    int worst = keeps_itself(ask) ? ask->rank : -1, from = ask->rank;
    enum standing how_worst = STANDS_RUNNING;
    for (int r = 0; r < ask->size; r++)
        chain.from[r] = -1;
    add(&chain, ask->rank, ask->rank);
    bool is_own = follow(&chain, ask->rank);
    for (int i = 1; i < chain.count; i++) {
        int r = chain.ranks[i];
        enum standing how = stands(ask, r);
        if (how == STANDS_WELL)
            return false;
        bool have_entered = follow(&chain, r);
        if (worst < 0 || how > how_worst ||
            (how == how_worst && is_behind(ask, r, worst))) {
            worst = r;
            how_worst = how;
            /* what all have entered does not end, whoever waits elsewhere */
            from = how == STANDS_WAITING && have_entered ? r : chain.from[r];
        }
    }
    if (worst < 0)
        return false;
    if (how_worst == STANDS_WAITING && is_own &&
        is_behind(ask, ask->rank, worst))
        worst = from = ask->rank;
    const struct seat_op *op = op_of(ask, from);
    *verdict = (struct verdict){
            .rank = worst,
            .kind = END_HANG,
            .exit_code = 75,
            .writer = find_writer(ask),
            .step = ask->step,
            .op = *op,
            .seconds = ask->seconds,
            .has_entered = !is_late(ask, op, worst)};
    return true;
}

bool verdict_is_known(const struct verdict *verdict, int size)
{
    return verdict->rank >= 0 && verdict->rank < size && verdict->kind >= 0 &&
           verdict->kind < ENDS && verdict->writer >= -1 &&
           verdict->writer < size &&
           (verdict->op.word ? seat_op_is_known(&verdict->op, size)
                             : verdict->op.count == 0) &&
           (verdict->exit_code == 75 || verdict->exit_code == 74) &&
           isfinite(verdict->seconds);
}
