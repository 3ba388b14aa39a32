/* Messages when the watch ends the job. */
#include "base/clock.h"
#include "base/log.h"
#include "base/threads.h"
#include "comm/watch/private.h"

#include <stdlib.h>
#include <time.h>

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
    char operation[SEAT_TEXT];
    const char *host = watch_host(watch, verdict->rank);
    zd_error_clear();
    seat_op_text(&verdict->op, operation);
    switch ((enum verdict_kind)verdict->kind) {
    case END_HANG:
        ZD_FAIL(ZD_ERR_PEER, "E0504",
                "rank %d on %s hangs at step %lld: %s%s%s for %.1f s "
                "(comm.timeout)",
                verdict->rank, host, (long long)verdict->step,
                verdict->has_entered ? "" : "others wait for it in ", operation,
                verdict->has_entered
                        ? ", which every rank has entered, is not done"
                        : "",
                verdict->seconds);
        return;
    case END_JOIN:
        ZD_FAIL(ZD_ERR_PEER, "E0505",
                "the ranks have not come together after %.1f s (comm.timeout)",
                verdict->seconds);
        return;
    case END_FILES:
        ZD_FAIL(ZD_ERR_IO, "E0816",
                "the %s of rank %d on %s at step %lld is given up: no read, "
                "write or fsync of it was done for %.1f s (checkpoint.timeout)",
                files_name(watch, verdict), verdict->rank, host,
                (long long)verdict->step, verdict->seconds);
        return;
    case END_LAUNCHER:
        ZD_FAIL(ZD_ERR_PEER, "E0506",
                "the program that started rank %d on %s is gone", verdict->rank,
                host);
        return;
    case END_FAILED:
    case ENDS:
        zd_error_set(&watch->failure);
    }
}

void watch_tell(struct watch *watch, const struct verdict *verdict)
{
    fail(watch, verdict);
    zd_fail_where("rank %d (%s)", watch->rank, watch_host(watch, watch->rank));
    zd_error_print(stderr, zd_error_get());
    zd_log_file(
            ZD_LOG_ERROR, "error[%s]: %s", zd_error_get()->code,
            zd_error_get()->what);
    zd_error_clear();
}

/* --- the listener --------------------------------------------------------- */

struct telling { /* outlives its starter, which may not wait for it */
    struct watch_listener listener;
    struct watch_hang hang;
    char host[WATCH_HOST_MAX], operation[SEAT_TEXT];
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
    ZD_PRINT(telling->host, "%s", watch_host(watch, verdict->rank));
    if (verdict->kind == END_FILES)
        ZD_PRINT(telling->operation, "%s", files_name(watch, verdict));
    else
        seat_op_text(&verdict->op, telling->operation);
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

/* The listener may write to the disk that hangs, or wait seconds for a CPU on a
 * loaded machine, so it has its own thread. */
void watch_tell_listener(struct watch *watch, const struct verdict *verdict)
{
    static const double SECONDS = 6;
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
