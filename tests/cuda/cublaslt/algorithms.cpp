/* algorithms.cpp - the algorithms of cublaslt_standin.h: what each can do, the
 * heuristic that offers them, and what they tell of themselves. */
#include "tests/cuda/cublaslt/internal.h"

#include <cstring>

namespace cublaslt
{
namespace
{
const uint64_t ALGORITHM = 0x5a44414c474f0000u;
enum { ALGORITHMS = 5 };

uint64_t types_of(const struct call &c)
{
    return (uint64_t)c.b.type << 24 | (uint64_t)c.a.type << 16 |
           (uint64_t)c.d.type << 8 | (uint64_t)c.desc.compute;
}

bool is_multiple(int64_t ld, int type, uint32_t alignment)
{
    return ld * (int64_t)type_bytes(type) % alignment == 0;
}

bool is_preferred(const struct algorithm &a, const struct preference &p)
{
    for (uint32_t alignment : p.alignment)
        if (alignment < a.alignment)
            return false;
    return a.workspace <= p.workspace &&
           (a.scheme == 0 || (a.scheme & p.schemes) != 0);
}
} // namespace

struct algorithm algorithm_of(int id, const struct call &c)
{
    struct algorithm a = {};
    a.magic = ALGORITHM, a.id = id, a.split = id == 3 || id == 4 ? 2 : 1;
    a.types = types_of(c);
    a.alignment =
            id == 2 || is_fp8(c.a.type) ? 16 : (uint32_t)type_bytes(c.a.type);
    a.scheme = id == 3   ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
               : id == 4 ? CUBLASLT_REDUCTION_SCHEME_INPLACE
                         : CUBLASLT_REDUCTION_SCHEME_NONE;
    if (id == 3)
        a.workspace = 4 * c.d.rows * c.d.columns;
    a.implementation = CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F;
    if (is_fp8(c.a.type))
        a.implementation |= CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_8F_E4M3;
    else if (c.a.type == CUDA_R_16BF)
        a.implementation |= CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16BF;
    else if (c.a.type == CUDA_R_16F)
        a.implementation |= CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16F;
    else if (id == 5)
        a.implementation |= CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32;
    else
        a.implementation |= CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_32F;
    return a;
}

cublasStatus_t check_algorithm(const struct algorithm &a, const struct call &c)
{
    cublasStatus_t status = check_call(c);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (a.magic != ALGORITHM || a.id < 1 || a.id > ALGORITHMS)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (a.types != types_of(c))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (a.split > 1 && c.desc.epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (a.id == 5 && c.a.type != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!is_multiple(c.a.ld, c.a.type, a.alignment) ||
        !is_multiple(c.b.ld, c.b.type, a.alignment) ||
        !is_multiple(c.d.ld, c.d.type, a.alignment))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    /* Rows of D, and what is summed where it lies densely: for these the
     * library of an H100 was seen to offer slow kernels alone. */
    if (!is_multiple((int64_t)c.d.rows, c.d.type, a.alignment) ||
        (c.desc.trans_a &&
         !is_multiple((int64_t)c.a.rows, c.a.type, a.alignment)) ||
        (!c.desc.trans_b &&
         !is_multiple((int64_t)c.b.rows, c.b.type, a.alignment)))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}
} // namespace cublaslt

using namespace cublaslt;

extern "C" {

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
        cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
        cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
        cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
        cublasLtMatmulPreference_t preference, int requested,
        cublasLtMatmulHeuristicResult_t results[], int *count)
{
    struct call call = {};
    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (requested <= 0 || !results || !count || !preference ||
        !gather(&call, desc, a, b, c, d))
        return CUBLAS_STATUS_INVALID_VALUE;
    *count = 0;
    count_heuristic();
    cublasStatus_t status = check_call(call);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    for (int id = 1; id <= ALGORITHMS && !asked_failures().empty; id++) {
        struct algorithm algorithm = algorithm_of(id, call);
        if (*count == requested ||
            check_algorithm(algorithm, call) != CUBLAS_STATUS_SUCCESS ||
            !is_preferred(algorithm, *(struct preference *)preference))
            continue;
        cublasLtMatmulHeuristicResult_t *result = &results[(*count)++];
        memset(result, 0, sizeof *result);
        memcpy(&result->algo, &algorithm, sizeof algorithm);
        result->workspaceSize = algorithm.workspace;
        result->state = CUBLAS_STATUS_SUCCESS;
        result->wavesCount = 1.0f;
    }
    return *count ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(
        cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
        cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
        cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
        const cublasLtMatmulAlgo_t *algo,
        cublasLtMatmulHeuristicResult_t *result)
{
    struct call call = {};
    struct algorithm algorithm;
    if (!handle || !algo || !result || !gather(&call, desc, a, b, c, d))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&algorithm, algo, sizeof algorithm);
    cublasStatus_t status = check_algorithm(algorithm, call);
    result->workspaceSize = algorithm.workspace;
    result->state = status;
    return status;
}

static bool is_algorithm(
        const cublasLtMatmulAlgo_t *algo, struct algorithm *out)
{
    if (algo)
        memcpy(out, algo, sizeof *out);
    return algo && out->magic == ALGORITHM;
}

cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(
        const cublasLtMatmulAlgo_t *algo,
        cublasLtMatmulAlgoCapAttributes_t attribute, void *value, size_t bytes,
        size_t *written)
{
    struct algorithm a;
    if (!is_algorithm(algo, &a))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (attribute == CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS)
        return read_place(place_of(&a.implementation), value, bytes, written);
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(
        const cublasLtMatmulAlgo_t *algo,
        cublasLtMatmulAlgoConfigAttributes_t attribute, void *value,
        size_t bytes, size_t *written)
{
    struct algorithm a;
    uint32_t tile = CUBLASLT_MATMUL_TILE_64x64, stages = 0;
    if (!is_algorithm(algo, &a))
        return CUBLAS_STATUS_INVALID_VALUE;
    switch (attribute) {
    case CUBLASLT_ALGO_CONFIG_ID:
        return read_place(place_of(&a.id), value, bytes, written);
    case CUBLASLT_ALGO_CONFIG_TILE_ID:
        return read_place(place_of(&tile), value, bytes, written);
    case CUBLASLT_ALGO_CONFIG_STAGES_ID:
        return read_place(place_of(&stages), value, bytes, written);
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
        return read_place(place_of(&a.split), value, bytes, written);
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
        return read_place(place_of(&a.scheme), value, bytes, written);
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

} // extern "C"
