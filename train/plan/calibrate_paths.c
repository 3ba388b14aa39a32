/* calibrate_paths.c - copies, the disk and the wire; and how all is timed. */
#include "train/plan/calibrate.h"

#include "base/clock.h"
#include "base/device/device_memory.h"
#include "base/device/stream.h"
#include "base/must.h"
#include "data/token_cache.h"
#include "offload/aio.h"

#include <errno.h>
#include <math.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COPIED = 64 << 20, /* no cache holds it */ ON_DISK = 64 << 20 };

enum zd_status bench_time(struct bench *b, bench_fn *run, double *seconds_out)
{
    double all = 0, runs = 0;
    int times = 1;
    ZD_TRY(run(b)); /* touches what it needs */
    ZD_TRY(device_finish());
    do {
        double began = clock_seconds();
        for (int i = 0; i < times; i++, b->rounds++)
            ZD_TRY(run(b));
        ZD_TRY(device_finish());
        double took = clock_seconds() - began;
        all += took;
        runs += times;
        if (took < b->share / 16 && times < 1 << 16)
            times *= 2;
    } while (all < b->share);
    *seconds_out = fmax(all / runs, 1e-9);
    return ZD_OK;
}

static double thread_seconds(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

/* The share of the time since `began` in which this thread had a core; `cpu`:
 * thread_seconds then. 1 from a half on: what others have of a core is in the
 * time already. */
static double core_share(double began, double cpu)
{
    double share = (thread_seconds() - cpu) / (clock_seconds() - began);
    return share < 0.5 ? share : 1;
}

/* --- between host and device ---------------------------------------------- */

struct link {
    void *host, *device;
};

static enum zd_status copy_both(struct bench *b)
{
    const struct link *link = b->ctx;
    ZD_TRY(stream_copy(NULL, link->device, link->host, COPIED));
    return stream_copy(NULL, link->host, link->device, COPIED);
}

static enum zd_status measure_link(double share, struct plan_machine *machine)
{
    struct link link = {0};
    struct bench bench = {.share = share, .ctx = &link};
    double seconds = 1, began = 0, cpu = 0;
    enum zd_status status = device_take_pinned(COPIED, &link.host);
    if (status == ZD_OK)
        status = device_take(COPIED, &link.device);
    if (status == ZD_OK)
        status = copy_both(&bench); /* touches what it needs */
    began = clock_seconds();
    cpu = thread_seconds();
    if (status == ZD_OK)
        status = bench_time(&bench, copy_both, &seconds);
    machine->link = 2 * COPIED / seconds;
    machine->link_cores = core_share(began, cpu);
    if (link.host)
        device_give_pinned(link.host, COPIED);
    if (link.device)
        device_give(link.device, COPIED);
    return status;
}

/* --- the disk ------------------------------------------------------------- */

struct disk {
    struct aio *aio;
    struct aio_file file;
    void *data;
    sem_t moved;
};

static void tell_moved(struct aio_op *op)
{
    sem_post(op->ctx);
}

/* One half is read while the other is written, as states come and go, with as
 * many transfers under way as a run has. */
static enum zd_status move_halves(struct bench *b)
{
    enum { HALF = ON_DISK / 2 };
    struct disk *disk = (struct disk *)(uintptr_t)b->ctx;
    struct aio_op ops[2];
    for (int i = 0; i < 2; i++) {
        ops[i] = (struct aio_op){
                .file = &disk->file,
                .is_write = i == 1,
                .data = (char *)disk->data + i * (size_t)HALF,
                .bytes = HALF,
                .offset = (uint64_t)i * HALF,
                .done = tell_moved,
                .ctx = &disk->moved};
        aio_submit(disk->aio, &ops[i]);
    }
    for (int i = 0; i < 2; i++)
        while (sem_wait(&disk->moved) != 0 && errno == EINTR)
            ;
    enum zd_status was_read = aio_op_status(&ops[0]),
                   was_written = aio_op_status(&ops[1]);
    return was_read != ZD_OK ? was_read : was_written;
}

static enum zd_status measure_disk(
        struct comm *comm, double share, double *rate_out)
{
    const struct aio_options options = offload_options_default().aio;
    char folder[PATH_MAX], name[64];
    struct disk disk = {0};
    struct bench bench = {.share = share, .ctx = &disk};
    double seconds = 1;
    snprintf(
            name, sizeof name, "calibrate-%d-%d", comm_rank(comm),
            (int)getpid());
    ZD_TRY(token_cache_folder("auto", folder));
    ZD_TRY(aio_file_create(&disk.file, folder, name, ON_DISK, true));
    disk.data = zd_must(aligned_alloc(AIO_ALIGN, ON_DISK));
    memset(disk.data, 1, ON_DISK);
    sem_init(&disk.moved, 0, 0);
    enum zd_status status = aio_create(&options, &disk.aio);
    if (status == ZD_OK) {
        status = bench_time(&bench, move_halves, &seconds);
        aio_destroy(disk.aio);
    }
    *rate_out = ON_DISK / seconds;
    sem_destroy(&disk.moved);
    free(disk.data);
    aio_file_close(&disk.file);
    return status;
}

/* --- the wire ------------------------------------------------------------- */

/* A gather and a reduction of so many elements a rank, in fp32. */
static enum zd_status collect(
        struct comm *comm, float *full, float *shard, size_t count)
{
    struct comm_op *op;
    ZD_TRY(comm_all_gather_begin(comm, shard, full, count, DTYPE_FP32, &op));
    ZD_TRY(comm_wait(comm, op));
    ZD_TRY(comm_reduce_scatter_begin(
            comm, full, shard, count, DTYPE_FP32, false, &op));
    return comm_wait(comm, op);
}

/* Seconds of one of them, the best of `times`. */
static enum zd_status time_wire(
        struct comm *comm, float *full, float *shard, size_t count, int times,
        double *seconds_out)
{
    double best = INFINITY;
    for (int i = 0; i < times; i++) {
        ZD_TRY(comm_barrier(comm));
        double began = clock_seconds();
        ZD_TRY(collect(comm, full, shard, count));
        best = fmin(best, (clock_seconds() - began) / 2);
    }
    *seconds_out = best;
    return ZD_OK;
}

static enum zd_status measure_wire(
        struct comm *comm, double seconds, float *full, float *shard,
        struct plan_machine *machine)
{
    enum { FEW = 256, MANY = 1 << 20, ROUNDS_MAX = 200 };
    double world = comm_size(comm), local = comm_local_size(comm);
    double few, many, first;
    ZD_TRY(time_wire(comm, full, shard, FEW, 20, &few));
    ZD_TRY(time_wire(comm, full, shard, MANY, 2, &first));
    int64_t rounds = (int64_t)(seconds / 2 / (first > 0 ? first : 1));
    rounds = rounds < 3 ? 3 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
    ZD_TRY(comm_broadcast(comm, &rounds, sizeof rounds, 0));
    double began = clock_seconds(), cpu = thread_seconds();
    ZD_TRY(time_wire(comm, full, shard, MANY, (int)rounds, &many));
    machine->wire_cores = core_share(began, cpu);
    ZD_TRY(time_wire(comm, full, shard, FEW, (int)rounds * 4, &few));
    double bytes = (MANY - FEW) * sizeof(float), took = many - few;
    machine->latency = few / (world - 1);
    machine->wire_is_measured = true;
    if (world == local) {
        machine->inside = bytes * (world - 1) / took;
        return ZD_OK;
    }
    /* what goes to the ranks of this host is taken as known */
    double outside = took - bytes * (local - 1) / machine->inside;
    machine->between = bytes * (world - local) / fmax(outside, 1e-9);
    return ZD_OK;
}

static enum zd_status measure_ranks(
        struct comm *comm, double seconds, struct plan_machine *machine)
{
    enum { COUNT = 1 << 20 };
    struct arena_plan plan;
    struct arena arena = {0};
    size_t world = (size_t)comm_size(comm);
    const struct comm_needs needs = {
            .transport = comm_transport(comm),
            .world = comm_size(comm),
            .node_size = comm_mesh(comm).node,
            .shard_bytes = COUNT * sizeof(float),
            .reduce_bytes = COUNT * sizeof(float)};
    arena_plan_init(&plan);
    enum zd_status status = comm_plan_needs(&plan, &needs);
    if (status == ZD_OK)
        status = arena_plan_add(
                &plan, "full", ARENA_DEVICE, SPAN_BUFFERS,
                world * COUNT * sizeof(float));
    if (status == ZD_OK)
        status = arena_plan_add(
                &plan, "shard", ARENA_DEVICE, SPAN_BUFFERS,
                COUNT * sizeof(float));
    if (status == ZD_OK)
        status = arena_take(&arena, &plan);
    status = comm_agree(comm, status);
    if (status == ZD_OK) {
        comm_set_memory(comm, &arena);
        status = measure_wire(
                comm, seconds, arena_span(&arena, "full"),
                arena_span(&arena, "shard"), machine);
        comm_set_memory(comm, NULL);
    }
    arena_release(&arena);
    arena_plan_fini(&plan);
    return status;
}

enum zd_status calibrate_paths(
        struct comm *comm, double seconds, struct plan_machine *machine)
{
    double part = seconds / 3;
    enum zd_status status = measure_link(part, machine);
    if (status == ZD_OK)
        status = measure_disk(comm, part, &machine->disk);
    status = comm_agree(comm, status);
    if (status == ZD_OK && comm_size(comm) > 1)
        status = measure_ranks(comm, part, machine);
    return status;
}
