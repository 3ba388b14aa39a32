/* cublaslt_standin.cpp - cuBLASLt's interface: descriptors, layouts,
 * preferences, algorithms, and the checks of a product. See
 * cublaslt_standin.h; the arithmetic is in product.cpp. */
#include "tests/cuda/cublaslt/internal.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <unistd.h>

using namespace cublaslt;

namespace
{
const uint32_t DESC = 0x44455343, LAYOUT = 0x4c41594f, PREFERENCE = 0x50524546;
const uint64_t ALGORITHM = 0x5a44414c474f0000u;
enum { ALGORITHMS = 5, VERSION = 130100 };

struct cublaslt_standin_counters counters;
std::mutex counters_lock;

struct failures {
    bool empty, refuse, no_bgrad, no_gelu, create, slow_epilogue, slow_plain;
    uint64_t fail_at; /* products until one fails; 0: none */
};
struct failures failures;

void set_failures(const char *text)
{
    failures = {};
    if (!text)
        return;
    failures.empty = strstr(text, "empty") != NULL;
    failures.refuse = strstr(text, "refuse") != NULL;
    failures.no_bgrad = strstr(text, "no_bgrad") != NULL;
    failures.no_gelu = strstr(text, "no_gelu") != NULL;
    failures.create = strstr(text, "create") != NULL;
    failures.slow_epilogue = strstr(text, "slow_epilogue") != NULL;
    failures.slow_plain = strstr(text, "slow_plain") != NULL;
    const char *at = strstr(text, "fail:");
    failures.fail_at = at ? strtoull(at + 5, NULL, 10) : 0;
}

__attribute__((constructor)) void start(void)
{
    set_failures(getenv("ZD_STANDIN_CUBLASLT"));
}

/* --- attributes ---------------------------------------------------------- */

/* One attribute: where it lies and how long it is. NULL: there is no such. */
struct place {
    void *at;
    size_t bytes;
};

template <typename T> struct place place_of(T *field)
{
    return {field, sizeof(T)};
}

struct place desc_place(
        struct desc *d, cublasLtMatmulDescAttributes_t attribute)
{
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
        return place_of(&d->compute);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
        return place_of(&d->scale);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
        return place_of(&d->pointer_mode);
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return place_of(&d->trans_a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return place_of(&d->trans_b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return place_of(&d->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return place_of(&d->bias);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
        return place_of(&d->bias_stride);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return place_of(&d->bias_type);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return place_of(&d->aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return place_of(&d->aux_ld);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
        return place_of(&d->aux_stride);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
        return place_of(&d->aux_type);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
        return place_of(&d->sm_target);
    default:
        return {NULL, 0};
    }
}

struct place layout_place(
        struct layout *l, cublasLtMatrixLayoutAttribute_t attribute)
{
    switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
        return place_of(&l->type);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
        return place_of(&l->order);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
        return place_of(&l->rows);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
        return place_of(&l->columns);
    case CUBLASLT_MATRIX_LAYOUT_LD:
        return place_of(&l->ld);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return place_of(&l->batch);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return place_of(&l->stride);
    default:
        return {NULL, 0};
    }
}

struct place preference_place(
        struct preference *p, cublasLtMatmulPreferenceAttributes_t a)
{
    switch (a) {
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
        return place_of(&p->search);
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return place_of(&p->workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return place_of(&p->schemes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return place_of(&p->alignment[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        return place_of(&p->alignment[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        return place_of(&p->alignment[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return place_of(&p->alignment[3]);
    case CUBLASLT_MATMUL_PREF_IMPL_MASK:
        return place_of(&p->implementations);
    default:
        return {NULL, 0};
    }
}

cublasStatus_t write_place(struct place place, const void *value, size_t bytes)
{
    if (!place.at || !value || bytes != place.bytes)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(place.at, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t read_place(
        struct place place, void *value, size_t bytes, size_t *written)
{
    if (!place.at || (bytes == 0 && !written) || (bytes && !value) ||
        (bytes && bytes != place.bytes))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (bytes)
        memcpy(value, place.at, bytes);
    if (written)
        *written = place.bytes;
    return CUBLAS_STATUS_SUCCESS;
}

/* --- what the library supports ------------------------------------------- */

bool is_known_type(uint32_t type)
{
    return type == CUDA_R_32F || type == CUDA_R_16BF || type == CUDA_R_16F;
}

bool has_bias(uint32_t epilogue)
{
    return epilogue == CUBLASLT_EPILOGUE_BIAS || is_bgrad(epilogue) ||
           epilogue == CUBLASLT_EPILOGUE_GELU_BIAS ||
           epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

bool is_known_epilogue(uint32_t epilogue)
{
    return epilogue == CUBLASLT_EPILOGUE_DEFAULT || has_bias(epilogue) ||
           has_aux(epilogue) || epilogue == CUBLASLT_EPILOGUE_GELU;
}

/* Compute and scale types with the types of A, B and C, D. */
cublasStatus_t check_types(const struct call &c)
{
    uint32_t in = c.a.type, out = c.d.type;
    bool tf32 = c.desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    if (c.desc.compute != CUBLAS_COMPUTE_32F && !tf32 &&
        c.desc.compute != CUBLAS_COMPUTE_32F_PEDANTIC)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (c.desc.scale != CUDA_R_32F || c.b.type != in || c.c.type != out ||
        !is_known_type(in) || !is_known_type(out))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (out != in && out != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (tf32 && in != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

bool fits(const struct layout &l, uint64_t rows, uint64_t columns)
{
    int64_t least = (int64_t)(l.order == CUBLASLT_ORDER_COL ? rows : columns);
    return l.rows == rows && l.columns == columns && l.ld >= least &&
           (l.order == CUBLASLT_ORDER_COL || l.order == CUBLASLT_ORDER_ROW);
}

cublasStatus_t check_shapes(const struct call &c)
{
    uint64_t m = c.d.rows, n = c.d.columns;
    uint64_t k = c.desc.trans_a ? c.a.rows : c.a.columns;
    if (!m || !n || !k)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!fits(c.a, c.desc.trans_a ? k : m, c.desc.trans_a ? m : k) ||
        !fits(c.b, c.desc.trans_b ? n : k, c.desc.trans_b ? k : n) ||
        !fits(c.c, m, n) || !fits(c.d, m, n))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (c.a.batch != c.d.batch || c.b.batch != c.d.batch ||
        c.c.batch != c.d.batch || c.d.batch < 1)
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_epilogue(const struct call &c)
{
    const struct desc &d = c.desc;
    if (!is_known_epilogue(d.epilogue))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (failures.no_bgrad && is_bgrad(d.epilogue))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (failures.no_gelu && d.epilogue & 0xe0)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (d.epilogue != CUBLASLT_EPILOGUE_DEFAULT &&
        c.d.order != CUBLASLT_ORDER_COL)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    /* a bias is of D's type */
    int32_t type = (int32_t)c.d.type;
    if (has_bias(d.epilogue) && d.bias_type != -1 && d.bias_type != type)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!has_aux(d.epilogue))
        return CUBLAS_STATUS_SUCCESS;
    if (d.aux_type != -1 && d.aux_type != type)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (d.aux_ld < (int64_t)c.d.rows || d.aux_ld % 8 || d.aux_stride % 8)
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_call(const struct call &c)
{
    cublasStatus_t status = check_types(c);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = check_shapes(c);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = check_epilogue(c);
    return status;
}

bool gather(
        struct call *c, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
        cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t cc,
        cublasLtMatrixLayout_t d)
{
    const struct desc *descriptor = (const struct desc *)desc;
    const struct layout *layouts[] = {
            (struct layout *)a, (struct layout *)b, (struct layout *)cc,
            (struct layout *)d};
    if (!desc || descriptor->magic != DESC)
        return false;
    for (const struct layout *layout : layouts)
        if (!layout || layout->magic != LAYOUT)
            return false;
    c->desc = *descriptor;
    c->a = *layouts[0], c->b = *layouts[1];
    c->c = *layouts[2], c->d = *layouts[3];
    return true;
}

/* --- algorithms ---------------------------------------------------------- */

struct algorithm {
    uint64_t magic;
    int32_t id, split;
    uint32_t scheme, alignment;
    uint64_t workspace, implementation;
    uint64_t types; /* that it was made for */
    uint64_t spare[2];
};
static_assert(sizeof(struct algorithm) == sizeof(cublasLtMatmulAlgo_t), "");

uint64_t types_of(const struct call &c)
{
    return (uint64_t)c.a.type << 16 | (uint64_t)c.d.type << 8 |
           (uint64_t)c.desc.compute;
}

struct algorithm algorithm_of(int id, const struct call &c)
{
    struct algorithm a = {};
    a.magic = ALGORITHM, a.id = id, a.split = id == 3 || id == 4 ? 2 : 1;
    a.types = types_of(c);
    a.alignment = id == 2 ? 16 : (uint32_t)type_bytes(c.a.type);
    a.scheme = id == 3   ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
               : id == 4 ? CUBLASLT_REDUCTION_SCHEME_INPLACE
                         : CUBLASLT_REDUCTION_SCHEME_NONE;
    if (id == 3)
        a.workspace = 4 * c.d.rows * c.d.columns * (uint64_t)c.d.batch;
    a.implementation = CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F;
    if (c.a.type == CUDA_R_16BF)
        a.implementation |= CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16BF;
    else if (c.a.type == CUDA_R_16F)
        a.implementation |= CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16F;
    else if (id == 5)
        a.implementation |= CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32;
    else
        a.implementation |= CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_32F;
    return a;
}

bool is_multiple(int64_t ld, int type, uint32_t alignment)
{
    return ld * (int64_t)type_bytes(type) % alignment == 0;
}

/* Whether this algorithm can do it at all, whatever the pointers. */
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
    return CUBLAS_STATUS_SUCCESS;
}

bool is_preferred(const struct algorithm &a, const struct preference &p)
{
    for (uint32_t alignment : p.alignment)
        if (alignment < a.alignment)
            return false;
    return a.workspace <= p.workspace &&
           (a.scheme == 0 || (a.scheme & p.schemes) != 0);
}

bool is_aligned_to(const void *pointer, size_t alignment)
{
    return (uintptr_t)pointer % alignment == 0;
}

cublasStatus_t check_pointers(const struct call &c, const struct algorithm &a)
{
    const struct desc &d = c.desc;
    size_t out_bytes = type_bytes(c.d.type);
    if (!c.a_data || !c.b_data || !c.d_data || !c.c_data)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!is_aligned_to(c.a_data, a.alignment) ||
        !is_aligned_to(c.b_data, a.alignment) ||
        !is_aligned_to(
                c.d_data, out_bytes < a.alignment ? a.alignment : out_bytes))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (has_bias(d.epilogue) && (!d.bias || !is_aligned_to(d.bias, out_bytes)))
        return CUBLAS_STATUS_INVALID_VALUE;
    /* aux is moved 16 bytes at a time */
    if (has_aux(d.epilogue) && (!d.aux || !is_aligned_to(d.aux, 16)))
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

void count_product(const struct call &c)
{
    std::lock_guard<std::mutex> guard(counters_lock);
    counters.products++;
    counters.of_algorithm[c.algorithm]++;
    counters.with_epilogue += c.desc.epilogue != CUBLASLT_EPILOGUE_DEFAULT;
    counters.sm_target = c.desc.sm_target;
}

bool fails_now(void)
{
    std::lock_guard<std::mutex> guard(counters_lock);
    return failures.fail_at && --failures.fail_at == 0;
}

void work(void *ctx)
{
    struct call *c = (struct call *)ctx;
    if (c->is_slow)
        usleep(3000);
    product(*c);
    delete c;
}
} // namespace

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
    if (failures.create || cudaGetDevice(&device) != cudaSuccess)
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
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
        return "CUBLAS_STATUS_UNKNOWN";
    }
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "success" : "of the stand-in";
}

size_t cublasLtGetVersion(void)
{
    return VERSION;
}

cublasStatus_t cublasLtMatmulDescCreate(
        cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
        cudaDataType_t scale)
{
    struct desc *d = new (std::nothrow) struct desc();
    if (!out || !d)
        return CUBLAS_STATUS_ALLOC_FAILED;
    d->magic = DESC, d->compute = compute, d->scale = scale;
    d->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    d->bias_type = d->aux_type = -1;
    *out = (cublasLtMatmulDesc_t)d;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    if (!desc || ((struct desc *)desc)->magic != DESC)
        return CUBLAS_STATUS_INVALID_VALUE;
    ((struct desc *)desc)->magic = 0;
    delete (struct desc *)desc;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(
        cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
        const void *value, size_t bytes)
{
    if (!desc || ((struct desc *)desc)->magic != DESC)
        return CUBLAS_STATUS_INVALID_VALUE;
    return write_place(
            desc_place((struct desc *)desc, attribute), value, bytes);
}

cublasStatus_t cublasLtMatrixLayoutCreate(
        cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
        uint64_t columns, int64_t ld)
{
    struct layout *l = new (std::nothrow) struct layout();
    if (!out || !l)
        return CUBLAS_STATUS_ALLOC_FAILED;
    l->magic = LAYOUT, l->type = type, l->rows = rows, l->columns = columns;
    l->ld = ld, l->batch = 1, l->order = CUBLASLT_ORDER_COL;
    *out = (cublasLtMatrixLayout_t)l;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    if (!layout || ((struct layout *)layout)->magic != LAYOUT)
        return CUBLAS_STATUS_INVALID_VALUE;
    ((struct layout *)layout)->magic = 0;
    delete (struct layout *)layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(
        cublasLtMatrixLayout_t layout,
        cublasLtMatrixLayoutAttribute_t attribute, const void *value,
        size_t bytes)
{
    if (!layout || ((struct layout *)layout)->magic != LAYOUT)
        return CUBLAS_STATUS_INVALID_VALUE;
    return write_place(
            layout_place((struct layout *)layout, attribute), value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    struct preference *p = new (std::nothrow) struct preference();
    if (!out || !p)
        return CUBLAS_STATUS_ALLOC_FAILED;
    p->magic = PREFERENCE, p->schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
    p->implementations = ~(uint64_t)0;
    for (uint32_t &alignment : p->alignment)
        alignment = 256;
    *out = (cublasLtMatmulPreference_t)p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    if (!p || ((struct preference *)p)->magic != PREFERENCE)
        return CUBLAS_STATUS_INVALID_VALUE;
    delete (struct preference *)p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
        cublasLtMatmulPreference_t p,
        cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
        size_t bytes)
{
    if (!p || ((struct preference *)p)->magic != PREFERENCE)
        return CUBLAS_STATUS_INVALID_VALUE;
    return write_place(
            preference_place((struct preference *)p, attribute), value, bytes);
}

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
    {
        std::lock_guard<std::mutex> guard(counters_lock);
        counters.heuristics++;
    }
    cublasStatus_t status = check_call(call);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    for (int id = 1; id <= ALGORITHMS && !failures.empty; id++) {
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
    {
        std::lock_guard<std::mutex> guard(counters_lock);
        counters.checks++;
    }
    memcpy(&algorithm, algo, sizeof algorithm);
    cublasStatus_t status = check_algorithm(algorithm, call);
    result->workspaceSize = algorithm.workspace;
    result->state = status;
    return status;
}

cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(
        const cublasLtMatmulAlgo_t *algo,
        cublasLtMatmulAlgoCapAttributes_t attribute, void *value, size_t bytes,
        size_t *written)
{
    struct algorithm a;
    if (!algo)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&a, algo, sizeof a);
    if (a.magic != ALGORITHM)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (attribute == CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS)
        return read_place(place_of(&a.implementation), value, bytes, written);
    if (attribute == CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES)
        return read_place(place_of(&a.alignment), value, bytes, written);
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(
        const cublasLtMatmulAlgo_t *algo,
        cublasLtMatmulAlgoConfigAttributes_t attribute, void *value,
        size_t bytes, size_t *written)
{
    struct algorithm a;
    uint32_t tile = CUBLASLT_MATMUL_TILE_64x64, stages = 0;
    if (!algo)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&a, algo, sizeof a);
    if (a.magic != ALGORITHM)
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
    if (!alpha || !beta || !gather(&call, desc, a, b, c, d))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (cudaGetDevice(&device) != cudaSuccess || device != handle->device)
        return CUBLAS_STATUS_ARCH_MISMATCH;
    if (algo)
        memcpy(&algorithm, algo, sizeof algorithm);
    else
        algorithm = algorithm_of(1, call);
    call.alpha = alpha, call.beta = beta;
    call.a_data = a_data, call.b_data = b_data, call.c_data = c_data;
    call.d_data = d_data, call.workspace = workspace;
    call.workspace_bytes = algorithm.workspace;
    call.algorithm = algorithm.id;
    cublasStatus_t status = check_algorithm(algorithm, call);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = check_pointers(call, algorithm);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (algorithm.workspace > workspace_bytes ||
        (algorithm.workspace && !is_aligned_to(workspace, 16)))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (failures.refuse)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (fails_now())
        return CUBLAS_STATUS_EXECUTION_FAILED;
    read_scalars(&call);
    call.is_slow = has_aux(call.desc.epilogue) || is_bgrad(call.desc.epilogue)
                           ? failures.slow_epilogue
                           : failures.slow_plain;
    count_product(call);
    struct call *queued = new struct call(call);
    if (zd_standin_enqueue(stream, work, queued) != cudaSuccess) {
        delete queued;
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    return CUBLAS_STATUS_SUCCESS;
}

} // extern "C"
