/* calibrate.c - measures the numbers of a machine's row (machine.h) with the
 * operations of a run. Takes the mean of many runs: a step also consists of
 * many, and includes what other processes on the machine take. */
#include "train/plan/calibrate.h"

#include "base/clock.h"
#include "base/device/device_memory.h"
#include "base/device/stream.h"
#include "base/memory/arena.h"
#include "base/must.h"
#include "data/token_cache.h"
#include "kernels/kernels.h"
#include "offload/aio.h"
#include "train/plan/machine.h"
#include "train/plan/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Limits of a weight's sides and its input's rows: a small model on a CPU, a
 * large one on a GPU; smaller if one run would take too long. */
enum { SIDE_LEAST = 512, FEW_LEAST = 32 };
static const struct {
    int side, rows;
} most[] = {[DEVICE_CPU] = {512, 2048}, [DEVICE_CUDA] = {4096, 4096}};

/* Rows of x, a weight, its gradient, and results. Each array is larger than the
 * caches, and a run uses its least recently used part. */
enum { X, WEIGHT, GRAD, OUT, ARRAYS, ARRAY_BYTES = 64 << 20 };
/* Bytes to copy and to write to disk; elements per rank of a gather. */
enum { COPIED = ARRAY_BYTES, SHARD = 1 << 20, SHARD_BYTES = SHARD * 4 };

struct ops {
    const struct kernels *kernels;
    enum dtype type;
    enum fp8_mode fp8;
    int side, few, many, rows;
    char *arrays[ARRAYS];
};

/* --- memory --------------------------------------------------------------- */

static enum zd_status fill(const struct ops *ops)
{
    enum { PIECE = 1 << 16 };
    size_t bytes = PIECE * dtype_bytes(ops->type);
    ZD_FREED float *floats = zd_must(malloc(PIECE * sizeof *floats));
    ZD_FREED char *narrow = zd_must(malloc(bytes));
    uint32_t state = 1;
    for (int i = 0; i < PIECE; i++) {
        state = state * 1664525u + 1013904223u;
        floats[i] = (float)(int32_t)state * 0x1p-31f;
    }
    dtype_convert(narrow, ops->type, floats, DTYPE_FP32, PIECE);
    for (size_t at = 0; at < ARRAYS * (size_t)ARRAY_BYTES; at += bytes)
        ZD_TRY(device_write(ops->arrays[0] + at, narrow, bytes));
    return ZD_OK;
}

/* Takes memory, which all measurements but the wire's share. */
static enum zd_status take(
        struct comm *comm, struct arena_plan *plan, struct arena *arena)
{
    const int side = most[device_backend()].side;
    const size_t workspace =
            device_backend() == DEVICE_CUDA
                    ? kernels_workspace_bytes(
                              most[DEVICE_CUDA].rows, side, side)
                    : 0;
    const struct comm_needs needs = {
            .transport = comm_transport(comm),
            .world = comm_size(comm),
            .node_size = comm_mesh(comm).node,
            .shard_bytes = SHARD_BYTES,
            .reduce_bytes = SHARD_BYTES};
    const struct {
        const char *name;
        enum arena_memory memory;
        size_t bytes;
    } spans[] = {
            {"arrays", ARENA_DEVICE, ARRAYS * (size_t)ARRAY_BYTES},
            {"workspace", ARENA_DEVICE, workspace},
            {"host", ARENA_PINNED, COPIED},
            {"full", ARENA_DEVICE, (size_t)comm_size(comm) * SHARD_BYTES},
            {"shard", ARENA_DEVICE, SHARD_BYTES}};
    for (size_t i = 0; i < sizeof spans / sizeof *spans; i++)
        ZD_TRY(arena_plan_add(
                plan, spans[i].name, spans[i].memory, SPAN_BUFFERS,
                spans[i].bytes));
    if (comm_size(comm) > 1)
        ZD_TRY(comm_plan_needs(plan, &needs));
    ZD_TRY(arena_take(arena, plan));
    kernels_set_workspace(arena_span(arena, "workspace"), workspace);
    return ZD_OK;
}

static char *part(const struct bench *b, int array, size_t bytes)
{
    const struct ops *ops = b->ctx;
    return ops->arrays[array] + b->rounds % (ARRAY_BYTES / bytes) * bytes;
}

/* --- operations ----------------------------------------------------------- */

/* Forward, and backward for the input and for the weight; in FP8 with arbitrary
 * codes and scales. */
static enum zd_status multiply(struct bench *b)
{
    const struct ops *ops = b->ctx;
    bool is_fp8 = ops->fp8 != FP8_NONE, by_blocks = ops->fp8 == FP8_BLOCKWISE;
    size_t side = (size_t)ops->side, width = dtype_bytes(ops->type);
    size_t rows = (size_t)ops->rows * side, weight = side * side;
    size_t held = is_fp8 ? 1 : width;
    struct matmul_operand x = {part(b, X, rows * held), ops->type}, w;
    if (is_fp8)
        x = (struct matmul_operand){
                .data = x.data,
                .type = DTYPE_E4M3,
                .scales = (const float *)(const void *)ops->arrays[GRAD],
                .layout = by_blocks ? SCALES_1X128 : SCALES_TENSOR};
    w = x;
    w.data = part(b, WEIGHT, weight * held);
    w.transposed = is_fp8;
    w.layout = by_blocks ? SCALES_128X128 : x.layout;
    struct matmul m = {
            .M = ops->rows,
            .N = (int)side,
            .K = (int)side,
            .a = x,
            .b = w,
            .out = {part(b, OUT, rows * width), ops->type}};
    ZD_TRY(ops->kernels->matmul(NULL, &m));
    m.b.transposed = true;
    m.a.type = ops->fp8 == FP8_TENSORWISE ? DTYPE_E5M2 : x.type;
    ZD_TRY(ops->kernels->matmul(NULL, &m));
    m.M = (int)side;
    m.K = ops->rows;
    m.a.transposed = !is_fp8;
    m.b = x;
    m.b.transposed = is_fp8;
    m.out = (struct matmul_result){
            part(b, GRAD, weight * sizeof(float)), DTYPE_FP32};
    return ops->kernels->matmul(NULL, &m);
}

/* For each FP8 mode; 0 if the device does not support it. */
static enum zd_status measure_codes(
        struct bench *b, struct ops *ops, double rate, double times[2])
{
    struct device_facts facts = device_facts();
    double side = ops->side, took;
    for (int i = 0; i < 2; i++) {
        ops->fp8 = i ? FP8_BLOCKWISE : FP8_TENSORWISE;
        times[i] = 0;
        if (facts.backend == DEVICE_CUDA &&
            !plan_has_fp8(ops->fp8, 10 * facts.major + facts.minor))
            continue;
        ZD_TRY(bench_time(b, multiply, &took));
        times[i] = 3 * 2 * side * side * ops->rows / took / rate;
    }
    ops->fp8 = FP8_NONE;
    return ZD_OK;
}

/* Element-wise work as between matmuls; 6 reads and writes per element. */
enum { SURROUND_MOVES = 6 };
static enum zd_status surround(struct bench *b)
{
    const struct ops *ops = b->ctx;
    int rows = ops->rows, C = ops->side;
    size_t count = (size_t)rows * (size_t)C,
           bytes = count * dtype_bytes(ops->type);
    char *x = part(b, X, bytes), *y = part(b, WEIGHT, bytes),
         *z = part(b, OUT, bytes);
    ZD_TRY(ops->kernels->gated_forward(NULL, GATE_SILU, z, x, y, rows, C, C));
    return ops->kernels->add(NULL, y, x, z, count);
}

/* --- copies, the disk and the wire -----------------------------------------
 */

static double thread_seconds(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

/* The share of the time since `began` in which this thread had a core; `cpu`:
 * thread_seconds at that time. Above one half returns 1: the measured time
 * already includes other processes' share. */
static double core_share(double began, double cpu)
{
    double share = (thread_seconds() - cpu) / (clock_seconds() - began);
    return share < 0.5 ? share : 1;
}

/* --- between host and device ---------------------------------------------- */

static enum zd_status copy_both(struct bench *b)
{
    void *host = arena_span(b->ctx, "host");
    void *device = arena_span(b->ctx, "arrays");
    ZD_TRY(stream_copy(NULL, device, host, COPIED));
    return stream_copy(NULL, host, device, COPIED);
}

static enum zd_status measure_link(
        double share, const struct arena *arena, struct plan_machine *machine)
{
    struct bench bench = {.share = share, .ctx = arena};
    double seconds;
    ZD_TRY(copy_both(&bench)); /* warm-up */
    double began = clock_seconds(), cpu = thread_seconds();
    ZD_TRY(bench_time(&bench, copy_both, &seconds));
    machine->link = 2 * COPIED / seconds;
    machine->link_cores = core_share(began, cpu);
    return ZD_OK;
}

/* --- the disk ------------------------------------------------------------- */

struct disk {
    struct aio_file file;
    char *data;
};

/* Reads one half while writing the other, as states come and go, with the
 * number of pending transfers of a run. */
static enum zd_status move_halves(struct bench *b)
{
    enum { HALF = COPIED / 2 };
    const struct aio_options options = offload_options_default().aio;
    const struct disk *disk = b->ctx;
    struct aio_op ops[2];
    struct aio *aio;
    ZD_TRY(aio_create(&options, &aio));
    for (int i = 0; i < 2; i++) {
        ops[i] = (struct aio_op){
                .file = &disk->file,
                .is_write = i == 1,
                .data = disk->data + i * (size_t)HALF,
                .bytes = HALF,
                .offset = (uint64_t)i * HALF};
        aio_submit(aio, &ops[i]);
    }
    aio_destroy(aio);
    ZD_TRY(aio_op_status(&ops[0]));
    return aio_op_status(&ops[1]);
}

static enum zd_status measure_disk(
        struct comm *comm, double share, const struct arena *arena,
        struct plan_machine *machine)
{
    char folder[PATH_MAX], name[64];
    struct disk disk = {.data = arena_span(arena, "host")};
    struct bench bench = {.share = share, .ctx = &disk};
    double seconds = 1;
    ZD_PRINT(name, "calibrate-%d-%d", comm_rank(comm), (int)getpid());
    ZD_TRY(token_cache_folder("auto", folder));
    ZD_TRY(aio_file_create(&disk.file, folder, name, COPIED, true));
    memset(disk.data, 1, COPIED);
    enum zd_status status = bench_time(&bench, move_halves, &seconds);
    machine->disk = COPIED / seconds;
    aio_file_close(&disk.file);
    return status;
}

/* --- the wire ------------------------------------------------------------- */

/* A gather and a reduction of `count` elements per rank, in fp32. */
static enum zd_status collect(
        struct comm *comm, float *full, float *shard, size_t count)
{
    struct comm_op gather = {
            .kind = COMM_ALL_GATHER, .from = shard, .to = full, .count = count};
    struct comm_op sum = {.from = full, .to = shard, .count = count};
    struct comm_op *op;
    ZD_TRY(comm_begin(comm, &gather, &op));
    ZD_TRY(comm_wait(comm, op));
    ZD_TRY(comm_begin(comm, &sum, &op));
    return comm_wait(comm, op);
}

/* Seconds of one of them, the minimum of `times`. */
static enum zd_status time_wire(
        struct comm *comm, const struct arena *arena, size_t count, int times,
        double *seconds_out)
{
    float *full = arena_span(arena, "full"),
          *shard = arena_span(arena, "shard");
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
        struct comm *comm, double seconds, const struct arena *arena,
        struct plan_machine *machine)
{
    enum { FEW = 256, MANY = SHARD, ROUNDS_MAX = 200 };
    double world = comm_size(comm), local = comm_local_size(comm);
    double few, many, first;
    ZD_TRY(time_wire(comm, arena, FEW, 20, &few));
    ZD_TRY(time_wire(comm, arena, MANY, 2, &first));
    int64_t rounds = (int64_t)(seconds / 2 / (first > 0 ? first : 1));
    rounds = rounds < 3 ? 3 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
    ZD_TRY(comm_broadcast(comm, &rounds, sizeof rounds, 0));
    double began = clock_seconds(), cpu = thread_seconds();
    ZD_TRY(time_wire(comm, arena, MANY, (int)rounds, &many));
    machine->wire_cores = core_share(began, cpu);
    ZD_TRY(time_wire(comm, arena, FEW, (int)rounds * 4, &few));
    double bytes = (MANY - FEW) * sizeof(float), took = many - few;
    machine->latency = few / (world - 1);
    machine->wire_is_measured = true;
    if (world == local) {
        machine->inside = bytes * (world - 1) / took;
        return ZD_OK;
    }
    /* subtract the known time within this host */
    double outside = took - bytes * (local - 1) / machine->inside;
    machine->between = bytes * (world - local) / fmax(outside, 1e-9);
    return ZD_OK;
}

static enum zd_status measure_paths(
        struct comm *comm, double seconds, const struct arena *arena,
        struct plan_machine *machine)
{
    double part = seconds / 3;
    enum zd_status status = measure_link(part, arena, machine);
    ZD_THEN(status, measure_disk(comm, part, arena, machine));
    ZD_TRY(comm_agree(comm, status));
    if (comm_size(comm) == 1)
        return ZD_OK;
    comm_set_memory(comm, arena);
    status = measure_wire(comm, part, arena, machine);
    comm_set_memory(comm, NULL);
    return status;
}

/* --- all of it ------------------------------------------------------------ */

/* Chooses the largest shape whose run fits in the time. */
static enum zd_status choose_shape(struct bench *b, struct ops *ops)
{
    double took = 0;
    ops->side = SIDE_LEAST / 2;
    do {
        ops->side *= 2;
        ops->few = ops->rows = ops->side / (SIDE_LEAST / FEW_LEAST);
        ZD_TRY(multiply(b));
        ZD_TRY(device_finish());
        double began = clock_seconds();
        ZD_TRY(multiply(b));
        ZD_TRY(device_finish());
        took = clock_seconds() - began;
    } while (ops->side < most[device_backend()].side && took < b->share / 64);
    ops->many = 4 * ops->few;
    while (ops->many < most[device_backend()].rows &&
           took * 4 * ops->many / ops->few < 2 * b->share)
        ops->many *= 4;
    return ZD_OK;
}

/* Measures few rows and many, and fits a line through both times. */
static enum zd_status measure_matmuls(
        struct bench *b, struct ops *ops, double *rate_out, double *half_out)
{
    double side = ops->side, few = ops->few, many = ops->many, a, z;
    ops->rows = ops->few;
    ZD_TRY(bench_time(b, multiply, &a));
    ops->rows = ops->many;
    ZD_TRY(bench_time(b, multiply, &z));
    double each = fmin(z / many, fmax((z - a) / (many - few), z / many / 2));
    *rate_out = 3 * 2 * side * side / each;
    *half_out = fmax(z / each - many, 0);
    return ZD_OK;
}

static enum zd_status measure_device(
        struct ops *ops, double seconds, struct plan_machine *machine)
{
    enum { THINGS = 8 };
    struct bench bench = {.share = seconds / THINGS, .ctx = ops};
    double took, moved = 0;
    for (int wide = 0; wide < 2; wide++) {
        ops->type = wide ? DTYPE_FP32 : DTYPE_BF16;
        ZD_TRY(kernels_device(ops->type, &ops->kernels));
        ZD_TRY(fill(ops));
        ZD_TRY(choose_shape(&bench, ops));
        ZD_TRY(measure_matmuls(
                &bench, ops, &machine->products[wide], &machine->half[wide]));
        if (!wide)
            ZD_TRY(measure_codes(
                    &bench, ops, machine->products[0], machine->fp8));
        ZD_TRY(bench_time(&bench, surround, &took));
        moved += SURROUND_MOVES * (double)ops->rows * ops->side *
                 (double)dtype_bytes(ops->type) / took / 2;
    }
    machine->memory = moved;
    return ZD_OK;
}

/* How much slower the slowest rank is than the mean, per doubling of ranks; in
 * pieces of 20 ms, about the time of a layer. */
static enum zd_status measure_jitter(
        struct comm *comm, struct ops *ops, double seconds, double *jitter_out)
{
    struct bench bench = {.ctx = ops};
    double own = 0, all = 0, until = clock_seconds() + seconds;
    int64_t goes_on = 1;
    while (goes_on) {
        ZD_TRY(comm_barrier(comm));
        double began = clock_seconds(), took = 0;
        for (; took < 0.02; bench.rounds++, took = clock_seconds() - began) {
            ZD_TRY(multiply(&bench));
            ZD_TRY(device_finish());
        }
        own += took;
        goes_on = clock_seconds() < until;
        ZD_TRY(comm_all_reduce_i64(comm, &goes_on, 1, COMM_MIN));
        all += clock_seconds() - began;
    }
    *jitter_out = fmax(0, all / own - 1) / log2(comm_size(comm));
    return ZD_OK;
}

/* Measures everything, one after the other. */
static enum zd_status measure(
        struct comm *comm, double seconds, int threads,
        const struct arena *arena, struct plan_machine *machine)
{
    struct ops ops = {.rows = 0};
    for (int i = 0; i < ARRAYS; i++)
        ops.arrays[i] =
                (char *)arena_span(arena, "arrays") + i * (size_t)ARRAY_BYTES;
    ZD_TRY(comm_agree(comm, measure_device(&ops, 0.6 * seconds, machine)));
    if (comm_size(comm) > 1)
        ZD_TRY(measure_jitter(comm, &ops, 0.05 * seconds, &machine->jitter));
    ZD_TRY(comm_agree(
            comm, calibrate_updates(comm, 0.15 * seconds, threads, machine)));
    ZD_TRY(calibration_mean(comm, machine));
    return measure_paths(comm, 0.2 * seconds, arena, machine);
}

enum zd_status calibration_measure(
        struct comm *comm, double seconds, int threads,
        struct plan_calibration *out)
{
    ZD_SCOPED(arena_plan_fini) struct arena_plan plan = {0};
    ZD_SCOPED(arena_release) struct arena arena = {0};
    struct device_facts facts = device_facts();
    *out = (struct plan_calibration){
            .ranks = comm_local_size(comm),
            .threads = threads,
            .backend = device_backend(),
            .machine = *plan_machine_default(device_backend())};
    ZD_PRINT(
            out->what, "%s, %d rank%s of %d thread%s",
            out->backend == DEVICE_CUDA ? facts.name : "the CPU device",
            out->ranks, out->ranks == 1 ? "" : "s", threads,
            threads == 1 ? "" : "s");
    kernels_set_threads(threads);
    ZD_TRY(comm_agree(comm, take(comm, &plan, &arena)));
    enum zd_status status =
            measure(comm, seconds, threads, &arena, &out->machine);
    kernels_set_workspace(NULL, 0);
    return status;
}
