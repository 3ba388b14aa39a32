/* matmul_run_cuda.c - the plans of a GPU. The first matmul of a key makes its
 * plan and chooses the algorithm: the one that this run or the file has, else
 * the fastest of the library's proposals. */
#include "base/must.h"
#include "kernels/matmul/matmul_plan_cuda.h"

#include "base/device/device_cuda.h"
#include "base/log.h"
#include "kernels/cuda/cuda_workspace.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 16 };

static struct plan_table tables[DEVICES] = {
        [0 ... DEVICES - 1] = {.lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP}};

/* --- settings ------------------------------------------------------------- */

static _Atomic int sm_target;
static _Atomic int tf32_allowed;

void matmul_set_sm_target(int multiprocessors)
{
    sm_target = multiprocessors > 0 ? multiprocessors : 0;
}

void matmul_set_tf32(bool allowed)
{
    tf32_allowed = allowed;
}

enum matmul_timing plan_timing(void)
{
    const char *set = getenv("ZEROD_MATMUL_TIMING");
    return set && strcmp(set, "off") == 0   ? MATMUL_HEURISTIC
           : set && strcmp(set, "all") == 0 ? MATMUL_TIME_ALL
                                            : MATMUL_TIME_LARGE;
}

/* Bytes count too: with a short side there are few operations per byte. */
static bool is_large(const struct matmul_key *p)
{
    double m = p->m, n = p->n, k = p->k;
    double read = (m * k + k * n) * (double)dtype_bytes(p->dtype);
    return 2.0 * m * n * k >= 0x1p30 ||
           read + m * n * (double)dtype_bytes(p->out_type) >= 0x1p24;
}

static bool is_timed(const struct matmul_key *p)
{
    enum matmul_timing mode = plan_timing();
    return mode == MATMUL_TIME_ALL ||
           (mode == MATMUL_TIME_LARGE && is_large(p));
}

/* --- keys ----------------------------------------------------------------- */

static enum key_epilogue key_epilogue(const struct matmul *m)
{
    switch (m->epilogue) {
    case MATMUL_GELU:
        return m->bias ? KEY_GELU_AUX_BIAS : KEY_GELU_AUX;
    case MATMUL_DGELU:
        return KEY_DGELU;
    case MATMUL_SUM_A: /* our a is the library's B */
        return KEY_BGRADB;
    case MATMUL_SUM_B:
        return KEY_BGRADA;
    default:
        return m->bias ? KEY_BIAS : KEY_PLAIN;
    }
}

/* The largest power of two up to 16 that divides every address. */
static int32_t alignment_of(const struct matmul *m)
{
    const void *const pointers[] = {m->a.data,    m->b.data, m->out.data,
                                    plan_bias(m), m->aux,    m->a.scales,
                                    m->b.scales};
    uintptr_t bits = 16;
    for (size_t i = 0; i < sizeof pointers / sizeof *pointers; i++)
        bits |= (uintptr_t)pointers[i];
    return (int32_t)(bits & -bits);
}

/* Encodes rows without gaps as 0, so that equal matmuls share a key. */
static int32_t gap_or_none(int stride, int width)
{
    assert(stride >= width);
    return stride == width ? 0 : stride;
}

/* True only in forward: gradients have an operand in E5M2, or scales of blocks.
 */
static bool sums_fast(const struct matmul *m)
{
    return m->a.type == DTYPE_E4M3 && m->b.type == DTYPE_E4M3 &&
           m->a.layout == SCALES_TENSOR;
}

static struct matmul_key key_of(const struct matmul *m)
{
    return (struct matmul_key){
            .m = m->N,
            .n = m->M,
            .k = m->K,
            .sm_target = sm_target,
            .lda = gap_or_none(
                    matmul_stride_b(m), m->b.transposed ? m->K : m->N),
            .ldb = gap_or_none(
                    matmul_stride_a(m), m->a.transposed ? m->M : m->K),
            .ldd = gap_or_none(matmul_stride_out(m), m->N),
            .dtype = m->b.type,
            .out_type = m->out.type,
            .trans_a = m->b.transposed,
            .trans_b = m->a.transposed,
            .epilogue = (int32_t)key_epilogue(m),
            .alignment = alignment_of(m),
            .tf32 = m->a.type == DTYPE_FP32 && tf32_allowed,
            .b_type = m->a.type,
            .a_scales = m->b.layout,
            .b_scales = m->a.layout,
            .fast = sums_fast(m),
    };
}

/* --- the table ----------------------------------------------------------- */

static uint32_t hash_of(const struct matmul_key *key)
{
    enum { WORDS = sizeof *key / sizeof(uint64_t) };
    uint64_t words[WORDS], hash = 0;
    memcpy(words, key, sizeof words);
    for (int i = 0; i < WORDS; i++) {
        hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return (uint32_t)(hash >> 16);
}

/* The key's slot, or the empty slot for it. */
static struct plan *slot_of(
        const struct plan_table *table, const struct matmul_key *key)
{
    for (uint32_t i = hash_of(key);; i++) {
        struct plan *plan = &table->plans[i % PLAN_SLOTS];
        if (!plan->is_made || memcmp(&plan->tuned.key, key, sizeof *key) == 0)
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
    ZD_PRINT(gpu, "%s, %d multiprocessors", facts.name, facts.multiprocessors);
    table->tuning = tuning_create(gpu, table->api->name);
    table->run = tuning_create_empty(gpu, table->api->name);
    table->is_open = true;
    return ZD_OK;
}

struct plan_table *plan_table_of_device(void)
{
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess)
        cudaGetLastError();
    assert(device < DEVICES);
    return &tables[device];
}

/* The library's part of the workspace, after our own. Its maximum is fixed,
 * because algorithms depend on the size. */
static size_t library_workspace(void)
{
    size_t bytes = cuda_workspace_size(), most = LIBRARY_WORKSPACE_BYTES;
    if (bytes <= 2 * MATMUL_BORROW_BYTES)
        return 0;
    bytes -= MATMUL_BORROW_BYTES;
    return bytes < most ? bytes : most;
}

enum zd_status plan_table_ready(struct plan_table *table)
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

/* --- what is remembered --------------------------------------------------- */

/* Uses the algorithm of `from`, if there is one and the library accepts it. */
static bool take_tuned(
        struct plan_table *table, struct plan *plan, const struct tuning *from)
{
    const struct tuned *tuned =
            tuning_find(from, &plan->tuned.key, plan->tuned.workspace_kib);
    if (!tuned || !plan_accepts(table, plan, plan_algorithm(tuned)))
        return false;
    plan->tuned = *tuned;
    table->counters.read++;
    return true;
}

/* Remembers the algorithm for a run that resumes this one; also a first
 * proposal if nothing was timed. */
static void note_plan(const struct plan_table *table, const struct plan *plan)
{
    if (!plan->is_refused && is_timed(&plan->tuned.key))
        tuning_add(table->run, &plan->tuned);
}

static void set_algorithm(
        struct plan *plan, const cublasLtMatmulAlgo_t *algorithm)
{
    memcpy(plan->tuned.algorithm, algorithm, sizeof plan->tuned.algorithm);
}

/* --- timing --------------------------------------------------------------- */

/* A matmul to time: with one of `count` algorithms, or by parts. */
struct trial {
    const struct plan_table *table;
    const struct plan *plan;
    const struct matmul *matmul;
    struct stream *stream;
    const cublasLtMatmulAlgo_t *algorithms;
    int count;
    const struct matmul_parts *parts;
};

static enum zd_status trial_run(const void *work, int way, bool *refused_out)
{
    const struct trial *t = work;
    if (way == t->count)
        return matmul_by_parts(t->parts, t->stream, t->matmul);
    *refused_out =
            plan_launch(
                    t->table, t->plan, &t->algorithms[way], t->matmul,
                    device_cuda_stream(t->stream)) != CUBLAS_STATUS_SUCCESS;
    return ZD_OK;
}

/* Times every candidate on `m`, overwriting its out. */
static enum zd_status measure_and_keep(
        struct plan_table *table, struct plan *plan,
        const struct plan_candidates *candidates, const struct matmul *m,
        struct stream *stream)
{
    double took[PLAN_CANDIDATES];
    int best;
    const struct matmul_key *key = &plan->tuned.key;
    struct trial trial = {
            .table = table,
            .plan = plan,
            .matmul = m,
            .stream = stream,
            .algorithms = candidates->algorithms,
            .count = candidates->count};
    struct timed_ways timed = {trial_run, &trial, stream, trial.count};
    ZD_TRY(timing_measure(&timed, took, &best));
    if (best < 0 || took[best] <= 0.0)
        return ZD_OK;
    set_algorithm(plan, &candidates->algorithms[best]);
    plan->tuned.microseconds = (float)took[best];
    table->counters.timed++;
    zd_log_debug(
            "matmul: %d x %d x %d, epilogue %d: %.1f us, the best of %d",
            key->n, key->m, key->k, key->epilogue, took[best],
            candidates->count);
    tuning_add(table->tuning, &plan->tuned);
    return ZD_OK;
}

static enum zd_status settle(
        struct plan_table *table, struct plan *plan,
        const struct plan_candidates *candidates, const struct matmul *m,
        struct stream *stream)
{
    enum zd_status status = ZD_OK;
    /* Wait before taking the lock: queued work may wait for a collective, and
     * so for a rank that waits for the lock. */
    ZD_CUDA(cudaStreamSynchronize(device_cuda_stream(stream)));
    tuning_lock(table->tuning, PLAN_LOCK_TIMEOUT_MS);
    if (!take_tuned(table, plan, table->tuning))
        status = measure_and_keep(table, plan, candidates, m, stream);
    tuning_unlock(table->tuning);
    return status;
}

/* --- plans ---------------------------------------------------------------- */

/* Warns once per shape: our own FP8 kernel is much slower than the library's.
 */
static void tell_refusal(
        const struct plan_table *table, const struct plan *plan,
        const struct plan_candidates *candidates)
{
    const struct matmul_key *k = &plan->tuned.key;
    if (k->a_scales)
        zd_log_warning(
                "matmul: %s has no algorithm for %d x %d x %d in FP8 (scales "
                "%d and %d, epilogue %d): %s; our own kernel is slow",
                table->api->name, k->n, k->m, k->k, k->b_scales, k->a_scales,
                k->epilogue, table->api->status_name(candidates->refusal));
}

/* Sets the algorithm of a described plan: the one that the run or the file has,
 * the fastest, or the library's first proposal. Sets is_refused if there is
 * none. */
static enum zd_status choose(
        struct plan_table *table, struct plan *plan, const struct matmul *m,
        struct stream *stream)
{
    struct plan_candidates candidates;
    bool timed = is_timed(&plan->tuned.key);
    if (timed && (take_tuned(table, plan, table->run) ||
                  take_tuned(table, plan, table->tuning)))
        return ZD_OK;
    ZD_TRY(plan_candidates(table, plan, &candidates));
    plan->is_refused = candidates.count == 0;
    if (plan->is_refused) {
        table->counters.refused++;
        tell_refusal(table, plan, &candidates);
        return ZD_OK;
    }
    set_algorithm(plan, &candidates.algorithms[0]);
    /* Trials overwrite D, so an accumulating matmul keeps the first proposal.
     * This is rare: gradients are first written, then added to, so only the
     * last, shorter chunk of a head has a shape that is new here. */
    if (!timed || candidates.count == 1 || m->accumulate)
        return ZD_OK;
    return settle(table, plan, &candidates, m, stream);
}

static enum zd_status plan_for(
        struct plan_table *table, const struct matmul_key *key,
        const struct matmul *m, struct stream *stream, struct plan **plan_out)
{
    struct plan *plan = slot_of(table, key);
    *plan_out = plan;
    if (plan->is_made)
        return ZD_OK;
    if (table->count >= PLAN_SLOTS / 2) {
        forget_plans(table);
        plan = *plan_out = slot_of(table, key);
    }
    plan->tuned.key = *key;
    plan->tuned.workspace_kib = plan_workspace_kib(table);
    enum zd_status status = plan_describe(table, plan);
    ZD_THEN(status, choose(table, plan, m, stream));
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

/* --- matmuls -------------------------------------------------------------- */

/* A bias costs nothing, so only other epilogues are timed against their parts.
 */
static bool is_undecided(const struct plan *plan)
{
    const struct tuned *t = &plan->tuned;
    return t->microseconds > 0.0f && t->parts == TUNED_UNDECIDED &&
           t->key.epilogue != KEY_PLAIN && t->key.epilogue != KEY_BIAS;
}

static enum zd_status run_locked(
        struct plan_table *table, const struct matmul *m, struct stream *stream,
        enum matmul_outcome *outcome_out)
{
    struct matmul_key key = key_of(m);
    struct plan *plan;
    *outcome_out = MATMUL_REFUSED;
    ZD_TRY(plan_table_ready(table));
    ZD_TRY(plan_for(table, &key, m, stream, &plan));
    if (plan->is_refused || plan->tuned.parts == TUNED_APART)
        return ZD_OK;
    cublasStatus_t status = plan_launch(
            table, plan, plan_algorithm(&plan->tuned), m,
            device_cuda_stream(stream));
    if (status == CUBLAS_STATUS_NOT_SUPPORTED ||
        status == CUBLAS_STATUS_INVALID_VALUE) {
        zd_log_warning(
                "matmul: %s refused %d x %d x %d, epilogue %d, although it "
                "proposed the algorithm (%s): running without it",
                table->api->name, key.n, key.m, key.k, key.epilogue,
                table->api->status_name(status));
        plan->is_refused = true;
        table->counters.refused++;
        return ZD_OK;
    }
    *outcome_out = is_undecided(plan) ? MATMUL_UNDECIDED : MATMUL_QUEUED;
    return cublaslt_check(table->api, status, "cublasLtMatmul");
}

enum zd_status matmul_run(
        struct stream *stream, const struct matmul *m,
        enum matmul_outcome *outcome_out)
{
    struct plan_table *table = plan_table_of_device();
    pthread_mutex_lock(&table->lock);
    enum zd_status status = run_locked(table, m, stream, outcome_out);
    pthread_mutex_unlock(&table->lock);
    return status;
}

static enum zd_status decide_locked(
        struct plan_table *table, struct plan *plan, struct trial *trial)
{
    struct timed_ways timed = {trial_run, trial, trial->stream, 2};
    double took[2];
    int fastest;
    const struct tuned *tuned = tuning_find(
            table->tuning, &plan->tuned.key, plan->tuned.workspace_kib);
    if (tuned && tuned->parts != TUNED_UNDECIDED) {
        plan->tuned.parts = tuned->parts; /* by another process, meanwhile */
    } else {
        ZD_TRY(timing_measure(&timed, took, &fastest));
        plan->tuned.parts = fastest == 0 ? TUNED_FUSED : TUNED_APART;
        tuning_add(table->tuning, &plan->tuned);
    }
    note_plan(table, plan);
    return ZD_OK;
}

enum zd_status matmul_decide(
        struct stream *stream, const struct matmul *m,
        const struct matmul_parts *parts)
{
    struct plan_table *table = plan_table_of_device();
    struct matmul_key key = key_of(m);
    /* makes the plans of the parts, and waits before taking the lock: see
     * settle */
    ZD_TRY(matmul_by_parts(parts, stream, m));
    ZD_CUDA(cudaStreamSynchronize(device_cuda_stream(stream)));
    enum zd_status status = ZD_OK;
    pthread_mutex_lock(&table->lock);
    struct plan *plan = slot_of(table, &key);
    if (plan->is_made && is_undecided(plan)) {
        struct trial trial = {
                .table = table,
                .plan = plan,
                .matmul = m,
                .stream = stream,
                .algorithms = plan_algorithm(&plan->tuned),
                .count = 1,
                .parts = parts};
        tuning_lock(table->tuning, PLAN_LOCK_TIMEOUT_MS);
        status = decide_locked(table, plan, &trial);
        tuning_unlock(table->tuning);
    }
    pthread_mutex_unlock(&table->lock);
    return status;
}

enum zd_status matmul_cuda_open(const char **name_out)
{
    struct plan_table *table = plan_table_of_device();
    enum zd_status status = ZD_OK;
    pthread_mutex_lock(&table->lock);
    if (!table->is_open)
        status = table_open(table);
    *name_out = status == ZD_OK ? table->api->name : NULL;
    pthread_mutex_unlock(&table->lock);
    return status;
}

void matmul_cuda_close(void)
{
    struct plan_table *table = plan_table_of_device();
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

char *matmul_algorithms(void)
{
    struct plan_table *table = plan_table_of_device();
    pthread_mutex_lock(&table->lock);
    char *text = table->is_open ? tuning_text(table->run) : NULL;
    pthread_mutex_unlock(&table->lock);
    return text;
}

const char *matmul_take_algorithms(const char *text)
{
    struct plan_table *table = plan_table_of_device();
    const char *why = "there is no cuBLASLt";
    pthread_mutex_lock(&table->lock);
    if (!table->is_open && table_open(table) != ZD_OK)
        zd_error_clear();
    else
        why = tuning_take(table->run, text);
    pthread_mutex_unlock(&table->lock);
    return why;
}

struct matmul_counters matmul_counters(void)
{
    struct plan_table *table = plan_table_of_device();
    pthread_mutex_lock(&table->lock);
    struct matmul_counters counters = table->counters;
    pthread_mutex_unlock(&table->lock);
    return counters;
}
