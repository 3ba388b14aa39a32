/* matmul_plan_cuda.h - plans of matmuls. Private to matmul_*_cuda.c. */
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
    struct tuned tuned; /* with the key; microseconds 0: not timed */
};

/* The plans of one GPU. Hold `lock` (recursive) to read or write the rest, and
 * while queueing a matmul, because its pointers are set in the shared
 * descriptor. */
struct plan_table {
    pthread_mutex_t lock;
    bool is_open;
    const struct cublaslt *api;
    cublasLtHandle_t handle;
    struct tuning *tuning;
    struct tuning *run;     /* this run's algorithms; override the file */
    size_t workspace_bytes; /* of the current plans */
    struct matmul_counters counters;
    int count;
    struct plan *plans; /* PLAN_SLOTS, by hash */
};

static inline uint32_t plan_workspace_kib(const struct plan_table *table)
{
    return (uint32_t)(table->workspace_bytes / 1024);
}

/* The table of the thread's GPU. plan_table_ready opens it and adapts it to the
 * current workspace; call it with the lock held. */
struct plan_table *plan_table_of_device(void);
enum zd_status plan_table_ready(struct plan_table *table);
/* As set in the environment. */
enum matmul_timing plan_timing(void);

struct plan_candidates {
    int count;
    cublasStatus_t refusal; /* the library's status if there are none */
    cublasLtMatmulAlgo_t algorithms[PLAN_CANDIDATES];
};

/* A remembered algorithm: the library's own 64 bytes. */
static inline const cublasLtMatmulAlgo_t *plan_algorithm(
        const struct tuned *tuned)
{
    return (const cublasLtMatmulAlgo_t *)tuned->algorithm;
}

/* Ways to time: `run` queues way 0 .. count - 1 once on `stream`, and is called
 * repeatedly. *refused_out: this way is not possible. */
struct timed_ways {
    enum zd_status (*run)(const void *work, int way, bool *refused_out);
    const void *work;
    struct stream *stream;
    int count;
};
/* Microseconds of each way: the shortest of a few runs after a first one, which
 * loads the kernel; < 0 if refused. Stops early on a way that is far slower
 * than the best so far. *fastest_out -1: all are refused. Waits for the device.
 */
enum zd_status timing_measure(
        const struct timed_ways *ways, double *took, int *fastest_out);

/* The library's "bias" pointer: a bias that it reads, or sums that it writes.
 */
static inline const void *plan_bias(const struct matmul *m)
{
    bool is_sum = m->epilogue == MATMUL_SUM_A || m->epilogue == MATMUL_SUM_B;
    return is_sum ? m->aux : m->bias;
}

/* Creates descriptors and layouts for the key of an otherwise empty plan; needs
 * no GPU. plan_clear frees them, also after a failure. */
enum zd_status plan_describe(const struct plan_table *table, struct plan *plan);
void plan_clear(const struct plan_table *table, struct plan *plan);

/* The library's proposals in its order; none: it refuses. */
enum zd_status plan_candidates(
        const struct plan_table *table, const struct plan *plan,
        struct plan_candidates *candidates);
/* Whether the library accepts an algorithm from the file or an earlier run. */
bool plan_accepts(
        const struct plan_table *table, const struct plan *plan,
        const cublasLtMatmulAlgo_t *algorithm);

/* Queues the matmul with one algorithm. */
cublasStatus_t plan_launch(
        const struct plan_table *table, const struct plan *plan,
        const cublasLtMatmulAlgo_t *algorithm, const struct matmul *matmul,
        cudaStream_t stream);
