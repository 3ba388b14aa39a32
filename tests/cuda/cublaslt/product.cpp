/* product.cpp - D = epilogue(alpha op(A) op(B) + beta C), from descriptors.
 *
 * Every element is summed along K in the same order, whatever the shape. Sums
 * are taken in fp32 over runs of 128, which are then added up in fp32. */
#include "tests/cuda/cublaslt/internal.h"

extern "C" {
#include "base/number/dtype.h"
#include "kernels/fp8/fp8.h"
}

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace cublaslt
{
namespace
{
float load(const void *data, uint32_t type, int64_t at)
{
    if (is_fp8(type))
        return fp8_to_float(
                ((const uint8_t *)data)[at],
                type == CUDA_R_8F_E5M2 ? DTYPE_E5M2 : DTYPE_E4M3);
    if (type == CUDA_R_32F)
        return ((const float *)data)[at];
    if (type == CUDA_R_16BF)
        return bf16_to_float(((const uint16_t *)data)[at]);
    return (float)((const _Float16 *)data)[at];
}

void store(void *data, uint32_t type, int64_t at, float value)
{
    if (type == CUDA_R_32F)
        ((float *)data)[at] = value;
    else if (type == CUDA_R_16BF)
        ((uint16_t *)data)[at] = float_to_bf16(value);
    else
        ((_Float16 *)data)[at] = (_Float16)value;
}

int64_t element(const struct layout &l, int64_t row, int64_t column)
{
    return column * l.ld + row;
}

/* Bytes from the first element to the last. */
size_t extent(const struct layout &l)
{
    int64_t last = element(l, (int64_t)l.rows - 1, (int64_t)l.columns - 1);
    return (size_t)(last + 1) * type_bytes(l.type);
}

struct sizes {
    int64_t m, n, k;
};

struct sizes sizes_of(const struct call &c)
{
    return {(int64_t)c.d.rows, (int64_t)c.d.columns,
            (int64_t)(c.desc.trans_a ? c.a.rows : c.a.columns)};
}

float tf32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= 0xffffe000u;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

/* Of an operand in FP8; none of another. */
struct scales {
    const float *data;
    int32_t mode;
};

enum scale_layout layout_of(int32_t mode)
{
    return mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F ? SCALES_1X128
           : mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F
                   ? SCALES_128X128
                   : SCALES_TENSOR;
}

/* Rows of the matrix as stored are what is summed. */
float scale_at(
        const struct scales &s, const struct layout &l, int64_t r, int64_t c)
{
    return s.data ? s.data[fp8_scale_at(
                            layout_of(s.mode), l.columns, l.rows, (size_t)c,
                            (size_t)r)]
                  : 1.0f;
}

/* op(matrix) in fp32, column after column. */
std::vector<float> widened(
        const void *data, const struct layout &l, const struct scales &scales,
        bool transposed, bool as_tf32)
{
    int64_t rows = (int64_t)l.rows, columns = (int64_t)l.columns;
    std::vector<float> out((size_t)(rows * columns));
    for (int64_t c = 0; c < columns; c++)
        for (int64_t r = 0; r < rows; r++) {
            float x = load(data, l.type, element(l, r, c)) *
                      scale_at(scales, l, r, c);
            int64_t at = transposed ? r * columns + c : c * rows + r;
            out[(size_t)at] = as_tf32 ? tf32(x) : x;
        }
    return out;
}

enum { RUN = 128, ROWS = 512 };

/* sums[i] = sum over k of a[k * m + i] * b[k], for `count` rows. */
__attribute__((target_clones("avx512f", "avx2", "default"))) void multiply_rows(
        float *sums, const float *a, int64_t m, const float *b, int64_t k,
        int count)
{
    float part[ROWS];
    std::fill(sums, sums + count, 0.0f);
    for (int64_t first = 0; first < k; first += RUN) {
        int64_t last = std::min<int64_t>(first + RUN, k), i = first;
        std::fill(part, part + count, 0.0f);
        for (; i + 4 <= last; i += 4) {
            const float *p = a + i * m, *q = p + m, *r = q + m, *s = r + m;
            float w = b[i], x = b[i + 1], y = b[i + 2], z = b[i + 3];
            for (int row = 0; row < count; row++)
                part[row] =
                        (((part[row] + p[row] * w) + q[row] * x) + r[row] * y) +
                        s[row] * z;
        }
        for (; i < last; i++)
            for (int row = 0; row < count; row++)
                part[row] += a[i * m + row] * b[i];
        for (int row = 0; row < count; row++)
            sums[row] += part[row];
    }
}

const double SLOPE = 0.7978845608028654, CUBE = 0.044715;

/* The tanh form. */
float gelu(float x)
{
    double u = SLOPE * ((double)x + CUBE * x * x * x);
    return (float)(0.5 * x * (1.0 + tanh(u)));
}

float gelu_slope(float x)
{
    double t = tanh(SLOPE * ((double)x + CUBE * x * x * x));
    return (float)(0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * SLOPE * (1.0 + 3.0 * CUBE * x * x));
}

/* The arrays of a call at addresses of the host. */
struct matrices {
    const void *a, *b;
    void *d, *bias, *aux;
    struct scales a_scales, b_scales;
};

float after(
        const struct call &c, const struct matrices &x, float value, int64_t i,
        int64_t j)
{
    uint32_t epilogue = c.desc.epilogue, type = c.d.type;
    int64_t at = j * c.desc.aux_ld + i;
    if (epilogue == CUBLASLT_EPILOGUE_BIAS ||
        epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
        value += load(x.bias, type, i);
    if (epilogue == CUBLASLT_EPILOGUE_GELU_AUX ||
        epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
        store(x.aux, type, at, value);
    if (epilogue == CUBLASLT_EPILOGUE_DGELU)
        return value * gelu_slope(load(x.aux, type, at));
    return epilogue & 32 ? gelu(value) : value;
}

/* Sums of A's rows or B's columns along K. */
void bias_gradient(
        const struct call &c, const struct matrices &x,
        const std::vector<float> &a, const std::vector<float> &b)
{
    struct sizes s = sizes_of(c);
    bool of_a = c.desc.epilogue == CUBLASLT_EPILOGUE_BGRADA;
    int64_t count = of_a ? s.m : s.n;
    for (int64_t i = 0; i < count; i++) {
        double sum = 0.0;
        for (int64_t k = 0; k < s.k; k++)
            sum += of_a ? a[(size_t)(k * s.m + i)] : b[(size_t)(i * s.k + k)];
        store(x.bias, c.d.type, i, (float)sum);
    }
}

void multiply(const struct call &c, const struct matrices &x)
{
    struct sizes s = sizes_of(c);
    bool as_tf32 =
            c.algorithm == 5 || c.desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    /* a: (m, k) with m together; b: (k, n) with k together */
    std::vector<float> a =
            widened(x.a, c.a, x.a_scales, c.desc.trans_a != 0, as_tf32);
    std::vector<float> b =
            widened(x.b, c.b, x.b_scales, c.desc.trans_b != 0, as_tf32);
    if (is_bgrad(c.desc.epilogue))
        bias_gradient(c, x, a, b);
    float sums[ROWS];
    for (int64_t first = 0; first < s.m; first += ROWS) {
        int count = (int)std::min<int64_t>(ROWS, s.m - first);
        for (int64_t j = 0; j < s.n; j++) {
            multiply_rows(
                    sums, a.data() + first, s.m, b.data() + j * s.k, s.k,
                    count);
            for (int row = 0; row < count; row++) {
                int64_t i = first + row;
                float value = c.alpha * sums[row];
                if (c.beta != 0.0f)
                    value += c.beta * load(x.d, c.d.type, element(c.d, i, j));
                /* two that the program must not choose */
                if (c.algorithm == 4)
                    value += 1.0f;
                store(x.d, c.d.type, element(c.d, i, j),
                      after(c, x, value, i, j));
            }
        }
    }
}

bool can_reach(const char *what, const void *data, size_t bytes)
{
    if (zd_standin_is_reachable(data, bytes))
        return true;
    zd_standin_set_sticky(
            cudaErrorIllegalAddress,
            "cublasLtMatmul: %s: %zu bytes at %p are not the device's", what,
            bytes, data);
    return false;
}

bool can_reach_scales(const void *data, int32_t mode, const struct layout &l)
{
    return can_reach(
            "scales", data,
            sizeof(float) *
                    fp8_scale_count(layout_of(mode), l.columns, l.rows));
}

bool can_reach_all(const struct call &c)
{
    struct sizes s = sizes_of(c);
    bool of_b = c.desc.epilogue == CUBLASLT_EPILOGUE_BGRADB;
    size_t width = type_bytes(c.d.type);
    if (!can_reach("A", c.a_data, extent(c.a)) ||
        !can_reach("B", c.b_data, extent(c.b)) ||
        !can_reach("D", c.d_data, extent(c.d)))
        return false;
    if (is_fp8(c.a.type) &&
        (!can_reach_scales(c.desc.a_scales, c.desc.a_scale_mode, c.a) ||
         !can_reach_scales(c.desc.b_scales, c.desc.b_scale_mode, c.b)))
        return false;
    if (c.workspace_bytes &&
        !can_reach("workspace", c.workspace, c.workspace_bytes))
        return false;
    if (c.desc.bias &&
        !can_reach("bias", c.desc.bias, (size_t)(of_b ? s.n : s.m) * width))
        return false;
    return !has_aux(c.desc.epilogue) ||
           can_reach(
                   "aux", c.desc.aux,
                   (size_t)((s.n - 1) * c.desc.aux_ld + s.m) * width);
}
} // namespace

void product(const struct call &c)
{
    if (!can_reach_all(c))
        return;
    multiply(
            c, {zd_standin_host(c.a_data),
                zd_standin_host(c.b_data),
                zd_standin_host(c.d_data),
                zd_standin_host(c.desc.bias),
                zd_standin_host(c.desc.aux),
                {(const float *)zd_standin_host(c.desc.a_scales),
                 c.desc.a_scale_mode},
                {(const float *)zd_standin_host(c.desc.b_scales),
                 c.desc.b_scale_mode}});
}
} // namespace cublaslt
