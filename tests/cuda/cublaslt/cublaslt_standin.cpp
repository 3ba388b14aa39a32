/* cublaslt_standin.cpp - cuBLASLt's handle and its product; the failures that
 * tests ask for and the counters that they read. See cublaslt_standin.h. */
#include "tests/cuda/cublaslt/internal.h"

#include <cstdlib>
#include <cstring>
#include <mutex>

using namespace cublaslt;

namespace
{
/* Slow is more than a loaded machine ever holds up what is quick. */
enum { VERSION = 130100, SLOW_MS = 100000 };

struct cublaslt_standin_counters counters;
std::mutex counters_lock;
struct failures asked;

void set_failures(const char *text)
{
    asked = {};
    if (!text)
        return;
    asked.empty = strstr(text, "empty") != NULL;
    asked.refuse = strstr(text, "refuse") != NULL;
    asked.no_bgrad = strstr(text, "no_bgrad") != NULL;
    asked.no_gelu = strstr(text, "no_gelu") != NULL;
    asked.no_fp8_bias = strstr(text, "no_fp8_bias") != NULL;
    asked.create = strstr(text, "create") != NULL;
    asked.slow_epilogue = strstr(text, "slow_epilogue") != NULL;
    asked.slow_plain = strstr(text, "slow_plain") != NULL;
    const char *at = strstr(text, "fail:");
    asked.fail_at = at ? strtoull(at + 5, NULL, 10) : 0;
}

__attribute__((constructor)) void start(void)
{
    set_failures(getenv("ZD_STANDIN_CUBLASLT"));
}

void count_product(const struct call &c)
{
    std::lock_guard<std::mutex> guard(counters_lock);
    counters.products++;
    counters.of_algorithm[c.algorithm]++;
    counters.with_epilogue += c.desc.epilogue != CUBLASLT_EPILOGUE_DEFAULT;
    counters.in_tf32 += c.desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    counters.summed_fast += c.desc.fast_accum != 0;
    counters.sm_target = c.desc.sm_target;
}

bool fails_now(void)
{
    std::lock_guard<std::mutex> guard(counters_lock);
    return asked.fail_at && --asked.fail_at == 0;
}

void work(void *ctx)
{
    struct call *c = (struct call *)ctx;
    if (c->is_slow)
        zd_standin_pass_ms(SLOW_MS);
    product(*c);
    delete c;
}
} // namespace

const struct failures &cublaslt::asked_failures(void)
{
    return asked;
}

void cublaslt::count_heuristic(void)
{
    std::lock_guard<std::mutex> guard(counters_lock);
    counters.heuristics++;
}

/* --- for tests ----------------------------------------------------------- */

extern "C" struct cublaslt_standin_counters cublaslt_standin_counters(void)
{
    std::lock_guard<std::mutex> guard(counters_lock);
    return counters;
}

extern "C" void cublaslt_standin_fail(const char *text)
{
    std::lock_guard<std::mutex> guard(counters_lock);
    set_failures(text);
    counters = {};
}

/* --- the library --------------------------------------------------------- */

extern "C" {

struct cublasLtContext {
    int device;
};

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    int device;
    if (!handle)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (asked.create || cudaGetDevice(&device) != cudaSuccess)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = new cublasLtContext{device};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
#define NAME(word)                                                             \
    if (status == CUBLAS_STATUS_##word)                                        \
    return "CUBLAS_STATUS_" #word
    NAME(SUCCESS);
    NAME(NOT_INITIALIZED);
    NAME(ALLOC_FAILED);
    NAME(INVALID_VALUE);
    NAME(EXECUTION_FAILED);
    NAME(NOT_SUPPORTED);
#undef NAME
    return "CUBLAS_STATUS_UNKNOWN";
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "success" : "of the stand-in";
}

size_t cublasLtGetVersion(void)
{
    return VERSION;
}

cublasStatus_t cublasLtMatmul(
        cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
        const void *a_data, cublasLtMatrixLayout_t a, const void *b_data,
        cublasLtMatrixLayout_t b, const void *beta, const void *c_data,
        cublasLtMatrixLayout_t c, void *d_data, cublasLtMatrixLayout_t d,
        const cublasLtMatmulAlgo_t *algo, void *workspace,
        size_t workspace_bytes, cudaStream_t stream)
{
    struct call call = {};
    struct algorithm algorithm;
    int device;
    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!alpha || !beta || c_data != d_data || !gather(&call, desc, a, b, c, d))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (cudaGetDevice(&device) != cudaSuccess || device != handle->device)
        return CUBLAS_STATUS_ARCH_MISMATCH;
    if (algo)
        memcpy(&algorithm, algo, sizeof algorithm);
    else
        algorithm = algorithm_of(1, call);
    call.alpha = *(const float *)alpha, call.beta = *(const float *)beta;
    call.a_data = a_data, call.b_data = b_data, call.d_data = d_data;
    call.workspace = workspace;
    call.workspace_bytes = algorithm.workspace;
    call.algorithm = algorithm.id;
    cublasStatus_t status = check_algorithm(algorithm, call);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = check_pointers(call, algorithm.alignment);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (algorithm.workspace > workspace_bytes ||
        (algorithm.workspace && !is_aligned_to(workspace, 16)))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (asked.refuse)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (fails_now())
        return CUBLAS_STATUS_EXECUTION_FAILED;
    call.is_slow = has_aux(call.desc.epilogue) || is_bgrad(call.desc.epilogue)
                           ? asked.slow_epilogue
                           : asked.slow_plain;
    count_product(call);
    struct call *queued = new struct call(call);
    if (zd_standin_enqueue(stream, work, queued) != cudaSuccess) {
        delete queued;
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    return CUBLAS_STATUS_SUCCESS;
}

} // extern "C"
