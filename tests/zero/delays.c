#include "delays.h"

#include "base/device/device_memory.h"
#include "base/number/rng.h"
#include "comm/comm.h"
#include "offload/store.h"
#include "tests/support/wrap.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Who is late. */
enum kind {
    DOWN_COPY,
    DOWN_CALL,
    DOWN_RECORD,
    DOWN_WAIT,
    UP_COPY,
    UP_CALL,
    UP_RECORD,
    UP_WAIT,
    CHUNK_BEGIN,
    CHUNK_END,
    HOOK,
    KERNEL,
    GATHER_BEGIN,
    REDUCE_BEGIN,
    COLLECTIVE_WAIT,
    KINDS
};
static const char *const names[KINDS] = {
        "down copies",  "down calls", "down records",
        "down waits",   "up copies",  "up calls",
        "up records",   "up waits",   "chunks",
        "chunks' ends", "hooks",      "kernels",
        "gathers",      "reductions", "waits for collectives"};
enum { DELAYS = 24, LONGEST_US = 4000, ALL_US = 32000, STREAMS = 32 };

/* Written while no other thread of ours runs, but for the counters. */
static uint64_t seed;
static struct {
    uint64_t counted;
    _Atomic uint64_t met;
    double share; /* of them that are late */
    int64_t us;   /* at most */
} late[KINDS];
static char said[256];

static _Atomic(struct stream *) downs[STREAMS];
static _Atomic int down_count;

static double draw(uint64_t stream, uint64_t at)
{
    return (double)rng_uniform(seed, stream, at);
}

void delays_count(void)
{
    seed = 0;
    for (int k = 0; k < KINDS; k++)
        late[k].met = 0;
    atomic_store(&down_count, 0);
}

void delays_begin(uint64_t new_seed)
{
    if (!seed) /* after delays_count */
        for (int k = 0; k < KINDS; k++)
            late[k].counted = late[k].met;
    seed = new_seed;
    for (int k = 0; k < KINDS; k++) {
        late[k].met = 0;
        late[k].share = 0;
    }
    atomic_store(&down_count, 0);
    int count = 1 + (int)(3 * draw(KINDS, 0));
    said[0] = '\0';
    for (int i = 0; i < count; i++) {
        int k = i ? (int)(KINDS * draw(KINDS, 1 + (uint64_t)i))
                  : (int)(seed % KINDS);
        for (int tries = 0; !late[k].counted && tries < KINDS; tries++)
            k = (k + 1) % KINDS;
        if (!late[k].counted)
            return;
        /* from 1/64 of the longest on */
        late[k].us =
                (int64_t)LONGEST_US >> (int)(6 * draw(KINDS, 9 + (uint64_t)i));
        int64_t delays = ALL_US / late[k].us;
        late[k].share = (double)(delays < DELAYS ? delays : DELAYS) /
                        (double)late[k].counted;
        size_t used = strlen(said);
        snprintf(
                said + used, sizeof said - used, "%s%s by %d us", i ? ", " : "",
                names[k], (int)late[k].us);
    }
}

const char *delays_say(void)
{
    return said;
}

/* Microseconds that this hand-over is late; mostly 0. */
static int64_t lateness(enum kind kind)
{
    uint64_t at = atomic_fetch_add(&late[kind].met, 1);
    if (!seed || draw(kind, 2 * at) >= late[kind].share)
        return 0;
    return (int64_t)((double)late[kind].us * (0.5 + 0.5 * draw(kind, 2 * at + 1)));
}

static void nap(void *ctx, int64_t us)
{
    struct timespec time = {.tv_nsec = 1000 * us};
    nanosleep(&time, NULL);
}

static void be_late(enum kind kind)
{
    int64_t us = lateness(kind);
    if (us)
        nap(NULL, us);
}

/* --- streams -------------------------------------------------------------- */

WRAP(enum zd_status, stream_create, const char *name, enum stream_mode mode,
     struct stream **stream_out)
{
    enum zd_status status = __real_stream_create(name, mode, stream_out);
    if (status == ZD_OK && strcmp(name, "down") == 0)
        atomic_store(
                &downs[atomic_fetch_add(&down_count, 1) % STREAMS],
                *stream_out);
    return status;
}

static bool goes_down(struct stream *stream)
{
    int count = atomic_load(&down_count);
    for (int i = 0; i < count && i < STREAMS; i++)
        if (atomic_load(&downs[i]) == stream)
            return true;
    return false;
}

enum zd_status __real_stream_call(
        struct stream *stream, stream_fn *fn, void *ctx, int64_t arg);

/* The compute stream (NULL) is late at the hooks. */
static enum zd_status hold(struct stream *stream, enum kind down, enum kind up)
{
    int64_t us = stream ? lateness(goes_down(stream) ? down : up) : 0;
    return us ? __real_stream_call(stream, nap, NULL, us) : ZD_OK;
}

WRAP(enum zd_status, stream_copy, struct stream *stream, void *to,
     const void *from, size_t bytes)
{
    ZD_TRY(hold(stream, DOWN_COPY, UP_COPY));
    return __real_stream_copy(stream, to, from, bytes);
}

WRAP(enum zd_status, stream_call, struct stream *stream, stream_fn *fn,
     void *ctx, int64_t arg)
{
    ZD_TRY(hold(stream, DOWN_CALL, UP_CALL));
    return __real_stream_call(stream, fn, ctx, arg);
}

WRAP(enum zd_status, stream_record, struct stream *stream, struct event *event)
{
    ZD_TRY(hold(stream, DOWN_RECORD, UP_RECORD));
    return __real_stream_record(stream, event);
}

WRAP(enum zd_status, stream_wait, struct stream *stream, struct event *event)
{
    ZD_TRY(hold(stream, DOWN_WAIT, UP_WAIT));
    return __real_stream_wait(stream, event);
}

/* --- workers -------------------------------------------------------------- */

WRAP(enum zd_status, chunk_acquire, struct offload *offload, int chunk,
     struct chunk_memory *memory_out)
{
    be_late(CHUNK_BEGIN);
    return __real_chunk_acquire(offload, chunk, memory_out);
}

WRAP(enum zd_status, chunk_release, struct offload *offload, int chunk)
{
    be_late(CHUNK_END);
    return __real_chunk_release(offload, chunk);
}

/* --- the trainer and its collectives -------------------------------------- */

/* Every hook begins with it. On a CPU the compute stream is the trainer, who is
 * late himself; on a GPU he goes on, and what he queues is late. */
WRAP(enum zd_status, comm_progress, struct comm *comm)
{
    int64_t us = lateness(HOOK);
    if (us)
        ZD_TRY(__real_stream_call(NULL, nap, NULL, us));
    return __real_comm_progress(comm);
}

WRAP(enum zd_status, device_move, void *to, const void *from, size_t bytes)
{
    int64_t us = lateness(KERNEL);
    if (us)
        ZD_TRY(__real_stream_call(NULL, nap, NULL, us));
    return __real_device_move(to, from, bytes);
}

WRAP(enum zd_status, comm_wait, struct comm *comm, struct comm_op *op)
{
    be_late(COLLECTIVE_WAIT);
    return __real_comm_wait(comm, op);
}

WRAP(enum zd_status, comm_begin, struct comm *comm,
     const struct comm_op *request, struct comm_op **op_out)
{
    be_late(request->kind == COMM_ALL_GATHER ? GATHER_BEGIN : REDUCE_BEGIN);
    return __real_comm_begin(comm, request, op_out);
}
