/* The thread that notes finished operations and NCCL's errors, and the abort of
 * communicators. */
#include "base/clock.h"
#include "base/log.h"
#include "base/threads.h"
#include "comm/nccl/private.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 50 };
/* How long an abort may take. */
static const double ABORT_SECONDS = 5;
/* A call of the library that is under way when communicators are aborted. */
enum { CALL_SECONDS = 1 };
/* A peer whose GPU failed reports that and ends the job within this time:
 * errors that its end causes here are not the cause. */
static const double CAUSE_SECONDS = 2;
/* --- the end -------------------------------------------------------------- */

/* No new library call begins. A call that hangs keeps its lock; the abort ends
 * it. */
static void end_calls(struct nccl *nccl)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += CALL_SECONDS;
    bool is_locked = pthread_mutex_timedlock(&nccl->calls, &until) == 0;
    atomic_store(&nccl->is_ended, true);
    if (is_locked)
        pthread_mutex_unlock(&nccl->calls);
}

static void *abort_comms(void *ctx)
{
    struct nccl *nccl = ctx;
    device_use(nccl->gpu);
    end_calls(nccl);
    for (int c = NCCL_ALL - 1; c >= 0; c--)
        if (nccl->all[c])
            nccl->functions->CommAbort(nccl->all[c]);
    atomic_store(&nccl->is_aborted, true);
    return NULL;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
}

/* The aborting thread may hang and is then left running; the back end is not
 * freed. */
bool nccl_abort_all(struct nccl *nccl)
{
    pthread_t thread;
    double begun = clock_seconds();
    if (!atomic_exchange(&nccl->aborts, true)) {
        if (thread_start(&thread, "zerod-abort", abort_comms, nccl) != 0)
            return false;
        pthread_detach(thread);
    }
    while (!atomic_load(&nccl->is_aborted) &&
           clock_seconds() - begun < ABORT_SECONDS)
        nap();
    return atomic_load(&nccl->is_aborted);
}

void nccl_fail(struct nccl *nccl)
{
    double begun = clock_seconds();
    if (atomic_exchange(&nccl->has_failed, true))
        return;
    while (!atomic_load(&nccl->gave_up) &&
           clock_seconds() - begun < CAUSE_SECONDS)
        nap();
    if (!atomic_load(&nccl->gave_up))
        watch_fail(nccl->whole->base.watch);
}

/* The ranks' watch has found a hang or received a failure, and ends the
 * process. */
static void end_with_job(void *ctx)
{
    struct nccl *nccl = ctx;
    atomic_store(&nccl->has_failed, true);
    if (!nccl_abort_all(nccl))
        zd_log(ZD_LOG_ERROR, "rank %d: ncclCommAbort hangs",
               nccl->whole->base.rank);
}

void nccl_give_up(struct nccl *nccl)
{
    atomic_store(&nccl->gave_up, true);
    atomic_store(&nccl->has_failed, true);
    nccl_abort_all(nccl);
}

/* --- the thread ----------------------------------------------------------- */

static enum zd_status check_errors(struct nccl *nccl)
{
    enum zd_status status = ZD_OK;
    if (pthread_mutex_trylock(&nccl->calls) != 0)
        return ZD_OK; /* the trainer is there, and sees it */
    if (atomic_load(&nccl->is_ended)) {
        pthread_mutex_unlock(&nccl->calls);
        return ZD_OK;
    }
    for (int c = 0; c < NCCL_ALL && status == ZD_OK; c++) {
        ncclResult_t state = ncclSuccess;
        if (!nccl->all[c])
            continue;
        nccl->functions->CommGetAsyncError(nccl->all[c], &state);
        status = nccl_check(nccl->functions, state, "NCCL", nccl->all[c]);
    }
    pthread_mutex_unlock(&nccl->calls);
    return status;
}

/* Operations end in the order in which they were queued. Empty ones in between
 * have old events. An operation older than the ring of events was done before
 * its event was reused. */
static void note_done(struct nccl *nccl)
{
    struct seat *seat = nccl->whole->base.seat;
    uint64_t queued = atomic_load(&nccl->queued), done = nccl->done_count;
    if (queued > done + NCCL_EVENTS)
        done = queued - NCCL_EVENTS;
    while (done < queued && event_is_done(nccl->done[done % NCCL_EVENTS]))
        done++;
    nccl->done_count = done;
    if (seat)
        seat_done(seat, done);
}

static bool goes_on(const struct nccl *nccl)
{
    struct pollfd stop = {.fd = nccl->stop, .events = POLLIN};
    return poll(&stop, 1, LOOK_MS) <= 0;
}

static void *watch(void *ctx)
{
    struct nccl *nccl = ctx;
    device_use(nccl->gpu);
    while (goes_on(nccl) && !atomic_load(&nccl->has_failed))
        if (check_errors(nccl) != ZD_OK)
            nccl_fail(nccl);
        else
            note_done(nccl);
    return NULL;
}

enum zd_status nccl_watch_start(struct nccl *nccl)
{
    nccl->stop = eventfd(0, EFD_CLOEXEC);
    if (nccl->stop < 0 ||
        thread_start(&nccl->watch, "zerod-nccl", watch, nccl) != 0)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602",
                "the system refused a thread to watch over collectives");
    nccl->is_watched = true;
    watch_operations_run(nccl->whole->base.watch);
    watch_on_end(
            nccl->whole->base.watch,
            &(struct watch_ending){.ctx = nccl, .end = end_with_job});
    return ZD_OK;
}

void nccl_watch_stop(struct nccl *nccl)
{
    uint64_t one = 1;
    if (nccl->is_watched && write(nccl->stop, &one, sizeof one) == sizeof one)
        pthread_join(nccl->watch, NULL);
    if (nccl->stop >= 0)
        close(nccl->stop);
    nccl->stop = -1;
    if (!nccl->is_watched)
        return;
    watch_on_end(nccl->whole->base.watch, &(struct watch_ending){0});
    nccl->is_watched = false;
}
