/* comm.c - our collectives against the MPI library's own, and against a copy.
 * Under mpirun:
 *
 *     mpirun -np 2 --bind-to core build/bench/bench_comm [MEBIBYTES]
 *
 * Times a reduce_scatter, an all_gather and an all_to_all of MEBIBYTES (default
 * 64) of fp32, the same by MPI, the sum in bf16, which MPI cannot add, an
 * all_reduce of the same number of bytes of integers, the same by
 * MPI_Allreduce, and a copy of as many bytes that bypasses the cache, on every
 * rank at once: the time of an all_gather if ranks could read each other's
 * memory. Each repeat runs all of them in turn, so that other load affects all.
 * Prints medians of the slowest rank's times, and medians of the ratios within
 * a repeat. */
#include "comm/comm.h"
#include "base/copy.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS = 31 };

struct bench {
    struct comm *comm;
    size_t count; /* elements of one shard, fp32 */
    float *full, *shard, *copy;
};

static void check(enum zd_status status)
{
    if (status == ZD_OK)
        return;
    zd_error_print(stderr, zd_error_get());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* The same number of bytes in each type. */
static void ours(
        const struct bench *b, enum comm_op_kind kind, const void *from,
        void *to, enum dtype type)
{
    struct comm_op *op;
    struct comm_op request = {
            .kind = kind,
            .from = from,
            .to = to,
            .count = b->count * sizeof(float) / dtype_bytes(type),
            .type = type};
    check(comm_begin(b->comm, &request, &op));
    check(comm_wait(b->comm, op));
}

static void our_reduce_scatter(const struct bench *b)
{
    ours(b, COMM_REDUCE_SCATTER, b->full, b->shard, DTYPE_FP32);
}

static void our_reduce_scatter_bf16(const struct bench *b)
{
    ours(b, COMM_REDUCE_SCATTER, b->full, b->shard, DTYPE_BF16);
}

static void our_all_gather(const struct bench *b)
{
    ours(b, COMM_ALL_GATHER, b->shard, b->full, DTYPE_FP32);
}

static void their_reduce_scatter(const struct bench *b)
{
    MPI_Reduce_scatter_block(
            b->full, b->shard, (int)b->count, MPI_FLOAT, MPI_SUM,
            MPI_COMM_WORLD);
}

static void their_all_gather(const struct bench *b)
{
    MPI_Allgather(
            b->shard, (int)b->count, MPI_FLOAT, b->full, (int)b->count,
            MPI_FLOAT, MPI_COMM_WORLD);
}

/* Uses the copy's memory, whose contents do not matter. */
static void our_all_to_all(const struct bench *b)
{
    ours(b, COMM_ALL_TO_ALL, b->full, b->copy, DTYPE_FP32);
}

static void their_all_to_all(const struct bench *b)
{
    MPI_Alltoall(
            b->full, (int)b->count, MPI_FLOAT, b->copy, (int)b->count,
            MPI_FLOAT, MPI_COMM_WORLD);
}

/* Also uses the copy's memory. */
static void our_all_reduce(const struct bench *b)
{
    check(comm_all_reduce_i64(
            b->comm, (int64_t *)(void *)b->copy,
            b->count * 4 * (size_t)comm_size(b->comm) / 8, COMM_SUM));
}

static void their_all_reduce(const struct bench *b)
{
    MPI_Allreduce(
            MPI_IN_PLACE, b->copy,
            (int)(b->count * 4 * (size_t)comm_size(b->comm) / 8), MPI_INT64_T,
            MPI_SUM, MPI_COMM_WORLD);
}

static void plain_copy(const struct bench *b)
{
    copy_past_cache(
            b->copy, b->full, b->count * 4 * (size_t)comm_size(b->comm));
}

enum {
    REDUCE,
    MPI_REDUCE,
    REDUCE_BF16,
    GATHER,
    MPI_GATHER,
    EXCHANGE,
    MPI_EXCHANGE,
    INTEGERS,
    MPI_INTEGERS,
    COPY,
    KINDS
};

static const struct kind {
    const char *name;
    void (*run)(const struct bench *);
    int beside; /* the kind whose time is divided by this one's; itself: none */
} kinds[KINDS] = {
        [REDUCE] = {"reduce_scatter fp32", our_reduce_scatter, MPI_REDUCE},
        [MPI_REDUCE] =
                {"MPI_Reduce_scatter_block", their_reduce_scatter, MPI_REDUCE},
        [REDUCE_BF16] =
                {"reduce_scatter bf16", our_reduce_scatter_bf16, REDUCE_BF16},
        [GATHER] = {"all_gather fp32", our_all_gather, MPI_GATHER},
        [MPI_GATHER] = {"MPI_Allgather", their_all_gather, MPI_GATHER},
        [EXCHANGE] = {"all_to_all fp32", our_all_to_all, MPI_EXCHANGE},
        [MPI_EXCHANGE] = {"MPI_Alltoall", their_all_to_all, MPI_EXCHANGE},
        [INTEGERS] = {"all_reduce int64", our_all_reduce, MPI_INTEGERS},
        [MPI_INTEGERS] = {"MPI_Allreduce", their_all_reduce, MPI_INTEGERS},
        [COPY] = {"copy", plain_copy, GATHER},
};

/* Seconds of one run on the slowest rank. */
static double seconds_of(const struct bench *b, const struct kind *kind)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double seconds = MPI_Wtime(), slowest;
    kind->run(b);
    seconds = MPI_Wtime() - seconds;
    MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(const double *values)
{
    double sorted[REPEATS];
    memcpy(sorted, values, sizeof sorted);
    qsort(sorted, REPEATS, sizeof *sorted, by_size);
    return sorted[REPEATS / 2];
}

static void measure(const struct bench *b)
{
    double seconds[KINDS][REPEATS], ratios[REPEATS];
    for (int i = -1; i < REPEATS; i++) /* the first is a warm-up */
        for (int k = 0; k < KINDS; k++) {
            double taken = seconds_of(b, &kinds[k]);
            if (i >= 0)
                seconds[k][i] = taken;
        }
    if (comm_rank(b->comm) != 0)
        return;
    double bytes = (double)b->count * 4 * comm_size(b->comm);
    for (int k = 0; k < KINDS; k++) {
        const struct kind *kind = &kinds[k];
        double median = median_of(seconds[k]);
        printf("%-28s %8.2f ms %8.2f GB/s", kind->name, median * 1e3,
               bytes / median * 1e-9);
        for (int i = 0; i < REPEATS; i++)
            ratios[i] = seconds[kind->beside][i] / seconds[k][i];
        if (kind->beside != k)
            printf("  %5.2f x the speed of %s", median_of(ratios),
                   kinds[kind->beside].name);
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    struct comm_options options = {.backend = COMM_MPI};
    struct arena_plan plan;
    struct arena arena;
    check(comm_mpi_create(&argc, &argv, &options, &b.comm));
    size_t bytes = (size_t)(argc > 1 ? atoi(argv[1]) : 64) << 20;
    size_t size = (size_t)comm_size(b.comm);
    b.count = bytes / 4 / size;
    arena_plan_init(&plan);
    check(comm_plan_needs(
            &plan,
            &(struct comm_needs){
                    .transport = COMM_TRANSPORT_HOST, .world = (int)size}));
    check(arena_plan_add(&plan, "full", ARENA_HOST, SPAN_BUFFERS, bytes));
    check(arena_plan_add(
            &plan, "shard", ARENA_HOST, SPAN_BUFFERS, b.count * 4));
    check(arena_plan_add(&plan, "copy", ARENA_HOST, SPAN_BUFFERS, bytes));
    check(arena_take(&arena, &plan));
    comm_set_memory(b.comm, &arena);
    b.full = arena_span(&arena, "full");
    b.shard = arena_span(&arena, "shard");
    b.copy = arena_span(&arena, "copy");
    for (size_t i = 0; i < size * b.count; i++)
        b.full[i] = 1.0f / (float)(i % 1000 + 1);
    memset(b.shard, 0, b.count * 4);

    measure(&b);
    comm_destroy(b.comm);
    arena_release(&arena);
    arena_plan_fini(&plan);
    return 0;
}
