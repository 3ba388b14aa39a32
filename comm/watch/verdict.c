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

static bool is_late(const struct verdict_ask *ask, int rank)
{
    return !ask->heard[rank] || ask->told[rank].begun < ask->number;
}

/* At the end of the ranks: a rank that has left, perhaps with its process, has
 * finished. */
static bool has_parted(const struct verdict_ask *ask, int rank)
{
    return ask->word == seat_word(SEAT_PART, DTYPE_FP32, 0) &&
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
    return told->state == SEAT_WAITS && looks(ask, rank) ? STANDS_WAITING
                                                         : STANDS_RUNNING;
}

/* Of two ranks in the same state, take the one that is furthest behind. */
static bool is_behind(const struct verdict_ask *ask, int a, int b)
{
    const struct seat_told *first = &ask->told[a], *second = &ask->told[b];
    return ask->heard[a] &&
           (first->begun < second->begun ||
            (first->begun == second->begun && first->done < second->done));
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
        if (r != ask->rank && !has_parted(ask, r))
            return false;
    return ask->size > 1;
}

bool verdict_find(const struct verdict_ask *ask, struct verdict *verdict)
{
    bool any_late = false;
    int worst = keeps_itself(ask) ? ask->rank : -1;
    enum standing how_worst = STANDS_RUNNING;
    for (int r = 0; r < ask->size; r++)
        any_late = any_late || (r != ask->rank && is_late(ask, r) &&
                                !has_parted(ask, r));
    for (int r = 0; r < ask->size; r++) {
        if (r == ask->rank || (any_late && !is_late(ask, r)) ||
            has_parted(ask, r))
            continue;
        enum standing how = stands(ask, r);
        if (how == STANDS_WELL)
            return false;
        if (worst < 0 || how > how_worst ||
            (how == how_worst && is_behind(ask, r, worst))) {
            worst = r;
            how_worst = how;
        }
    }
    if (worst < 0)
        return false;
    *verdict = (struct verdict){
            .rank = worst,
            .kind = END_HANG,
            .exit_code = 75,
            .writer = find_writer(ask),
            .step = ask->step,
            .word = ask->word,
            .number = ask->number,
            .seconds = ask->seconds,
            .has_entered = !is_late(ask, worst)};
    return true;
}

bool verdict_is_known(const struct verdict *verdict, int size)
{
    return verdict->rank >= 0 && verdict->rank < size && verdict->kind >= 0 &&
           verdict->kind < ENDS && verdict->writer >= -1 &&
           verdict->writer < size &&
           (verdict->word == 0 || seat_word_is_known(verdict->word)) &&
           (verdict->exit_code == 75 || verdict->exit_code == 74) &&
           isfinite(verdict->seconds);
}
