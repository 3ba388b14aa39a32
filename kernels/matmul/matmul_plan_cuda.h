/* matmul_plan_cuda.h - what is kept for a shape of product. Private to
 * matmul_*_cuda.c. */
#ifndef ZD_KERNELS_MATMUL_MATMUL_PLAN_CUDA_H
#define ZD_KERNELS_MATMUL_MATMUL_PLAN_CUDA_H

#include "kernels/matmul/cublaslt.h"
#include "kernels/matmul/matmul_cuda.h"
#include "kernels/matmul/matmul_tuning.h"

#include <cuda_runtime_api.h>
#include <pthread.h>

enum { PLAN_SLOTS = 1024, PLAN_CANDIDATES = 16, PLAN_LOCK_TIMEOUT_MS = 10000 };

struct plan {
    bool is_made, is_refused;
    struct product product;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
    double microseconds; /* as measured; 0: it was not */
    enum tuned_parts parts;
};

/* Of one GPU; `lock`, which its holder may take again, is held by whoever reads
 * or writes the rest, also while a product is queued, because its pointers are
 * set in the shared descriptor. */
struct plan_table {
    pthread_mutex_t lock;
    bool is_open;
    const struct cublaslt *api;
    cublasLtHandle_t handle;
    struct tuning *tuning;
    struct tuning *run; /* what this run's products have, which stands above the
                           file; NULL: out of memory */
    size_t workspace_bytes; /* that plans were made for */
    struct product_counters counters;
    int count;
    struct plan *plans; /* PLAN_SLOTS, by hash */
};

struct plan_candidates {
    int count;
    cublasLtMatmulAlgo_t algorithms[PLAN_CANDIDATES];
};

/* Descriptors and layouts of plan->product, in an otherwise empty plan; needs
 * no GPU. plan_clear takes them back, also half of them. */
enum zd_status plan_describe(const struct plan_table *table, struct plan *plan);
void plan_clear(const struct plan_table *table, struct plan *plan);

/* Sets the algorithm of a plan that is described: the one that the file knows,
 * the fastest (then `operands` are those of the first product), or the
 * library's first; or is_refused. */
enum zd_status plan_choose(
        struct plan_table *table, struct plan *plan,
        const struct product_operands *operands, cudaStream_t stream);
/* Into the file, whose lock is held, or what the run has. */
void plan_remember(
        const struct plan_table *table, const struct plan *plan,
        struct tuning *in);
uint32_t plan_workspace_kib(const struct plan_table *table);

/* Queues the product by one algorithm. */
cublasStatus_t plan_launch(
        const struct plan_table *table, const struct plan *plan,
        const cublasLtMatmulAlgo_t *algorithm,
        const struct product_operands *operands, cudaStream_t stream);

/* Measures the candidates on `operands` (operands->d is written over) and sets
 * the plan's algorithm and time. */
enum zd_status plan_measure(
        const struct plan_table *table, struct plan *plan,
        const struct plan_candidates *candidates,
        const struct product_operands *operands, cudaStream_t stream);

/* The shortest of a few runs of what `run` queues, in microseconds. */
enum zd_status plan_time(
        product_fn *run, const void *ctx, cudaStream_t stream,
        double *microseconds_out);

/* True when this product's algorithm is to be looked up and measured. */
bool plan_is_timed(const struct product *product);

#endif
