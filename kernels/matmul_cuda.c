/* matmul_cuda.c - the operations of matmul.h on a GPU: by cuBLASLt, in one pass
 * where it has an epilogue for it, else by parts; and by our own kernel where
 * the library has nothing. UNTESTED on a GPU.
 *
 * What epilogues there are (NVIDIA's documentation of cublasLtMatmul, 13.1):
 *   - a bias is of D's type, so bf16 biases on fp32 results are added apart;
 *   - GELU is the tanh form, as ours; its aux matrix has rows of a multiple of
 *     8 elements. In fp32 it is less exact than our own, so it is not used;
 *   - sums of columns overwrite: a gradient that is added to goes by way of the
 *     workspace. */
#include "kernels/matmul_cuda.h"
#include "base/device_cuda.h"
#include "kernels/cuda_table.h"

#include <assert.h>
#include <stdatomic.h>

static _Atomic int sm_target;
static _Atomic int tf32_allowed;

void products_set_sm_target(int multiprocessors)
{
    sm_target = multiprocessors > 0 ? multiprocessors : 0;
}

void products_set_tf32(bool allowed)
{
    tf32_allowed = allowed;
}

/* What composing needs of the other families, by type. */
static gelu_forward_fn *const gelu_forward_of[] = {
        [DTYPE_FP32] = gelu_forward_cuda_fp32,
        [DTYPE_BF16] = gelu_forward_cuda_bf16,
        [DTYPE_FP16] = gelu_forward_cuda_fp16,
};
static gelu_backward_fn *const gelu_backward_of[] = {
        [DTYPE_FP32] = gelu_backward_cuda_fp32,
        [DTYPE_BF16] = gelu_backward_cuda_bf16,
        [DTYPE_FP16] = gelu_backward_cuda_fp16,
};
static reduce_rows_fn *const reduce_rows_of[] = {
        [DTYPE_FP32] = reduce_rows_cuda_fp32,
        [DTYPE_BF16] = reduce_rows_cuda_bf16,
        [DTYPE_FP16] = reduce_rows_cuda_fp16,
};

static void note_alignment(uintptr_t *bits, const void *pointer)
{
    *bits |= (uintptr_t)pointer;
}

/* Largest power of two up to 16 that divides every address. */
static uint8_t alignment_of(const struct product_operands *o)
{
    uintptr_t bits = 16;
    note_alignment(&bits, o->a);
    note_alignment(&bits, o->b);
    note_alignment(&bits, o->d);
    note_alignment(&bits, o->bias);
    note_alignment(&bits, o->aux);
    return (uint8_t)(bits & -bits);
}

/* Row-major out(M,N) = op(a) op(b) as the library sees it. */
static struct product product_of(
        enum dtype dtype, enum dtype out_type, int M, int N, int K,
        bool trans_a, bool trans_b, enum product_epilogue epilogue,
        const struct product_operands *operands)
{
    assert(M > 0 && N > 0 && K > 0);
    return (struct product){
            .m = N,
            .n = M,
            .k = K,
            .sm_target = sm_target,
            .dtype = (uint8_t)dtype,
            .out_type = (uint8_t)out_type,
            .trans_a = trans_b,
            .trans_b = trans_a,
            .epilogue = (uint8_t)epilogue,
            .alignment = alignment_of(operands),
            .tf32 = dtype == DTYPE_FP32 && tf32_allowed,
    };
}

static enum zd_status matmul(
        struct stream *stream, void *out, enum dtype out_type, const void *a,
        const void *b, const void *bias, enum dtype dtype, int M, int N, int K,
        bool trans_a, bool trans_b, bool accumulate)
{
    bool done, fuses_bias = bias && out_type == dtype;
    struct product_operands operands = {
            .a = b,
            .b = a,
            .d = out,
            .bias = fuses_bias ? (void *)bias : NULL,
            .accumulate = accumulate,
    };
    struct product product = product_of(
            dtype, out_type, M, N, K, trans_a, trans_b,
            fuses_bias ? PRODUCT_BIAS : PRODUCT_PLAIN, &operands);
    assert(!accumulate || out_type == DTYPE_FP32);
    ZD_TRY(product_run(stream, &product, &operands, &done));
    if (!done)
        return matmul_own_cuda(
                stream, out, out_type, a, b, bias, dtype, M, N, K, trans_a,
                trans_b, accumulate);
    if (bias && !fuses_bias)
        return matmul_add_bias_cuda(stream, out, out_type, bias, dtype, M, N);
    return ZD_OK;
}

/* bf16 and fp16 only, and where the aux matrix suits the library. */
static bool can_fuse_gelu(enum dtype dtype, int N)
{
    return dtype != DTYPE_FP32 && N % 8 == 0;
}

static enum zd_status matmul_gelu(
        struct stream *stream, void *out, void *pre, const void *a,
        const void *b, const void *bias, enum dtype dtype, int M, int N, int K,
        bool trans_b)
{
    if (can_fuse_gelu(dtype, N)) {
        bool done;
        struct product_operands operands = {
                .a = b,
                .b = a,
                .d = out,
                .bias = (void *)bias,
                .aux = pre,
        };
        struct product product = product_of(
                dtype, dtype, M, N, K, false, trans_b,
                bias ? PRODUCT_GELU_AUX_BIAS : PRODUCT_GELU_AUX, &operands);
        ZD_TRY(product_run(stream, &product, &operands, &done));
        if (done)
            return ZD_OK;
    }
    ZD_TRY(
            matmul(stream, pre, dtype, a, b, bias, dtype, M, N, K, false,
                   trans_b, false));
    return gelu_forward_of[dtype](stream, out, pre, (size_t)M * (size_t)N);
}

static enum zd_status matmul_dgelu(
        struct stream *stream, void *dpre, const void *dout, const void *b,
        const void *pre, enum dtype dtype, int M, int N, int K, bool trans_b)
{
    if (can_fuse_gelu(dtype, N)) {
        bool done;
        struct product_operands operands = {
                .a = b,
                .b = dout,
                .d = dpre,
                .aux = (void *)pre,
        };
        struct product product = product_of(
                dtype, dtype, M, N, K, false, trans_b, PRODUCT_DGELU,
                &operands);
        ZD_TRY(product_run(stream, &product, &operands, &done));
        if (done)
            return ZD_OK;
    }
    ZD_TRY(
            matmul(stream, dpre, dtype, dout, b, NULL, dtype, M, N, K, false,
                   trans_b, false));
    return gelu_backward_of[dtype](
            stream, dpre, dpre, pre, (size_t)M * (size_t)N);
}

/* dweight and, in the same pass over dy, the sums of its columns. *done_out
 * false: the library cannot, nothing was queued. */
static enum zd_status weight_grads_fused(
        struct stream *stream, float *dweight, float *dbias, const void *a,
        const void *b, enum dtype dtype, int rows, int columns, int tokens,
        bool dy_first, bool accumulate, bool *done_out)
{
    int count = dy_first ? rows : columns;
    size_t bytes = (size_t)count * sizeof *dbias;
    float *sums = dbias;
    *done_out = false;
    if (accumulate) {
        if (bytes > PRODUCT_BORROW_BYTES || cuda_workspace_size() < bytes)
            return ZD_OK;
        sums = cuda_workspace(bytes);
    }
    struct product_operands operands = {
            .a = b,
            .b = a,
            .d = dweight,
            .bias = sums,
            .accumulate = accumulate,
    };
    /* our b is its A, whose columns of ours are rows there */
    struct product product = product_of(
            dtype, DTYPE_FP32, rows, columns, tokens, true, false,
            dy_first ? PRODUCT_BGRADB : PRODUCT_BGRADA, &operands);
    ZD_TRY(product_run(stream, &product, &operands, done_out));
    if (*done_out && accumulate)
        return matmul_add_sums_cuda(stream, dbias, sums, count);
    return ZD_OK;
}

static enum zd_status matmul_weight_grads(
        struct stream *stream, float *dweight, float *dbias, const void *a,
        const void *b, enum dtype dtype, int rows, int columns, int tokens,
        bool dy_first, bool accumulate)
{
    bool done = false;
    if (dbias)
        ZD_TRY(weight_grads_fused(
                stream, dweight, dbias, a, b, dtype, rows, columns, tokens,
                dy_first, accumulate, &done));
    if (done)
        return ZD_OK;
    ZD_TRY(
            matmul(stream, dweight, DTYPE_FP32, a, b, NULL, dtype, rows,
                   columns, tokens, true, false, accumulate));
    if (!dbias)
        return ZD_OK;
    return reduce_rows_of[dtype](
            stream, dbias, dy_first ? a : b, tokens, dy_first ? rows : columns,
            accumulate);
}

/* --- the table's entries -------------------------------------------------- */

#define ENTRIES(type, TYPE)                                                    \
    enum zd_status matmul_cuda_##type(                                         \
            struct stream *stream, void *out, enum dtype out_type,             \
            const void *a, const void *b, const void *bias, int M, int N,      \
            int K, bool trans_a, bool trans_b, bool accumulate)                \
    {                                                                          \
        return matmul(                                                         \
                stream, out, out_type, a, b, bias, DTYPE_##TYPE, M, N, K,      \
                trans_a, trans_b, accumulate);                                 \
    }                                                                          \
    enum zd_status matmul_gelu_cuda_##type(                                    \
            struct stream *stream, void *out, void *pre, const void *a,        \
            const void *b, const void *bias, int M, int N, int K,              \
            bool trans_b)                                                      \
    {                                                                          \
        return matmul_gelu(                                                    \
                stream, out, pre, a, b, bias, DTYPE_##TYPE, M, N, K, trans_b); \
    }                                                                          \
    enum zd_status matmul_dgelu_cuda_##type(                                   \
            struct stream *stream, void *dpre, const void *dout,               \
            const void *b, const void *pre, int M, int N, int K, bool trans_b) \
    {                                                                          \
        return matmul_dgelu(                                                   \
                stream, dpre, dout, b, pre, DTYPE_##TYPE, M, N, K, trans_b);   \
    }                                                                          \
    enum zd_status matmul_weight_grads_cuda_##type(                            \
            struct stream *stream, float *dweight, float *dbias,               \
            const void *a, const void *b, int rows, int columns, int tokens,   \
            bool dy_first, bool accumulate)                                    \
    {                                                                          \
        return matmul_weight_grads(                                            \
                stream, dweight, dbias, a, b, DTYPE_##TYPE, rows, columns,     \
                tokens, dy_first, accumulate);                                 \
    }

ENTRIES(fp32, FP32)
ENTRIES(bf16, BF16)
ENTRIES(fp16, FP16)
#undef ENTRIES

enum zd_status matmul_cuda_open(struct kernels *table, const char **name_out)
{
    return products_open(name_out);
}
