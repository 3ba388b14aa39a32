/* matmul_plan_cuda.c - descriptors, layouts, algorithms and the launch of one
 * plan. */
#include "kernels/matmul/matmul_plan_cuda.h"

#include "base/device/device_cuda.h"
#include "kernels/cuda/cuda_workspace.h"

#include <string.h>

_Static_assert(
        sizeof(struct matmul_key) == 18 * sizeof(int32_t),
        "keys are compared as bytes");

/* --- the library's terms, by ours ---------------------------------------- */

static cudaDataType_t cuda_type(int32_t dtype)
{
    static const cudaDataType_t types[] = {
            [DTYPE_FP32] = CUDA_R_32F,     [DTYPE_BF16] = CUDA_R_16BF,
            [DTYPE_FP16] = CUDA_R_16F,     [DTYPE_E4M3] = CUDA_R_8F_E4M3,
            [DTYPE_E5M2] = CUDA_R_8F_E5M2,
    };
    return types[dtype];
}

static int32_t scale_mode(int32_t layout)
{
    static const int32_t modes[] = {
            [SCALES_TENSOR] = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F,
            [SCALES_1X128] = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F,
            [SCALES_128X128] = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F,
    };
    return modes[layout];
}

struct epilogue {
    cublasLtEpilogue_t library;
    bool has_bias, has_aux;
};

static const struct epilogue *epilogue_of(const struct matmul_key *key)
{
    static const struct epilogue epilogues[] = {
            [KEY_PLAIN] = {CUBLASLT_EPILOGUE_DEFAULT, false, false},
            [KEY_BIAS] = {CUBLASLT_EPILOGUE_BIAS, true, false},
            [KEY_GELU_AUX] = {CUBLASLT_EPILOGUE_GELU_AUX, false, true},
            [KEY_GELU_AUX_BIAS] = {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, true, true},
            [KEY_DGELU] = {CUBLASLT_EPILOGUE_DGELU, false, true},
            [KEY_BGRADA] = {CUBLASLT_EPILOGUE_BGRADA, true, false},
            [KEY_BGRADB] = {CUBLASLT_EPILOGUE_BGRADB, true, false},
    };
    return &epilogues[key->epilogue];
}

/* --- descriptors --------------------------------------------------------- */

#define SET(attribute, value)                                                  \
    ZD_CUBLAS(                                                                 \
            table->api,                                                        \
            desc_set(plan->desc, attribute, &(value), sizeof(value)))

/* The pointers in a descriptor. */
struct pointers {
    const void *bias, *aux, *a_scales, *b_scales;
};

static enum zd_status set_pointers(
        const struct plan_table *table, const struct plan *plan,
        const struct pointers *to)
{
    if (epilogue_of(&plan->tuned.key)->has_bias)
        SET(CUBLASLT_MATMUL_DESC_BIAS_POINTER, to->bias);
    if (epilogue_of(&plan->tuned.key)->has_aux)
        SET(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, to->aux);
    if (plan->tuned.key.a_scales) {
        SET(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, to->a_scales);
        SET(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, to->b_scales);
    }
    return ZD_OK;
}

static enum zd_status set_fp8(
        const struct plan_table *table, const struct plan *plan)
{
    const struct matmul_key *p = &plan->tuned.key;
    int8_t fast = (int8_t)p->fast;
    if (!p->a_scales)
        return ZD_OK;
    int32_t a_mode = scale_mode(p->a_scales), b_mode = scale_mode(p->b_scales);
    SET(CUBLASLT_MATMUL_DESC_FAST_ACCUM, fast);
    SET(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, a_mode);
    SET(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, b_mode);
    return ZD_OK;
}

static enum zd_status set_epilogue(
        const struct plan_table *table, const struct plan *plan)
{
    const struct matmul_key *p = &plan->tuned.key;
    uint32_t epilogue = (uint32_t)epilogue_of(p)->library;
    int64_t aux_ld = p->m;
    /* before a matmul is queued only the pointer's alignment matters */
    const void *somewhere = (const void *)(((uintptr_t)1 << 40) + p->alignment);
    SET(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    if (epilogue_of(p)->has_aux)
        SET(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, aux_ld);
    struct pointers all = {somewhere, somewhere, somewhere, somewhere};
    return set_pointers(table, plan, &all);
}

enum zd_status plan_describe(const struct plan_table *table, struct plan *plan)
{
    const struct matmul_key *p = &plan->tuned.key;
    int32_t ta = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    int32_t tb = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    int32_t target = p->sm_target;
    uint64_t m = (uint64_t)p->m, n = (uint64_t)p->n, k = (uint64_t)p->k;
    uint64_t a_rows = p->trans_a ? k : m, a_columns = p->trans_a ? m : k;
    uint64_t b_rows = p->trans_b ? n : k, b_columns = p->trans_b ? k : n;
    int64_t lda = p->lda ? p->lda : (int64_t)a_rows;
    int64_t ldb = p->ldb ? p->ldb : (int64_t)b_rows;
    int64_t ldd = p->ldd ? p->ldd : p->m;
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
    ZD_TRY(set_fp8(table, plan));
    ZD_TRY(set_epilogue(table, plan));
    ZD_CUBLAS(
            table->api,
            layout_create(
                    &plan->a, cuda_type(p->dtype), a_rows, a_columns, lda));
    ZD_CUBLAS(
            table->api,
            layout_create(
                    &plan->b, cuda_type(p->b_type), b_rows, b_columns, ldb));
    ZD_CUBLAS(
            table->api,
            layout_create(&plan->d, cuda_type(p->out_type), m, n, ldd));
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
        const struct plan_table *table, const struct matmul_key *key,
        cublasLtMatmulPreference_t preference)
{
    uint64_t workspace = table->workspace_bytes;
    uint32_t alignment = (uint32_t)key->alignment;
    /* with split K only partial sums in fp32, which a second kernel adds in
     * order */
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

/* Whether an algorithm has the precision that matmul_cuda.h promises. A
 * property that the library does not report is assumed to be right, because
 * descriptor and preference requested it. */
static bool is_exact(
        const struct plan_table *table, const struct matmul_key *key,
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
        if (flags & CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32 && !key->tf32)
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
    ZD_TRY(prefer(table, &plan->tuned.key, preference));
    cublasStatus_t status = table->api->heuristic(
            table->handle, plan->desc, plan->a, plan->b, plan->d, plan->d,
            preference, PLAN_CANDIDATES, results, &count);
    candidates->refusal = status;
    if (status == CUBLAS_STATUS_NOT_SUPPORTED ||
        status == CUBLAS_STATUS_INVALID_VALUE)
        return ZD_OK;
    ZD_TRY(cublaslt_check(
            table->api, status, "cublasLtMatmulAlgoGetHeuristic"));
    for (int i = 0; i < count; i++)
        if (results[i].state == CUBLAS_STATUS_SUCCESS &&
            is_exact(table, &plan->tuned.key, &results[i].algo))
            candidates->algorithms[candidates->count++] = results[i].algo;
    return ZD_OK;
}

enum zd_status plan_candidates(
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

bool plan_accepts(
        const struct plan_table *table, const struct plan *plan,
        const cublasLtMatmulAlgo_t *algorithm)
{
    cublasLtMatmulHeuristicResult_t result;
    return table->api->algo_check(
                   table->handle, plan->desc, plan->a, plan->b, plan->d,
                   plan->d, algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= table->workspace_bytes &&
           is_exact(table, &plan->tuned.key, algorithm);
}

/* --- a matmul ------------------------------------------------------------- */

cublasStatus_t plan_launch(
        const struct plan_table *table, const struct plan *plan,
        const cublasLtMatmulAlgo_t *algorithm, const struct matmul *m,
        cudaStream_t stream)
{
    const float scale = matmul_scale(m), keep = m->accumulate ? 1.0f : 0.0f;
    char *workspace = NULL;
    struct pointers to = {plan_bias(m), m->aux, m->b.scales, m->a.scales};
    if (set_pointers(table, plan, &to) != ZD_OK) {
        zd_error_clear();
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (table->workspace_bytes > 0)
        workspace = (char *)cuda_workspace(
                            MATMUL_BORROW_BYTES + table->workspace_bytes) +
                    MATMUL_BORROW_BYTES;
    return table->api->matmul(
            table->handle, plan->desc, &scale, m->b.data, plan->a, m->a.data,
            plan->b, &keep, m->out.data, plan->d, m->out.data, plan->d,
            algorithm, workspace, table->workspace_bytes, stream);
}
