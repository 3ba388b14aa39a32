#include "comm/watch/verdict.h"

#include <math.h>
#include <stdio.h>

/* Work that says by itself that it goes on may take so many limits between two
 * words. */
static const double WORK_TIMES = 10;

enum standing {
    STANDS_WELL, /* no hang as long as one of those is waited for */
    STANDS_STILL
};

static bool is_late(const struct verdict_ask *ask, int rank)
{
    return !ask->heard[rank] || ask->told[rank].begun < ask->number;
}

/* In the ranks' end: one that has left has come through. */
static bool has_parted(const struct verdict_ask *ask, int rank)
{
    return ask->word == seat_word(SEAT_PART, DTYPE_FP32, 0) &&
           ask->heard[rank] && ask->told[rank].state == SEAT_LEFT;
}

/* One that polls does so every millisecond; half of the limit, for it may have
 * begun a wait before it stood still in it. */
static bool looks(const struct verdict_ask *ask, int rank)
{
    return ask->told[rank].poll_ms <= 500 * ask->limit;
}

/* Of a rank that is waited for. */
static enum standing stands(
        const struct verdict_ask *ask, int rank, enum verdict_why *why_out)
{
    const struct seat_told *told = &ask->told[rank];
    double limit_ms = 1000 * ask->limit;
    *why_out = WHY_SILENT;
    /* Where hosts cannot ask each other, all are taken to be in the work that
     * this rank is in: such work is of all ranks. */
    if (!ask->heard[rank])
        return ask->ever_heard[rank] || ask->work == WORK_NONE ? STANDS_STILL
                                                               : STANDS_WELL;
    *why_out = WHY_STOPPED;
    if (told->beat_ms > limit_ms)
        return STANDS_STILL;
    *why_out = WHY_LEFT;
    if (told->state == SEAT_LEFT)
        return STANDS_STILL;
    *why_out = WHY_WORKS;
    if (told->state == SEAT_WORKS)
        return seat_work_says((enum comm_work)told->work) &&
                               told->silent_ms > WORK_TIMES * limit_ms
                       ? STANDS_STILL
                       : STANDS_WELL;
    *why_out = told->state == SEAT_WAITS && looks(ask, rank) ? WHY_WAITS
                                                             : WHY_RUNS;
    return told->silent_ms > limit_ms ? STANDS_STILL : STANDS_WELL;
}

/* The one that explains the others: stopped and gone before those that run,
 * these before those that wait; of several alike the one that is furthest
 * behind. */
static bool is_worse(
        const struct verdict_ask *ask, int a, enum verdict_why why_a, int b,
        enum verdict_why why_b)
{
    static const int weights[WHYS] = {
            [WHY_STOPPED] = 6, [WHY_SILENT] = 5, [WHY_LEFT] = 4,
            [WHY_WORKS] = 3,   [WHY_RUNS] = 2,   [WHY_WAITS] = 1};
    if (weights[why_a] != weights[why_b])
        return weights[why_a] > weights[why_b];
    if (why_a == WHY_SILENT)
        return false;
    if (ask->told[a].begun != ask->told[b].begun)
        return ask->told[a].begun < ask->told[b].begun;
    if (ask->told[a].done != ask->told[b].done)
        return ask->told[a].done < ask->told[b].done;
    return false;
}

/* Who can write the event: rank 0 where its process runs, else the next. */
static int find_writer(const struct verdict_ask *ask)
{
    for (int r = 0; r < ask->size; r++)
        if (r == ask->rank ||
            (ask->heard[r] && ask->told[r].beat_ms <= 1000 * ask->limit &&
             ask->told[r].beat_ms <= 2000))
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
    enum verdict_why why_worst = WHY_RUNS, why;
    for (int r = 0; r < ask->size; r++)
        any_late = any_late || (r != ask->rank && is_late(ask, r));
    for (int r = 0; r < ask->size; r++) {
        if (r == ask->rank || (any_late && !is_late(ask, r)) ||
            has_parted(ask, r))
            continue;
        if (stands(ask, r, &why) == STANDS_WELL)
            return false;
        if (worst < 0 || is_worse(ask, r, why, worst, why_worst)) {
            worst = r;
            why_worst = why;
        }
    }
    if (worst < 0)
        return false;
    *verdict = (struct verdict){
            .rank = worst,
            .why = why_worst,
            .exit_code = 75,
            .writer = find_writer(ask),
            .step = ask->step,
            .word = ask->word,
            .number = ask->number,
            .last = ask->heard[worst] ? ask->told[worst].begun : 0,
            .seconds = ask->seconds,
            .silent_ms = ask->heard[worst] ? ask->told[worst].silent_ms : 0,
            .lane = ask->lane,
            .work = ask->heard[worst] ? ask->told[worst].work : WORK_NONE};
    return true;
}

bool verdict_is_known(const struct verdict *verdict, int size)
{
    return verdict->rank >= 0 && verdict->rank < size && verdict->why >= 0 &&
           verdict->why < WHYS && verdict->work < WORKS &&
           verdict->lane < SEAT_LANES && verdict->writer >= -1 &&
           verdict->writer < size &&
           (verdict->word == 0 || seat_word_is_known(verdict->word)) &&
           (verdict->exit_code == 75 || verdict->exit_code == 74) &&
           isfinite(verdict->seconds);
}

/* --- words ---------------------------------------------------------------- */

void verdict_text(
        const struct verdict *verdict, const char *host, char *out,
        size_t out_bytes)
{
    char operation[96];
    seat_operation_text(
            verdict->word, verdict->number, operation, sizeof operation);
    if (verdict->last < verdict->number || verdict->why == WHY_SILENT)
        snprintf(
                out, out_bytes,
                "rank %d on %s hangs at step %lld: others wait for it in %s "
                "for %.1f s (comm.timeout)",
                verdict->rank, host, (long long)verdict->step, operation,
                verdict->seconds);
    else
        snprintf(
                out, out_bytes,
                "rank %d on %s hangs at step %lld: %s, which every rank has "
                "entered, is not done after %.1f s (comm.timeout)",
                verdict->rank, host, (long long)verdict->step, operation,
                verdict->seconds);
}

void verdict_details(
        const struct verdict *verdict, const char *host, char *out,
        size_t out_bytes)
{
    static const char *const whys[WHYS] = {
            [WHY_STOPPED] = "its process does not run",
            [WHY_SILENT] = "its host does not answer",
            [WHY_RUNS] = "it computes",
            [WHY_LEFT] = "it has left",
            [WHY_WAITS] = "it waits too",
            [WHY_WORKS] = "its work does not go on",
            [WHY_JOIN] = "",
            [WHY_FILES] = "",
            [WHY_LAUNCHER] = "",
            [WHY_FAILED] = ""};
    size_t used = (size_t)snprintf(
            out, out_bytes, "  rank %d (%s): %s", verdict->rank, host,
            whys[verdict->why]);
    if (verdict->why == WHY_SILENT || used >= out_bytes)
        return;
    used += (size_t)snprintf(
            out + used, out_bytes - used, ", silent since %.1f s",
            verdict->silent_ms / 1000.0);
    if (used < out_bytes && verdict->last < verdict->number)
        snprintf(
                out + used, out_bytes - used,
                "; it has not entered #%llu; its last is #%llu",
                (unsigned long long)verdict->number,
                (unsigned long long)verdict->last);
}
