/* What is said of the end that the watch makes. */
#include "base/clock.h"
#include "base/log.h"
#include "base/threads.h"
#include "comm/watch/private.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- who else ------------------------------------------------------------- */

/* "ranks 0, 2-5": those that wait for the same. */
static void name_waiting(
        const struct watch *watch, const struct verdict *verdict, char *out,
        size_t out_bytes)
{
    size_t used = 0;
    *out = '\0';
    for (int r = 0; r < watch->size && used + 32 < out_bytes; r++) {
        int last = r;
        if (!watch->heard[r] || watch->told[r].waits != verdict->word)
            continue;
        while (last + 1 < watch->size && watch->heard[last + 1] &&
               watch->told[last + 1].waits == verdict->word)
            last++;
        used += (size_t)snprintf(
                out + used, out_bytes - used, last > r ? "%s%d-%d" : "%s%d",
                used ? ", " : "", r, last);
        r = last;
    }
}

/* Ranks from `first` on that are on one host and of which nothing is known. */
static int tell_silent(const struct watch *watch, int first)
{
    int last = first;
    while (last + 1 < watch->size && !watch->heard[last + 1] &&
           watch->first[last + 1] == watch->first[first])
        last++;
    char ranks[32];
    snprintf(
            ranks, sizeof ranks, last > first ? "ranks %d to %d" : "rank %d",
            first, last);
    zd_log(ZD_LOG_ERROR, "  %s, of %s, does not say how far it is",
           watch_host(watch, first), ranks);
    return last;
}

/* Under this number another rank has another collective than is waited for. */
static bool tell_other(
        const struct watch *watch, const struct verdict *verdict, int rank)
{
    char theirs[64], ours[64];
    uint64_t what = watch->told[rank].what;
    if (verdict->word == 0 || what == 0 || what == verdict->word)
        return false;
    seat_word_text(what, theirs, sizeof theirs);
    seat_word_text(verdict->word, ours, sizeof ours);
    zd_log(ZD_LOG_ERROR, "  rank %d (%s) has %s as #%llu, this one %s", rank,
           watch_host(watch, rank), theirs, (unsigned long long)verdict->number,
           ours);
    return true;
}

/* All have entered it; one whose GPU or process stands still has finished less
 * than the others. */
static void tell_slow(const struct watch *watch)
{
    uint64_t least = watch->told[0].done, most = least;
    for (int r = 1; r < watch->size; r++) {
        uint64_t done = watch->told[r].done;
        least = done < least ? done : least;
        most = done > most ? done : most;
    }
    for (int r = 0; r < watch->size && least < most; r++)
        if (watch->told[r].done == least)
            zd_log(ZD_LOG_ERROR,
                   "  rank %d (%s) has finished least: up to #%llu, others up "
                   "to #%llu",
                   r, watch_host(watch, r), (unsigned long long)least,
                   (unsigned long long)most);
}

/* The last collectives of this process' first rank. */
static void tell_last(const struct watch *watch, enum seat_lane lane)
{
    enum { TOLD = 16 };
    const struct seat *seat = watch_own(watch, 0);
    uint64_t begun = atomic_load(&seat->lanes[lane].begun);
    uint64_t done = atomic_load(&seat->lanes[lane].done);
    zd_log(ZD_LOG_ERROR, "rank %d (%s): its last collectives:", watch->rank,
           watch_host(watch, watch->rank));
    for (uint64_t n = begun > TOLD ? begun - TOLD + 1 : 1; n <= begun; n++) {
        char text[64];
        uint64_t word = seat_what(seat, lane, n);
        if (!seat_word_is_known(word))
            continue;
        seat_word_text(word, text, sizeof text);
        zd_log(ZD_LOG_ERROR, "  rank %d: #%llu %s: %s", watch->rank,
               (unsigned long long)n, text, n <= done ? "done" : "under way");
    }
}

/* Who else waits, has not come, or has something else. */
static void tell_ranks(const struct watch *watch, const struct verdict *verdict)
{
    char waiting[256];
    bool all_came = true;
    name_waiting(watch, verdict, waiting, sizeof waiting);
    if (waiting[0])
        zd_log(ZD_LOG_ERROR, "  waiting in it: %s %s",
               strpbrk(waiting, ",-") ? "ranks" : "rank", waiting);
    for (int r = 0; r < watch->size; r++) {
        bool is_late =
                watch->heard[r] && watch->told[r].begun < verdict->number;
        all_came = all_came && watch->heard[r] && !is_late &&
                   !tell_other(watch, verdict, r);
        if (is_late && r != verdict->rank)
            zd_log(ZD_LOG_ERROR,
                   "  rank %d (%s) has not entered #%llu; its last is #%llu", r,
                   watch_host(watch, r), (unsigned long long)verdict->number,
                   (unsigned long long)watch->told[r].begun);
        else if (!watch->heard[r])
            r = tell_silent(watch, r);
    }
    if (!all_came)
        return;
    zd_log(ZD_LOG_ERROR, "  every rank has entered #%llu",
           (unsigned long long)verdict->number);
    tell_slow(watch);
}

/* --- the record ----------------------------------------------------------- */

static const char *files_name(
        const struct watch *watch, const struct verdict *verdict)
{
    const char *what = NULL;
    if (verdict->rank == watch->rank && verdict->files < WATCH_FILES_MAX)
        what = atomic_load(&watch->files[verdict->files].what);
    return what ? what : "save or load";
}

static void fail(const struct watch *watch, const struct verdict *verdict)
{
    char text[400];
    const char *host = watch_host(watch, verdict->rank);
    zd_error_clear();
    switch ((enum verdict_why)verdict->why) {
    case WHY_JOIN:
        ZD_FAIL(ZD_ERR_PEER, "E0505",
                "the ranks have not come together after %.1f s (comm.timeout)",
                verdict->seconds);
        return;
    case WHY_FILES:
        ZD_FAIL(ZD_ERR_IO, "E0816",
                "the %s of rank %d on %s at step %lld is given up: no read, "
                "write or fsync of it was done for %.1f s (checkpoint.timeout)",
                files_name(watch, verdict), verdict->rank, host,
                (long long)verdict->step, verdict->seconds);
        return;
    case WHY_LAUNCHER:
        ZD_FAIL(ZD_ERR_PEER, "E0506",
                "the program that started rank %d on %s is gone", verdict->rank,
                host);
        return;
    case WHY_FAILED:
        zd_error_set(&watch->failure);
        return;
    default:
        verdict_text(verdict, host, text, sizeof text);
        ZD_FAIL(ZD_ERR_PEER, "E0504", "%s", text);
    }
}

void watch_tell(struct watch *watch, const struct verdict *verdict)
{
    char text[400];
    const char *host = watch_host(watch, verdict->rank);
    bool is_wait = verdict->why < WHY_JOIN;
    fail(watch, verdict);
    zd_fail_where("rank %d (%s)", watch->rank, watch_host(watch, watch->rank));
    zd_error_print(stderr, zd_error_get());
    zd_log_file(
            ZD_LOG_ERROR, "error[%s]: %s", zd_error_get()->code,
            zd_error_get()->what);
    zd_error_clear();
    if (is_wait) {
        verdict_details(verdict, host, text, sizeof text);
        zd_log(ZD_LOG_ERROR, "%s", text);
    }
    if (is_wait || verdict->why == WHY_FAILED)
        tell_last(watch, (enum seat_lane)verdict->lane);
    if (is_wait || (verdict->why == WHY_FAILED && verdict->word))
        tell_ranks(watch, verdict);
}

/* --- the listener --------------------------------------------------------- */

struct telling { /* outlives who began it, if that does not wait for it */
    struct watch_listener listener;
    struct watch_hang hang;
    char host[WATCH_HOST_MAX], operation[96];
    atomic_bool is_done;
};

static void *tell_listener(void *ctx)
{
    struct telling *telling = ctx;
    telling->listener.hang(telling->listener.ctx, &telling->hang);
    atomic_store(&telling->is_done, true);
    return NULL;
}

static void describe(
        const struct watch *watch, const struct verdict *verdict,
        struct telling *telling)
{
    snprintf(
            telling->host, sizeof telling->host, "%s",
            watch_host(watch, verdict->rank));
    if (verdict->why == WHY_FILES)
        snprintf(
                telling->operation, sizeof telling->operation, "%s",
                files_name(watch, verdict));
    else if (verdict->number)
        seat_operation_text(
                verdict->word, verdict->number, telling->operation,
                sizeof telling->operation);
    else
        seat_word_text(
                verdict->word, telling->operation, sizeof telling->operation);
    telling->hang = (struct watch_hang){
            .rank = verdict->rank,
            .host = telling->host,
            .step = verdict->step,
            .operation = telling->operation,
            .seconds = verdict->seconds,
            .is_here = watch->rank == 0};
}

void watch_tell_stalled(struct watch *watch, const struct verdict *verdict)
{
    struct telling telling = {.is_done = false};
    if (!verdict) {
        zd_log_info("no rank is waited for any more");
        watch->listener.stalled(watch->listener.ctx, NULL);
        return;
    }
    describe(watch, verdict, &telling);
    zd_log_warning(
            "rank %d on %s may hang at step %lld: others have waited for it "
            "in %s for %.1f s; the job ends after %.1f s (comm.timeout)",
            verdict->rank, telling.host, (long long)verdict->step,
            telling.operation, verdict->seconds,
            1e-6 * (double)atomic_load(&watch->limit));
    watch->listener.stalled(watch->listener.ctx, &telling.hang);
}

/* The disk that it writes to may be what hangs. */
void watch_tell_listener(struct watch *watch, const struct verdict *verdict)
{
    static const double SECONDS = 2;
    static const struct timespec NAP = {.tv_nsec = 5 * 1000 * 1000};
    pthread_t thread;
    struct telling *telling = calloc(1, sizeof *telling);
    if (!telling)
        return;
    telling->listener = watch->listener;
    describe(watch, verdict, telling);
    if (!telling->listener.hang ||
        thread_start(&thread, "zerod-told", tell_listener, telling) != 0) {
        free(telling);
        return;
    }
    pthread_detach(thread);
    double begun = clock_seconds();
    while (!atomic_load(&telling->is_done) && clock_seconds() - begun < SECONDS)
        nanosleep(&NAP, NULL);
    if (atomic_load(&telling->is_done))
        free(telling);
}
