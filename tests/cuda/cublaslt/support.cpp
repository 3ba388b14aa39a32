/* support.cpp - what the library supports: types, shapes, epilogues and
 * addresses of a product, whatever the algorithm. */
#include "tests/cuda/cublaslt/internal.h"

namespace cublaslt
{
namespace
{
bool is_known_type(uint32_t type)
{
    return type == CUDA_R_32F || type == CUDA_R_16BF || type == CUDA_R_16F;
}

/* --- FP8: NVIDIA's reference of cublasLtMatmul, 13.1 ---------------------- */

bool is_by_blocks(int32_t mode)
{
    return mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F ||
           mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
}

/* Scales of one tensor, or of blocks where the GPU is a Hopper: not tiles with
 * tiles, never summed in the tensor core alone, and of B whole fours of columns
 * (the last as the library of an H200 was seen to). */
bool has_known_scales(const struct call &c)
{
    int32_t a = c.desc.a_scale_mode, b = c.desc.b_scale_mode;
    if (b == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F && c.d.columns % 4)
        return false;
    if (a == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F && a == b)
        return true;
    return is_by_blocks(a) && is_by_blocks(b) && c.capability == 90 &&
           (a == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F ||
            b == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F) &&
           !c.desc.fast_accum;
}

/* A transposed, B not, on all but data center Blackwells. */
cublasStatus_t check_fp8(const struct call &c)
{
    bool is_tn = c.desc.trans_a && !c.desc.trans_b;
    bool takes_all = c.capability >= 100 && c.capability < 120;
    if (c.capability < 89 || (!is_tn && !takes_all) || !is_fp8(c.b.type) ||
        (c.a.type == CUDA_R_8F_E5M2 && c.b.type == CUDA_R_8F_E5M2))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (is_by_blocks(c.desc.a_scale_mode) != is_by_blocks(c.desc.b_scale_mode))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!has_known_scales(c))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (c.desc.epilogue != CUBLASLT_EPILOGUE_DEFAULT &&
        (c.desc.epilogue != CUBLASLT_EPILOGUE_BIAS || c.d.type != CUDA_R_16BF ||
         asked_failures().no_fp8_bias))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

bool is_known_epilogue(uint32_t epilogue)
{
    return epilogue == CUBLASLT_EPILOGUE_DEFAULT || has_bias(epilogue) ||
           has_aux(epilogue);
}

/* Compute and scale types with the types of A, B and C, D. */
cublasStatus_t check_types(const struct call &c)
{
    uint32_t in = c.a.type, out = c.d.type;
    bool tf32 = c.desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    if (c.desc.compute != CUBLAS_COMPUTE_32F && !tf32)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (c.desc.scale != CUDA_R_32F || !is_known_type(out))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (is_fp8(in))
        return tf32 ? CUBLAS_STATUS_NOT_SUPPORTED : check_fp8(c);
    if (c.b.type != in || !is_known_type(in))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (out != in && out != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (tf32 && in != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

bool fits(const struct layout &l, uint64_t rows, uint64_t columns)
{
    return l.rows == rows && l.columns == columns && l.ld >= (int64_t)rows;
}

cublasStatus_t check_shapes(const struct call &c)
{
    uint64_t m = c.d.rows, n = c.d.columns;
    uint64_t k = c.desc.trans_a ? c.a.rows : c.a.columns;
    if (!m || !n || !k)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!fits(c.a, c.desc.trans_a ? k : m, c.desc.trans_a ? m : k) ||
        !fits(c.b, c.desc.trans_b ? n : k, c.desc.trans_b ? k : n) ||
        !fits(c.d, m, n))
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_epilogue(const struct call &c)
{
    const struct desc &d = c.desc;
    if (!is_known_epilogue(d.epilogue))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (asked_failures().no_bgrad && is_bgrad(d.epilogue))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (asked_failures().no_gelu && d.epilogue & 0xe0)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (has_aux(d.epilogue) && (d.aux_ld < (int64_t)c.d.rows || d.aux_ld % 8))
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}
} // namespace

cublasStatus_t check_call(const struct call &c)
{
    cublasStatus_t status = check_types(c);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = check_shapes(c);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = check_epilogue(c);
    return status;
}

cublasStatus_t check_pointers(const struct call &c, size_t alignment)
{
    const struct desc &d = c.desc;
    size_t out_bytes = type_bytes(c.d.type);
    if (!c.a_data || !c.b_data || !c.d_data)
        return CUBLAS_STATUS_INVALID_VALUE;
    /* as the library of an H100 was seen to */
    if (c.workspace_bytes && !is_aligned_to(c.workspace, 256))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!is_aligned_to(c.a_data, alignment) ||
        !is_aligned_to(c.b_data, alignment) ||
        !is_aligned_to(c.d_data, out_bytes < alignment ? alignment : out_bytes))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (is_fp8(c.a.type) &&
        (!d.a_scales || !d.b_scales || !is_aligned_to(d.a_scales, 16) ||
         !is_aligned_to(d.b_scales, 16)))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (has_bias(d.epilogue) && (!d.bias || !is_aligned_to(d.bias, out_bytes)))
        return CUBLAS_STATUS_INVALID_VALUE;
    /* aux is moved 16 bytes at a time */
    if (has_aux(d.epilogue) && (!d.aux || !is_aligned_to(d.aux, 16)))
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}
} // namespace cublaslt
