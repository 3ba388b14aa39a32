/* How near our collectives come to the MPI library's own. Under mpirun:
 *
 *     mpirun -np 2 --bind-to core build/bench/bench_comm [MEBIBYTES]
 *
 * Times a reduce_scatter and an all_gather of MEBIBYTES (default 64) of fp32,
 * the same by MPI_Reduce_scatter_block and MPI_Allgather, and the same sum in
 * bf16, which MPI cannot add. Best of the repeats, slowest rank; results on
 * stdout. */
#include "comm/comm.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS = 15 };

struct bench {
    struct comm *comm;
    size_t count; /* elements of one shard, fp32 */
    float *full, *shard;
};

static void check(enum zd_status status)
{
    if (status == ZD_OK)
        return;
    zd_error_print(stderr, zd_error_get());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void our_reduce_scatter(const struct bench *b)
{
    struct comm_op *op;
    check(comm_reduce_scatter_begin(
            b->comm, b->full, b->shard, b->count, DTYPE_FP32, false, &op));
    check(comm_wait(b->comm, op));
}

static void our_reduce_scatter_bf16(const struct bench *b)
{
    struct comm_op *op;
    check(comm_reduce_scatter_begin(
            b->comm, b->full, b->shard, 2 * b->count, DTYPE_BF16, false, &op));
    check(comm_wait(b->comm, op));
}

static void our_all_gather(const struct bench *b)
{
    struct comm_op *op;
    check(comm_all_gather_begin(
            b->comm, b->shard, b->full, b->count, DTYPE_FP32, &op));
    check(comm_wait(b->comm, op));
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

/* Best of the repeats, by the slowest rank, in seconds. */
static double best_of(const struct bench *b, void (*run)(const struct bench *))
{
    double best = 1e9;
    for (int i = 0; i < REPEATS; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double seconds = MPI_Wtime(), slowest;
        run(b);
        seconds = MPI_Wtime() - seconds;
        MPI_Allreduce(
                &seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        if (slowest < best)
            best = slowest;
    }
    return best;
}

static double report(
        const struct bench *b, const char *name,
        void (*run)(const struct bench *))
{
    double seconds = best_of(b, run);
    double bytes = (double)b->count * 4 * comm_size(b->comm);
    if (comm_rank(b->comm) == 0)
        printf("%-28s %8.2f ms %8.2f GB/s\n", name, seconds * 1e3,
               bytes / seconds * 1e-9);
    return seconds;
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
    check(comm_plan(&plan, (int)size));
    check(arena_plan_add(&plan, "full", ARENA_HOST, SPAN_BUFFERS, bytes));
    check(arena_plan_add(
            &plan, "shard", ARENA_HOST, SPAN_BUFFERS, b.count * 4));
    check(arena_take(&arena, &plan));
    comm_set_staging(b.comm, arena_span(&arena, "comm.staging"));
    b.full = arena_span(&arena, "full");
    b.shard = arena_span(&arena, "shard");
    for (size_t i = 0; i < size * b.count; i++)
        b.full[i] = 1.0f / (float)(i % 1000 + 1);
    memset(b.shard, 0, b.count * 4);

    double ours = report(&b, "reduce_scatter fp32", our_reduce_scatter);
    double theirs =
            report(&b, "MPI_Reduce_scatter_block", their_reduce_scatter);
    if (comm_rank(b.comm) == 0)
        printf("%-28s %8.2f x\n", "speed over MPI's", theirs / ours);
    report(&b, "reduce_scatter bf16", our_reduce_scatter_bf16);
    ours = report(&b, "all_gather fp32", our_all_gather);
    theirs = report(&b, "MPI_Allgather", their_all_gather);
    if (comm_rank(b.comm) == 0)
        printf("%-28s %8.2f x\n", "speed over MPI's", theirs / ours);

    comm_destroy(b.comm);
    arena_release(&arena);
    arena_plan_fini(&plan);
    return 0;
}
