/* matmul_plan_cuda.c - descriptors, layouts and an algorithm for a shape of
 * product. */
#include "kernels/matmul/matmul_plan_cuda.h"

#include "base/device/device_cuda.h"
#include "base/log.h"
#include "kernels/cuda/cuda_workspace.h"

#include <string.h>

_Static_assert(sizeof(struct product) == 40, "products are compared as bytes");

/* --- the library's words ------------------------------------------------- */

static cudaDataType_t cuda_type(uint8_t dtype)
{
    static const cudaDataType_t types[] = {
            [DTYPE_FP32] = CUDA_R_32F,
            [DTYPE_BF16] = CUDA_R_16BF,
            [DTYPE_FP16] = CUDA_R_16F,
    };
    return types[dtype];
}

static cublasLtEpilogue_t epilogue_of(uint8_t epilogue)
{
    static const cublasLtEpilogue_t epilogues[] = {
            [PRODUCT_PLAIN] = CUBLASLT_EPILOGUE_DEFAULT,
            [PRODUCT_BIAS] = CUBLASLT_EPILOGUE_BIAS,
            [PRODUCT_GELU_AUX] = CUBLASLT_EPILOGUE_GELU_AUX,
            [PRODUCT_GELU_AUX_BIAS] = CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
            [PRODUCT_DGELU] = CUBLASLT_EPILOGUE_DGELU,
            [PRODUCT_BGRADA] = CUBLASLT_EPILOGUE_BGRADA,
            [PRODUCT_BGRADB] = CUBLASLT_EPILOGUE_BGRADB,
    };
    return epilogues[epilogue];
}

static bool has_bias(const struct product *p)
{
    return p->epilogue == PRODUCT_BIAS || p->epilogue == PRODUCT_BGRADA ||
           p->epilogue == PRODUCT_BGRADB ||
           p->epilogue == PRODUCT_GELU_AUX_BIAS;
}

static bool has_aux(const struct product *p)
{
    return p->epilogue == PRODUCT_GELU_AUX || p->epilogue == PRODUCT_DGELU ||
           p->epilogue == PRODUCT_GELU_AUX_BIAS;
}

static int64_t ldd_of(const struct product *p)
{
    return p->ldd ? p->ldd : p->m;
}

/* --- descriptors --------------------------------------------------------- */

#define SET(attribute, value)                                                  \
    ZD_CUBLAS(                                                                 \
            table->api,                                                        \
            desc_set(plan->desc, attribute, &(value), sizeof(value)))

static enum zd_status set_pointers(
        const struct plan_table *table, const struct plan *plan,
        const void *bias, const void *aux)
{
    if (has_bias(&plan->product))
        SET(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    if (has_aux(&plan->product))
        SET(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
    return ZD_OK;
}

static enum zd_status set_epilogue(
        const struct plan_table *table, const struct plan *plan)
{
    const struct product *p = &plan->product;
    uint32_t epilogue = (uint32_t)epilogue_of(p->epilogue);
    int64_t aux_ld = p->m;
    /* only its alignment is looked at before a product is queued */
    const void *somewhere = (const void *)(((uintptr_t)1 << 40) + p->alignment);
    SET(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    if (has_aux(p))
        SET(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, aux_ld);
    return set_pointers(table, plan, somewhere, somewhere);
}

enum zd_status plan_describe(const struct plan_table *table, struct plan *plan)
{
    const struct product *p = &plan->product;
    int32_t ta = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    int32_t tb = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    int32_t target = p->sm_target;
    uint64_t m = (uint64_t)p->m, n = (uint64_t)p->n, k = (uint64_t)p->k;
    uint64_t a_rows = p->trans_a ? k : m, a_columns = p->trans_a ? m : k;
    uint64_t b_rows = p->trans_b ? n : k, b_columns = p->trans_b ? k : n;
    int64_t lda = p->lda ? p->lda : (int64_t)a_rows;
    int64_t ldb = p->ldb ? p->ldb : (int64_t)b_rows;
    cudaDataType_t type = cuda_type(p->dtype), out = cuda_type(p->out_type);
    ZD_CUBLAS(
            table->api,
            desc_create(
                    &plan->desc,
                    p->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                    CUDA_R_32F));
    SET(CUBLASLT_MATMUL_DESC_TRANSA, ta);
    SET(CUBLASLT_MATMUL_DESC_TRANSB, tb);
    if (target > 0)
        SET(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, target);
    ZD_TRY(set_epilogue(table, plan));
    ZD_CUBLAS(
            table->api, layout_create(&plan->a, type, a_rows, a_columns, lda));
    ZD_CUBLAS(
            table->api, layout_create(&plan->b, type, b_rows, b_columns, ldb));
    ZD_CUBLAS(table->api, layout_create(&plan->d, out, m, n, ldd_of(p)));
    return ZD_OK;
}

#undef SET

void plan_clear(const struct plan_table *table, struct plan *plan)
{
    if (plan->desc)
        table->api->desc_destroy(plan->desc);
    if (plan->a)
        table->api->layout_destroy(plan->a);
    if (plan->b)
        table->api->layout_destroy(plan->b);
    if (plan->d)
        table->api->layout_destroy(plan->d);
    memset(plan, 0, sizeof *plan);
}

/* --- algorithms ---------------------------------------------------------- */

static enum zd_status prefer(
        const struct plan_table *table, const struct product *product,
        cublasLtMatmulPreference_t preference)
{
    uint64_t workspace = table->workspace_bytes;
    uint32_t alignment = product->alignment;
    /* partial sums of a split K: in fp32, added in order by a second kernel */
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE |
                       CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
    };
    ZD_CUBLAS(
            table->api,
            preference_set(
                    preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                    &workspace, sizeof workspace));
    ZD_CUBLAS(
            table->api,
            preference_set(
                    preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                    &schemes, sizeof schemes));
    for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++)
        ZD_CUBLAS(
                table->api, preference_set(
                                    preference, alignments[i], &alignment,
                                    sizeof alignment));
    return ZD_OK;
}

/* What keeps the promises of matmul_cuda.h. What the library does not tell of
 * an algorithm is taken to be right: it was asked for the same by descriptor
 * and preference. */
static bool is_exact(
        const struct plan_table *table, const struct product *product,
        const cublasLtMatmulAlgo_t *algorithm)
{
    uint64_t flags;
    uint32_t scheme;
    size_t written;
    if (table->api->algo_cap(
                algorithm, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS, &flags,
                sizeof flags, &written) == CUBLAS_STATUS_SUCCESS) {
        if (flags & CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F)
            return false;
        if (flags & CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32 && !product->tf32)
            return false;
    }
    if (table->api->algo_config(
                algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                sizeof scheme, &written) == CUBLAS_STATUS_SUCCESS)
        return scheme == CUBLASLT_REDUCTION_SCHEME_NONE ||
               scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    return true;
}

static enum zd_status ask(
        const struct plan_table *table, const struct plan *plan,
        cublasLtMatmulPreference_t preference,
        struct plan_candidates *candidates)
{
    cublasLtMatmulHeuristicResult_t results[PLAN_CANDIDATES];
    int count = 0;
    ZD_TRY(prefer(table, &plan->product, preference));
    cublasStatus_t status = table->api->heuristic(
            table->handle, plan->desc, plan->a, plan->b, plan->d, plan->d,
            preference, PLAN_CANDIDATES, results, &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED ||
        status == CUBLAS_STATUS_INVALID_VALUE)
        return ZD_OK;
    ZD_TRY(cublaslt_check(
            table->api, status, "cublasLtMatmulAlgoGetHeuristic"));
    for (int i = 0; i < count; i++)
        if (results[i].state == CUBLAS_STATUS_SUCCESS &&
            is_exact(table, &plan->product, &results[i].algo))
            candidates->algorithms[candidates->count++] = results[i].algo;
    return ZD_OK;
}

static enum zd_status candidates_of(
        const struct plan_table *table, const struct plan *plan,
        struct plan_candidates *candidates)
{
    cublasLtMatmulPreference_t preference;
    candidates->count = 0;
    ZD_CUBLAS(table->api, preference_create(&preference));
    enum zd_status status = ask(table, plan, preference, candidates);
    table->api->preference_destroy(preference);
    return status;
}

uint32_t plan_workspace_kib(const struct plan_table *table)
{
    return (uint32_t)(table->workspace_bytes / 1024);
}

/* The algorithm that `from` knows, if the library still takes it. */
static bool take_tuned(
        struct plan_table *table, struct plan *plan, const struct tuning *from)
{
    cublasLtMatmulHeuristicResult_t result;
    const struct tuned *tuned =
            from ? tuning_find(
                           from, &plan->product, plan_workspace_kib(table))
                 : NULL;
    if (!tuned)
        return false;
    memcpy(&plan->algorithm, tuned->algorithm, sizeof plan->algorithm);
    plan->microseconds = (double)tuned->microseconds;
    plan->parts = tuned->parts;
    if (table->api->algo_check(
                table->handle, plan->desc, plan->a, plan->b, plan->d, plan->d,
                &plan->algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
        result.workspaceSize <= table->workspace_bytes &&
        is_exact(table, &plan->product, &plan->algorithm)) {
        table->counters.read++;
        return true;
    }
    plan->microseconds = 0.0;
    plan->parts = TUNED_UNDECIDED;
    return false;
}

void plan_remember(
        const struct plan_table *table, const struct plan *plan,
        struct tuning *in)
{
    struct tuned tuned = {
            .product = plan->product,
            .parts = plan->parts,
            .workspace_kib = plan_workspace_kib(table),
            .microseconds = (float)plan->microseconds,
    };
    memcpy(tuned.algorithm, &plan->algorithm, sizeof tuned.algorithm);
    tuning_add(in, &tuned);
}

static enum zd_status measure_and_keep(
        struct plan_table *table, struct plan *plan,
        const struct plan_candidates *candidates,
        const struct product_operands *operands, cudaStream_t stream)
{
    ZD_TRY(plan_measure(table, plan, candidates, operands, stream));
    if (plan->microseconds <= 0.0)
        return ZD_OK;
    table->counters.timed++;
    zd_log_debug(
            "products: %d x %d x %d, epilogue %d: %.1f us, the best of %d",
            plan->product.n, plan->product.m, plan->product.k,
            plan->product.epilogue, plan->microseconds, candidates->count);
    plan_remember(table, plan, table->tuning);
    return ZD_OK;
}

static enum zd_status settle(
        struct plan_table *table, struct plan *plan,
        const struct plan_candidates *candidates,
        const struct product_operands *operands, cudaStream_t stream)
{
    enum zd_status status = ZD_OK;
    /* Before the lock: what is queued may wait for a collective, and so for a
     * rank that waits for the lock. */
    ZD_CUDA(cudaStreamSynchronize(stream));
    tuning_lock(table->tuning, PLAN_LOCK_TIMEOUT_MS);
    if (!take_tuned(table, plan, table->tuning))
        status = measure_and_keep(table, plan, candidates, operands, stream);
    tuning_unlock(table->tuning);
    return status;
}

enum zd_status plan_choose(
        struct plan_table *table, struct plan *plan,
        const struct product_operands *operands, cudaStream_t stream)
{
    struct plan_candidates candidates;
    bool is_timed = table->tuning && plan_is_timed(&plan->product);
    if (is_timed && (take_tuned(table, plan, table->run) ||
                     take_tuned(table, plan, table->tuning)))
        return ZD_OK;
    ZD_TRY(candidates_of(table, plan, &candidates));
    plan->is_refused = candidates.count == 0;
    if (plan->is_refused) {
        table->counters.refused++;
        return ZD_OK;
    }
    plan->algorithm = candidates.algorithms[0];
    /* A trial writes over D. Where that holds a sum the first proposal stays:
     * gradients are written before they are added to, so that only the last,
     * shorter chunk of a head meets its shape here. */
    if (!is_timed || candidates.count == 1 || operands->accumulate)
        return ZD_OK;
    return settle(table, plan, &candidates, operands, stream);
}

/* --- a product ------------------------------------------------------------ */

cublasStatus_t plan_launch(
        const struct plan_table *table, const struct plan *plan,
        const cublasLtMatmulAlgo_t *algorithm,
        const struct product_operands *operands, cudaStream_t stream)
{
    static const float one = 1.0f, zero = 0.0f;
    char *workspace = NULL;
    if (set_pointers(table, plan, operands->bias, operands->aux) != ZD_OK) {
        zd_error_clear();
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (table->workspace_bytes > 0)
        workspace = (char *)cuda_workspace(
                            PRODUCT_BORROW_BYTES + table->workspace_bytes) +
                    PRODUCT_BORROW_BYTES;
    return table->api->matmul(
            table->handle, plan->desc, &one, operands->a, plan->a, operands->b,
            plan->b, operands->accumulate ? &one : &zero, operands->d, plan->d,
            operands->d, plan->d, algorithm, workspace, table->workspace_bytes,
            stream);
}
