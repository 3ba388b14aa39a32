/* A thread that sees when operations are done and when NCCL reports an error,
 * and what ends communicators. */
#include "base/clock.h"
#include "base/log.h"
#include "base/threads.h"
#include "comm/nccl/private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const long LOOK_NS = 50 * 1000 * 1000;
/* How long an abort may take, and then the end of the process by itself. */
static const double ABORT_SECONDS = 5, END_SECONDS = 5;
/* A call of the library that is under way when communicators are aborted. */
enum { CALL_SECONDS = 1 };
/* Telling waits for the cause, asks other hosts, and may wait for them. */
static const double TELL_SECONDS = 5;
/* A peer whose GPU failed says so, and ends the job within this time: what its
 * end does to the others is no cause. */
static const double CAUSE_SECONDS = 2;
/* For the rank that tells the error, in which it may ask other hosts. */
static const double TELLER_SECONDS = 2;

/* --- the end -------------------------------------------------------------- */

/* No call of the library begins any more. One that hangs keeps its lock, and is
 * what an abort is for. */
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
    for (int c = NCCL_COMMS - 1; c >= 0; c--)
        if (nccl->comms[c])
            nccl->functions->CommAbort(nccl->comms[c]);
    atomic_store(&nccl->is_aborted, true);
    return NULL;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
}

/* Less when this rank finds a cause of its own. */
static void nap_while_needed(struct nccl *nccl, double seconds)
{
    double begun = clock_seconds();
    while (!atomic_load(&nccl->gave_up) && clock_seconds() - begun < seconds)
        nap();
}

/* The job must not end while another thread still says why. */
void nccl_await_told(struct nccl *nccl)
{
    double begun = clock_seconds();
    while (atomic_load(&nccl->has_failed) && !atomic_load(&nccl->is_told) &&
           clock_seconds() - begun < TELL_SECONDS)
        nap();
}

/* What aborts may hang, and is left behind then; the back end stays for it. */
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

/* Whatever else hangs, the process ends, with the code of a lost peer. */
static void *end_process(void *ctx)
{
    struct nccl *nccl = ctx;
    if (!nccl_abort_all(nccl))
        zd_log(ZD_LOG_ERROR, "rank %d: ncclCommAbort hangs",
               nccl->device.base.rank);
    nap_while_needed(nccl, END_SECONDS);
    if (atomic_load(&nccl->gave_up))
        return NULL;
    fflush(stdout);
    fflush(stderr);
    _exit(zd_exit_code(ZD_ERR_PEER));
}

/* One rank of a host prints the error; those that fail beside it only say so,
 * and are not the teller. */
static bool tell_error(struct nccl *nccl)
{
    const struct comm *comm = &nccl->device.base;
    if (!watch_tells(comm->watch)) {
        zd_log(ZD_LOG_ERROR, "rank %d (%s) too: %s", comm->rank, comm->host,
               zd_error_get()->what);
        return false;
    }
    zd_fail_where("rank %d (%s)", comm->rank, comm->host);
    zd_error_print(stderr, zd_error_get());
    return true;
}

/* The end of another rank ends the teller too, which may not have come to
 * print a word. */
static void await_teller(struct nccl *nccl)
{
    double begun = clock_seconds();
    while (!atomic_load(&nccl->gave_up) &&
           !watch_is_told(nccl->device.base.watch) &&
           clock_seconds() - begun < TELLER_SECONDS)
        nap();
}

void nccl_fail(struct nccl *nccl)
{
    pthread_t thread;
    if (atomic_exchange(&nccl->has_failed, true))
        return;
    nap_while_needed(nccl, CAUSE_SECONDS);
    if (atomic_load(&nccl->gave_up))
        return;
    bool is_teller = tell_error(nccl);
    watch_tell_collectives(nccl->device.base.watch);
    if (!is_teller)
        await_teller(nccl);
    else
        watch_told(nccl->device.base.watch);
    atomic_store(&nccl->is_told, true);
    if (thread_start(&thread, "zerod-end", end_process, nccl) == 0)
        pthread_detach(thread);
    else
        end_process(nccl);
}

/* The watch of the ranks has found a hang and ends the process. */
static void end_with_job(void *ctx)
{
    struct nccl *nccl = ctx;
    atomic_store(&nccl->is_told, true);
    atomic_store(&nccl->has_failed, true);
    if (!nccl_abort_all(nccl))
        zd_log(ZD_LOG_ERROR, "rank %d: ncclCommAbort hangs",
               nccl->device.base.rank);
}

void nccl_give_up(struct nccl *nccl)
{
    atomic_store(&nccl->gave_up, true);
    atomic_store(&nccl->is_told, true);
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
    for (int c = 0; c < NCCL_COMMS && status == ZD_OK; c++) {
        ncclResult_t state = ncclSuccess;
        if (!nccl->comms[c])
            continue;
        nccl->functions->CommGetAsyncError(nccl->comms[c], &state);
        status = nccl_check(nccl->functions, state, "NCCL", nccl->comms[c]);
    }
    pthread_mutex_unlock(&nccl->calls);
    return status;
}

static bool goes_on(struct nccl *nccl)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LOOK_NS;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    pthread_mutex_lock(&nccl->lock);
    while (!nccl->stops &&
           pthread_cond_timedwait(&nccl->changed, &nccl->lock, &until) !=
                   ETIMEDOUT)
        ;
    bool stops = nccl->stops;
    pthread_mutex_unlock(&nccl->lock);
    return !stops;
}

static void *watch(void *ctx)
{
    struct nccl *nccl = ctx;
    device_use(nccl->gpu);
    while (goes_on(nccl) && !atomic_load(&nccl->has_failed))
        if (check_errors(nccl) != ZD_OK)
            nccl_fail(nccl);
        else
            nccl_note_done(nccl);
    return NULL;
}

enum zd_status nccl_watch_start(struct nccl *nccl)
{
    if (thread_start(&nccl->watch, "zerod-nccl", watch, nccl) != 0)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602",
                "the system refused a thread to watch over collectives");
    nccl->is_watched = true;
    watch_operations_run(nccl->device.base.watch);
    watch_on_end(
            nccl->device.base.watch,
            &(struct watch_ending){.ctx = nccl, .end = end_with_job});
    return ZD_OK;
}

void nccl_watch_stop(struct nccl *nccl)
{
    if (!nccl->is_watched)
        return;
    watch_on_end(nccl->device.base.watch, &(struct watch_ending){0});
    pthread_mutex_lock(&nccl->lock);
    nccl->stops = true;
    pthread_cond_broadcast(&nccl->changed);
    pthread_mutex_unlock(&nccl->lock);
    pthread_join(nccl->watch, NULL);
    nccl->is_watched = false;
}
