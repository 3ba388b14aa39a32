/* matmul_run_cuda.c - the plans of a GPU, each made at the first product of its
 * shape, and the products by them. */
#include "kernels/matmul/matmul_plan_cuda.h"
#include "base/must.h"

#include "base/device/device_cuda.h"
#include "base/log.h"
#include "kernels/cuda/cuda_workspace.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 16 };

static struct plan_table tables[DEVICES] = {
        [0 ... DEVICES - 1] = {.lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP}};

/* --- the table ----------------------------------------------------------- */

static uint32_t hash_of(const struct product *product)
{
    enum { WORDS = sizeof *product / sizeof(uint64_t) };
    uint64_t words[WORDS], hash = 0;
    memcpy(words, product, sizeof words);
    for (int i = 0; i < WORDS; i++) {
        hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return (uint32_t)(hash >> 16);
}

/* Its slot, or the empty one where it belongs. */
static struct plan *slot_of(
        const struct plan_table *table, const struct product *product)
{
    for (uint32_t i = hash_of(product);; i++) {
        struct plan *plan = &table->plans[i % PLAN_SLOTS];
        if (!plan->is_made ||
            memcmp(&plan->product, product, sizeof *product) == 0)
            return plan;
    }
}

static void forget_plans(struct plan_table *table)
{
    for (int i = 0; i < PLAN_SLOTS; i++)
        plan_clear(table, &table->plans[i]);
    table->count = 0;
}

static enum zd_status table_open(struct plan_table *table)
{
    char gpu[128];
    struct device_facts facts = device_facts();
    ZD_TRY(cublaslt_open(&table->api));
    table->plans = zd_must(calloc(PLAN_SLOTS, sizeof *table->plans));
    enum zd_status status = cublaslt_check(
            table->api, table->api->create(&table->handle), "cublasLtCreate");
    if (status != ZD_OK) {
        free(table->plans);
        return status;
    }
    snprintf(
            gpu, sizeof gpu, "%s, %d multiprocessors", facts.name,
            facts.multiprocessors);
    table->tuning = tuning_create(gpu, table->api->name);
    table->run = tuning_create_empty(gpu, table->api->name);
    table->is_open = true;
    return ZD_OK;
}

static struct plan_table *table_of_device(void)
{
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess)
        cudaGetLastError();
    assert(device < DEVICES);
    return &tables[device];
}

/* The part of the workspace that the library gets: what follows our own, and no
 * more than it makes use of, because another size is another choice. */
static size_t library_workspace(void)
{
    size_t bytes = cuda_workspace_size(), most = LIBRARY_WORKSPACE_BYTES;
    if (bytes <= 2 * PRODUCT_BORROW_BYTES)
        return 0;
    bytes -= PRODUCT_BORROW_BYTES;
    return bytes < most ? bytes : most;
}

static enum zd_status ready(struct plan_table *table)
{
    if (!table->is_open)
        ZD_TRY(table_open(table));
    size_t bytes = library_workspace();
    if (bytes == table->workspace_bytes)
        return ZD_OK;
    forget_plans(table);
    table->workspace_bytes = bytes;
    return ZD_OK;
}

/* For who goes on with this run: also a first proposal, where another was not
 * tried. */
static void note_plan(const struct plan_table *table, const struct plan *plan)
{
    if (table->run && !plan->is_refused && plan_is_timed(&plan->product))
        plan_remember(table, plan, table->run);
}

static enum zd_status plan_for(
        struct plan_table *table, const struct product *product,
        const struct product_operands *operands, cudaStream_t stream,
        struct plan **plan_out)
{
    struct plan *plan = slot_of(table, product);
    *plan_out = plan;
    if (plan->is_made)
        return ZD_OK;
    if (table->count >= PLAN_SLOTS / 2) {
        forget_plans(table);
        plan = *plan_out = slot_of(table, product);
    }
    plan->product = *product;
    enum zd_status status = plan_describe(table, plan);
    if (status == ZD_OK)
        status = plan_choose(table, plan, operands, stream);
    if (status != ZD_OK) {
        plan_clear(table, plan);
        return status;
    }
    plan->is_made = true;
    note_plan(table, plan);
    table->count++;
    table->counters.plans++;
    return ZD_OK;
}

/* --- products ------------------------------------------------------------- */

/* Where parts are measured: a bias alone costs nothing. */
static bool has_parts(const struct product *p)
{
    return p->epilogue != PRODUCT_PLAIN && p->epilogue != PRODUCT_BIAS;
}

static bool is_undecided(const struct plan *plan)
{
    return plan->microseconds > 0.0 && plan->parts == TUNED_UNDECIDED &&
           has_parts(&plan->product);
}

static void refuse(
        struct plan_table *table, struct plan *plan, cublasStatus_t status)
{
    zd_log_warning(
            "products: %s refuses %d x %d x %d, epilogue %d, which it had "
            "offered (%s): done without it",
            table->api->name, plan->product.n, plan->product.m, plan->product.k,
            plan->product.epilogue, table->api->status_name(status));
    plan->is_refused = true;
    table->counters.refused++;
}

static enum zd_status run_locked(
        struct plan_table *table, const struct product *product,
        const struct product_operands *operands, cudaStream_t stream,
        enum product_outcome *outcome_out)
{
    struct plan *plan;
    *outcome_out = PRODUCT_REFUSED;
    ZD_TRY(ready(table));
    ZD_TRY(plan_for(table, product, operands, stream, &plan));
    if (plan->is_refused || plan->parts == TUNED_APART)
        return ZD_OK;
    cublasStatus_t status =
            plan_launch(table, plan, &plan->algorithm, operands, stream);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED ||
        status == CUBLAS_STATUS_INVALID_VALUE) {
        refuse(table, plan, status);
        return ZD_OK;
    }
    *outcome_out = is_undecided(plan) ? PRODUCT_UNDECIDED : PRODUCT_QUEUED;
    return cublaslt_check(table->api, status, "cublasLtMatmul");
}

enum zd_status product_run(
        struct stream *stream, const struct product *product,
        const struct product_operands *operands,
        enum product_outcome *outcome_out)
{
    struct plan_table *table = table_of_device();
    cudaStream_t queue = device_cuda_stream(stream);
    pthread_mutex_lock(&table->lock);
    enum zd_status status =
            run_locked(table, product, operands, queue, outcome_out);
    pthread_mutex_unlock(&table->lock);
    return status;
}

struct fused {
    const struct plan_table *table;
    const struct plan *plan;
    const struct product_operands *operands;
    cudaStream_t stream;
};

static enum zd_status run_fused(const void *ctx)
{
    const struct fused *f = ctx;
    return cublaslt_check(
            f->table->api,
            plan_launch(
                    f->table, f->plan, &f->plan->algorithm, f->operands,
                    f->stream),
            "cublasLtMatmul");
}

static enum zd_status decide_locked(
        struct plan_table *table, struct plan *plan,
        const struct product_operands *operands, cudaStream_t stream,
        product_fn *apart, const void *ctx)
{
    struct fused fused = {table, plan, operands, stream};
    double together, in_parts;
    const struct tuned *tuned = tuning_find(
            table->tuning, &plan->product, plan_workspace_kib(table));
    if (tuned && tuned->parts != TUNED_UNDECIDED) {
        plan->parts = tuned->parts; /* by another process, meanwhile */
        note_plan(table, plan);
        return ZD_OK;
    }
    ZD_TRY(plan_time(run_fused, &fused, stream, &together));
    ZD_TRY(plan_time(apart, ctx, stream, &in_parts));
    plan->parts = together <= in_parts ? TUNED_FUSED : TUNED_APART;
    plan_remember(table, plan, table->tuning);
    note_plan(table, plan);
    return ZD_OK;
}

enum zd_status product_decide(
        struct stream *stream, const struct product *product,
        const struct product_operands *operands, product_fn *apart,
        const void *ctx)
{
    struct plan_table *table = table_of_device();
    cudaStream_t queue = device_cuda_stream(stream);
    /* makes the plans of the parts, and waits before the lock: see settle */
    ZD_TRY(apart(ctx));
    ZD_CUDA(cudaStreamSynchronize(queue));
    enum zd_status status = ZD_OK;
    pthread_mutex_lock(&table->lock);
    struct plan *plan = slot_of(table, product);
    if (plan->is_made && is_undecided(plan)) {
        tuning_lock(table->tuning, PLAN_LOCK_TIMEOUT_MS);
        status = decide_locked(table, plan, operands, queue, apart, ctx);
        tuning_unlock(table->tuning);
    }
    pthread_mutex_unlock(&table->lock);
    return status;
}

enum zd_status products_open(const char **name_out)
{
    struct plan_table *table = table_of_device();
    enum zd_status status = ZD_OK;
    pthread_mutex_lock(&table->lock);
    if (!table->is_open)
        status = table_open(table);
    *name_out = status == ZD_OK ? table->api->name : NULL;
    pthread_mutex_unlock(&table->lock);
    return status;
}

void products_close(void)
{
    struct plan_table *table = table_of_device();
    pthread_mutex_lock(&table->lock);
    if (table->is_open) {
        forget_plans(table);
        free(table->plans);
        tuning_destroy(table->tuning);
        tuning_destroy(table->run);
        table->api->destroy(table->handle);
        table->plans = NULL;
        table->tuning = NULL;
        table->run = NULL;
        table->is_open = false;
    }
    pthread_mutex_unlock(&table->lock);
}

char *products_text(void)
{
    struct plan_table *table = table_of_device();
    pthread_mutex_lock(&table->lock);
    char *text = table->is_open && table->run ? tuning_text(table->run) : NULL;
    pthread_mutex_unlock(&table->lock);
    return text;
}

const char *products_take(const char *text)
{
    struct plan_table *table = table_of_device();
    const char *why = "there is no cuBLASLt";
    pthread_mutex_lock(&table->lock);
    if (!table->is_open && table_open(table) != ZD_OK)
        zd_error_clear();
    else if (table->run)
        why = tuning_take(table->run, text);
    pthread_mutex_unlock(&table->lock);
    return why;
}

struct product_counters product_counters(void)
{
    struct plan_table *table = table_of_device();
    pthread_mutex_lock(&table->lock);
    struct product_counters counters = table->counters;
    pthread_mutex_unlock(&table->lock);
    return counters;
}

static void algorithm_text(
        const struct plan_table *table, const struct plan *plan, char *out,
        size_t bytes)
{
    int32_t id = -1, split = -1;
    uint32_t tile = 0, stages = 0;
    size_t w;
    const cublasLtMatmulAlgo_t *algo = &plan->algorithm;
    if (plan->parts == TUNED_APART) {
        snprintf(out, bytes, "in parts");
        return;
    }
    table->api->algo_config(algo, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id, &w);
    table->api->algo_config(
            algo, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, sizeof tile, &w);
    table->api->algo_config(
            algo, CUBLASLT_ALGO_CONFIG_STAGES_ID, &stages, sizeof stages, &w);
    table->api->algo_config(
            algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split, sizeof split, &w);
    snprintf(
            out, bytes, "%d tile %u stages %u split %d", id, tile, stages,
            split);
}

double product_measured(
        const struct product *product, char *algorithm, size_t bytes)
{
    struct plan_table *table = table_of_device();
    double microseconds = 0.0;
    *algorithm = 0;
    pthread_mutex_lock(&table->lock);
    if (table->is_open) {
        const struct plan *plan = slot_of(table, product);
        if (plan->is_made && !plan->is_refused) {
            microseconds = plan->microseconds;
            algorithm_text(table, plan, algorithm, bytes);
        }
    }
    pthread_mutex_unlock(&table->lock);
    return microseconds;
}
