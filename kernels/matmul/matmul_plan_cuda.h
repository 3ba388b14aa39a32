/* matmul_plan_cuda.h - what is kept for a kind of matmul. Private to
 * matmul_*_cuda.c. */
#pragma once

#include "kernels/matmul/cublaslt.h"
#include "kernels/matmul/matmul_cuda.h"
#include "kernels/matmul/matmul_tuning.h"

#include <cuda_runtime_api.h>
#include <pthread.h>

enum { PLAN_SLOTS = 1024, PLAN_CANDIDATES = 16, PLAN_LOCK_TIMEOUT_MS = 10000 };

struct plan {
    bool is_made, is_refused;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    struct tuned tuned; /* the key too; microseconds 0: it was not timed */
};

/* Of one GPU; `lock`, which its holder may take again, is held by whoever reads
 * or writes the rest, also while a matmul is queued, because its pointers are
 * set in the shared descriptor. */
struct plan_table {
    pthread_mutex_t lock;
    bool is_open;
    const struct cublaslt *api;
    cublasLtHandle_t handle;
    struct tuning *tuning;
    struct tuning *run;     /* this run's algorithms, which override the file */
    size_t workspace_bytes; /* that plans were made for */
    struct matmul_counters counters;
    int count;
    struct plan *plans; /* PLAN_SLOTS, by hash */
};

static inline uint32_t plan_workspace_kib(const struct plan_table *table)
{
    return (uint32_t)(table->workspace_bytes / 1024);
}

/* Of the thread's GPU. ready: opened, with its lock held, for the workspace
 * that there is now. */
struct plan_table *plan_table_of_device(void);
enum zd_status plan_table_ready(struct plan_table *table);
/* What the environment has set. */
enum matmul_timing plan_timing(void);

struct plan_candidates {
    int count;
    cublasStatus_t refusal; /* what the library said where there are none */
    cublasLtMatmulAlgo_t algorithms[PLAN_CANDIDATES];
};

/* An algorithm as it is remembered: the library's own 64 bytes. */
static inline const cublasLtMatmulAlgo_t *plan_algorithm(
        const struct tuned *tuned)
{
    return (const cublasLtMatmulAlgo_t *)tuned->algorithm;
}

/* What is timed: `run` queues way 0 .. count - 1 once on `stream`, and may be
 * called often. *refused_out: it cannot be done in this way. */
struct timed_ways {
    enum zd_status (*run)(const void *work, int way, bool *refused_out);
    const void *work;
    struct stream *stream;
    int count;
};
/* Microseconds of each, the shortest of a few runs after one that loads the
 * kernel; < 0 where it is refused. One that is far slower than the best before
 * it is dropped early. *fastest_out -1: all are refused. Waits for the device.
 */
enum zd_status timing_measure(
        const struct timed_ways *ways, double *took, int *fastest_out);

/* The library's "bias": read, or sums that it writes. */
static inline const void *plan_bias(const struct matmul *m)
{
    bool is_sum = m->epilogue == MATMUL_SUM_A || m->epilogue == MATMUL_SUM_B;
    return is_sum ? m->aux : m->bias;
}

/* Descriptors and layouts of the plan's key, in an otherwise empty plan; needs
 * no GPU. plan_clear frees them, also half of them. */
enum zd_status plan_describe(const struct plan_table *table, struct plan *plan);
void plan_clear(const struct plan_table *table, struct plan *plan);

/* What the library offers, its first choice first; none: it refuses. */
enum zd_status plan_candidates(
        const struct plan_table *table, const struct plan *plan,
        struct plan_candidates *candidates);
/* Whether an algorithm from elsewhere will do. */
bool plan_accepts(
        const struct plan_table *table, const struct plan *plan,
        const cublasLtMatmulAlgo_t *algorithm);

/* Queues the matmul by one algorithm. */
cublasStatus_t plan_launch(
        const struct plan_table *table, const struct plan *plan,
        const cublasLtMatmulAlgo_t *algorithm, const struct matmul *matmul,
        cudaStream_t stream);
