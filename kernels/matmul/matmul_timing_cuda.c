/* matmul_timing_cuda.c - the fastest of the algorithms that the library offers,
 * by trying them. */
#include "kernels/matmul/matmul_plan_cuda.h"

#include "base/device/device_cuda.h"
#include "base/log.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic int timing_mode = PRODUCTS_LARGE;

void products_set_timing(enum products_timing timing)
{
    timing_mode = timing;
}

static enum products_timing timing_now(void)
{
    const char *set = getenv("ZEROD_MATMUL_TIMING");
    if (!set || !*set)
        return (enum products_timing)timing_mode;
    if (strcmp(set, "off") == 0)
        return PRODUCTS_HEURISTIC;
    return strcmp(set, "all") == 0 ? PRODUCTS_ALL : PRODUCTS_LARGE;
}

bool plan_is_timed(const struct product *p)
{
    enum products_timing mode = timing_now();
    double operations = 2.0 * p->m * p->n * p->k;
    return mode == PRODUCTS_ALL ||
           (mode == PRODUCTS_LARGE && operations >= 0x1p30);
}

struct stopwatch {
    cudaEvent_t start, stop;
};

static enum zd_status stopwatch_create(struct stopwatch *watch)
{
    ZD_CUDA(cudaEventCreate(&watch->start));
    cudaError_t error = cudaEventCreate(&watch->stop);
    if (error != cudaSuccess)
        cudaEventDestroy(watch->start);
    return device_cuda_check(error, "cudaEventCreate");
}

static void stopwatch_destroy(struct stopwatch *watch)
{
    cudaEventDestroy(watch->start);
    cudaEventDestroy(watch->stop);
}

struct trial {
    const struct plan_table *table;
    const struct plan *plan;
    const struct product_operands *operands;
    cudaStream_t stream;
    struct stopwatch watch;
};

/* One run; *took_out < 0 where the library refuses the algorithm after all. */
static enum zd_status run_once(
        const struct trial *trial, const cublasLtMatmulAlgo_t *algorithm,
        double *took_out)
{
    float milliseconds;
    *took_out = -1.0;
    ZD_CUDA(cudaEventRecord(trial->watch.start, trial->stream));
    cublasStatus_t status = plan_launch(
            trial->table, trial->plan, algorithm, trial->operands,
            trial->stream);
    if (status != CUBLAS_STATUS_SUCCESS)
        return ZD_OK;
    ZD_CUDA(cudaEventRecord(trial->watch.stop, trial->stream));
    ZD_CUDA(cudaEventSynchronize(trial->watch.stop));
    ZD_CUDA(cudaEventElapsedTime(
            &milliseconds, trial->watch.start, trial->watch.stop));
    *took_out = 1e3 * (double)milliseconds;
    return ZD_OK;
}

/* The shortest of a few runs after one that loads the kernel; a candidate that
 * is far behind is dropped early. */
static enum zd_status measure_one(
        const struct trial *trial, const cublasLtMatmulAlgo_t *algorithm,
        double best, double *shortest_out)
{
    enum { RUNS = 5 };
    double took;
    *shortest_out = -1.0;
    ZD_TRY(run_once(trial, algorithm, &took));
    if (took < 0.0)
        return ZD_OK;
    for (int run = 0; run < RUNS; run++) {
        ZD_TRY(run_once(trial, algorithm, &took));
        if (took < 0.0)
            return ZD_OK;
        if (*shortest_out < 0.0 || took < *shortest_out)
            *shortest_out = took;
        if (best >= 0.0 && *shortest_out > 1.5 * best)
            break;
    }
    return ZD_OK;
}

static enum zd_status measure_all(
        struct trial *trial, struct plan *plan,
        const struct plan_candidates *candidates)
{
    double best = -1.0;
    for (int i = 0; i < candidates->count; i++) {
        double took;
        ZD_TRY(measure_one(trial, &candidates->algorithms[i], best, &took));
        if (took < 0.0 || (best >= 0.0 && took >= best))
            continue;
        best = took;
        plan->algorithm = candidates->algorithms[i];
    }
    plan->microseconds = best > 0.0 ? best : 0.0;
    return ZD_OK;
}

enum zd_status plan_measure(
        const struct plan_table *table, struct plan *plan,
        const struct plan_candidates *candidates,
        const struct product_operands *operands, cudaStream_t stream)
{
    struct trial trial = {
            .table = table,
            .plan = plan,
            .operands = operands,
            .stream = stream,
    };
    ZD_TRY(stopwatch_create(&trial.watch));
    enum zd_status status = measure_all(&trial, plan, candidates);
    stopwatch_destroy(&trial.watch);
    return status;
}

static enum zd_status time_once(
        const struct stopwatch *watch, product_fn *run, const void *ctx,
        cudaStream_t stream, double *took_out)
{
    float milliseconds;
    ZD_CUDA(cudaEventRecord(watch->start, stream));
    ZD_TRY(run(ctx));
    ZD_CUDA(cudaEventRecord(watch->stop, stream));
    ZD_CUDA(cudaEventSynchronize(watch->stop));
    ZD_CUDA(cudaEventElapsedTime(&milliseconds, watch->start, watch->stop));
    *took_out = 1e3 * (double)milliseconds;
    return ZD_OK;
}

enum zd_status plan_time(
        product_fn *run, const void *ctx, cudaStream_t stream,
        double *microseconds_out)
{
    enum { RUNS = 5 };
    struct stopwatch watch;
    enum zd_status status = ZD_OK;
    *microseconds_out = 1e30;
    ZD_TRY(stopwatch_create(&watch));
    for (int i = 0; i < RUNS && status == ZD_OK; i++) {
        double took = 1e30;
        status = time_once(&watch, run, ctx, stream, &took);
        if (took < *microseconds_out)
            *microseconds_out = took;
    }
    stopwatch_destroy(&watch);
    return status;
}
