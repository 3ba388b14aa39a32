/* The --wrap of each is in tests/train/meson.build. */
#include "tests/train/checkpoint/wrapped_saves.h"

#include "base/number/rng.h"
#include "base/threads.h"
#include "data/dataset.h"
#include "tests/support/wrap.h"
#include "train/checkpoint/saving.h"
#include "train/report/file_writer.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

struct save_asks save_asks;
struct save_seen save_seen;

enum { LATE_US = 20000, WAIT_MS = 20000 };

static _Atomic uint64_t drawn;

/* Some are much later than a step is long. */
static void be_late(void)
{
    uint64_t seed = rng_stream("late") + atomic_fetch_add(&drawn, 1);
    usleep((useconds_t)((seed * 0x9e3779b97f4a7c15u >> 40) % LATE_US));
}

/* Until training has made the two steps up to the next save, which waits for
 * this one; it never would if it waited. */
static void wait_for_steps(int from)
{
    for (int i = 0; i < WAIT_MS && atomic_load(&save_seen.step_now) < from + 2;
         i++)
        usleep(1000);
    atomic_store(&save_seen.step_seen, atomic_load(&save_seen.step_now) - from);
}

/* As in an fsync that does not come back before training has made that step. */
static void stand_still(void)
{
    int until = atomic_exchange(&save_asks.stalls_until, 0);
    for (int i = 0; i < WAIT_MS && atomic_load(&save_seen.step_now) < until;
         i++)
        usleep(1000);
}

static struct zero_snapshot *_Atomic taken;

WRAP(enum zd_status, zero_snapshot_take, struct zero_snapshot *snapshot)
{
    atomic_store(&taken, snapshot);
    atomic_fetch_add(&save_seen.takes, 1);
    return __real_zero_snapshot_take(snapshot);
}

WRAP(double, zero_snapshot_waited, const struct zero_snapshot *snapshot)
{
    double waited = __real_zero_snapshot_waited(snapshot);
    return waited + (atomic_load(&save_asks.tells_more) ? SAVE_MORE_WAIT : 0);
}

/* Until an update has waited for this writer for a while; it never does where
 * it need not. */
static void wait_for_waiting(void)
{
    for (int i = 0; i < WAIT_MS; i++) {
        if (__real_zero_snapshot_waited(taken) >= SAVE_LEAST_WAIT)
            break;
        usleep(1000);
    }
}

/* A view that looks in which order it is read: all lanes of a range together,
 * the ranges up or down. */
struct looking {
    const struct zero_view *view;
    int range, lanes; /* the last; its lanes, a bit each */
};

static enum zd_status look_at_read(
        const void *ctx, int range, int lane, size_t begin, size_t count,
        void *values, float *scales)
{
    struct looking *looking = (struct looking *)(uintptr_t)ctx;
    int bit = 1 << (2 * lane + (scales ? 1 : 0));
    if (range != looking->range)
        atomic_fetch_add(
                range > looking->range ? &save_seen.ups : &save_seen.downs, 1);
    else if (looking->lanes & bit)
        atomic_fetch_add(&save_seen.disorder, 1);
    looking->lanes = bit | (range == looking->range ? looking->lanes : 0);
    looking->range = range;
    return looking->view->read(
            looking->view->ctx, range, lane, begin, count, values, scales);
}

static enum zd_status look_at_blocks(const void *ctx, int range, float *values)
{
    const struct looking *looking = ctx;
    return looking->view->blocks(looking->view->ctx, range, values);
}

WRAP(enum zd_status, saving_write, struct saving *saving,
     const struct zero_view *view)
{
    bool is_failing = comm_rank(saving->writer.comm) == 1;
    if (view->ctx == saving->writer.zero) /* all wait for it */
        return is_failing && atomic_fetch_sub(&save_asks.fails_waited, 1) > 0
                       ? ZD_FAIL(ZD_ERR_IO, "E0706", "the disk is full")
                       : __real_saving_write(saving, view);
    atomic_fetch_add(&save_seen.writes, 1);
    be_late();
    if (atomic_exchange(&save_asks.wants_step, 0))
        wait_for_steps((int)saving->step);
    if (atomic_exchange(&save_asks.wants_waiting, 0))
        wait_for_waiting();
    if (is_failing)
        stand_still();
    if (is_failing && atomic_fetch_sub(&save_asks.failing, 1) > 0)
        return ZD_FAIL(ZD_ERR_IO, "E0706", "the disk is full");
    struct looking looking = {
            .view = view, .range = view->backwards ? INT_MAX : -1};
    struct zero_view looked = {
            .ctx = &looking,
            .read = look_at_read,
            .blocks = look_at_blocks,
            .backwards = view->backwards};
    enum zd_status status = __real_saving_write(saving, &looked);
    atomic_fetch_add(&save_seen.written, 1);
    return status;
}

WRAP(enum zd_status, loader_next, struct loader *loader,
     struct loader_batch *batch)
{
    if (atomic_fetch_sub(&save_asks.bad_batch, 1) == 1)
        return ZD_BAD("E0457", "a bad token");
    return __real_loader_next(loader, batch);
}

static _Thread_local bool is_committing;

WRAP(enum zd_status, saving_commit, struct saving *saving)
{
    atomic_fetch_add(&save_seen.commits, 1);
    be_late();
    is_committing = true;
    enum zd_status status = __real_saving_commit(saving);
    is_committing = false;
    return status;
}

/* What a save asks of the files of rows and of events. */
WRAP(enum zd_status, file_writer_sync, struct file_writer *file)
{
    atomic_fetch_add(
            is_committing ? &save_seen.hardened : &save_seen.hardened_early, 1);
    return __real_file_writer_sync(file);
}

WRAP(int, thread_start, pthread_t *out, const char *name, void *(*body)(void *),
     void *ctx)
{
    if (strcmp(name, "zerod-save") == 0 &&
        atomic_fetch_sub(&save_asks.refused, 1) == 1)
        return EAGAIN;
    if (strcmp(name, "zerod-copy") == 0) {
        if (atomic_load(&save_asks.refuses_helpers))
            return EAGAIN;
        atomic_fetch_add(&save_seen.helpers, 1);
    }
    return __real_thread_start(out, name, body, ctx);
}
