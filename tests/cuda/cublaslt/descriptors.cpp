/* descriptors.cpp - descriptors of products, layouts of matrices, preferences:
 * made, changed and taken back into a call. */
#include "tests/cuda/cublaslt/internal.h"

#include <cstring>
#include <new>

namespace cublaslt
{
namespace
{
const uint32_t DESC = 0x44455343, LAYOUT = 0x4c41594f, PREFERENCE = 0x50524546;

struct place desc_place(
        struct desc *d, cublasLtMatmulDescAttributes_t attribute)
{
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return place_of(&d->trans_a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return place_of(&d->trans_b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return place_of(&d->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return place_of(&d->bias);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return place_of(&d->aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return place_of(&d->aux_ld);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
        return place_of(&d->sm_target);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
        return place_of(&d->fast_accum);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
        return place_of(&d->a_scales);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
        return place_of(&d->b_scales);
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE:
        return place_of(&d->a_scale_mode);
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE:
        return place_of(&d->b_scale_mode);
    default:
        return {NULL, 0};
    }
}

int capability(void)
{
    int device = 0;
    struct cudaDeviceProp properties = {};
    cudaGetDevice(&device);
    cudaGetDeviceProperties(&properties, device);
    return 10 * properties.major + properties.minor;
}

struct place layout_place(
        struct layout *l, cublasLtMatrixLayoutAttribute_t attribute)
{
    switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
        return place_of(&l->type);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
        return place_of(&l->rows);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
        return place_of(&l->columns);
    case CUBLASLT_MATRIX_LAYOUT_LD:
        return place_of(&l->ld);
    default:
        return {NULL, 0};
    }
}

struct place preference_place(
        struct preference *p, cublasLtMatmulPreferenceAttributes_t a)
{
    switch (a) {
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
} // namespace

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
    c->a = *layouts[0], c->b = *layouts[1], c->d = *layouts[3];
    c->capability = capability();
    return cc == d;
}
} // namespace cublaslt

using namespace cublaslt;

extern "C" {

cublasStatus_t cublasLtMatmulDescCreate(
        cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
        cudaDataType_t scale)
{
    struct desc *d = new (std::nothrow) struct desc();
    if (!out || !d)
        return CUBLAS_STATUS_ALLOC_FAILED;
    d->magic = DESC, d->compute = compute, d->scale = scale;
    d->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
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

cublasStatus_t cublasLtMatmulDescGetAttribute(
        cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
        void *value, size_t bytes, size_t *written)
{
    if (!desc || ((struct desc *)desc)->magic != DESC)
        return CUBLAS_STATUS_INVALID_VALUE;
    return read_place(
            desc_place((struct desc *)desc, attribute), value, bytes, written);
}

cublasStatus_t cublasLtMatrixLayoutCreate(
        cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
        uint64_t columns, int64_t ld)
{
    struct layout *l = new (std::nothrow) struct layout();
    if (!out || !l)
        return CUBLAS_STATUS_ALLOC_FAILED;
    l->magic = LAYOUT, l->type = type, l->rows = rows, l->columns = columns;
    l->ld = ld;
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

cublasStatus_t cublasLtMatrixLayoutGetAttribute(
        cublasLtMatrixLayout_t layout,
        cublasLtMatrixLayoutAttribute_t attribute, void *value, size_t bytes,
        size_t *written)
{
    if (!layout || ((struct layout *)layout)->magic != LAYOUT)
        return CUBLAS_STATUS_INVALID_VALUE;
    return read_place(
            layout_place((struct layout *)layout, attribute), value, bytes,
            written);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    struct preference *p = new (std::nothrow) struct preference();
    if (!out || !p)
        return CUBLAS_STATUS_ALLOC_FAILED;
    p->magic = PREFERENCE, p->schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
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

} // extern "C"
