/* matmul_cuda.c - the operations of matmul.h on a GPU: by cuBLASLt, in one pass
 * where it has an epilogue for it, else by parts; and by our own kernel where
 * the library has nothing.
 *
 * What epilogues there are (NVIDIA's documentation of cublasLtMatmul, 13.1):
 *   - a bias is of D's type, so bf16 biases on fp32 results are added apart;
 *   - GELU is the tanh form, as ours; its aux matrix has rows of a multiple of
 *     8 elements. In fp32 it is less exact than our own, so it is not used;
 *   - sums of columns overwrite: a gradient that is added to goes by way of the
 *     workspace. */
#include "kernels/matmul/matmul_cuda.h"
#include "base/device/device_cuda.h"
#include "kernels/cuda/cuda_workspace.h"
#include "kernels/elementwise/activation.h"
#include "kernels/elementwise/elementwise.h"

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

/* Of a matrix `width` elements wide; no gap is one way only of a plan's key. */
static int32_t gap_or_none(int stride, int width)
{
    assert(stride >= width);
    return stride == width ? 0 : stride;
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

/* A product as the library gets it, or our own kernel. */
static enum zd_status matmul_whole(
        struct stream *stream, void *out, enum dtype out_type, const void *a,
        const void *b, const void *bias, const struct matmul_strides *strides,
        enum dtype dtype, int M, int N, int K, bool trans_a, bool trans_b,
        bool accumulate)
{
    bool fuses_bias = bias && out_type == dtype;
    enum product_outcome outcome;
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
    assert(!bias || strides->out == N);
    product.lda = gap_or_none(strides->b, trans_b ? K : N);
    product.ldb = gap_or_none(strides->a, trans_a ? M : K);
    product.ldd = gap_or_none(strides->out, N);
    ZD_TRY(product_run(stream, &product, &operands, &outcome));
    if (outcome == PRODUCT_REFUSED)
        return matmul_own_cuda(
                stream, out, out_type, a, b, bias, strides, dtype, M, N, K,
                trans_a, trans_b, accumulate);
    if (bias && !fuses_bias)
        return matmul_add_bias_cuda(stream, out, out_type, bias, dtype, M, N);
    return ZD_OK;
}

/* The library's fast kernels move 16 bytes at a time, and so want counts of
 * eight of a dimension that lies densely: a vocabulary of 50257 costs five
 * times what 50256 does (head of GPT-2 124M on an H100, cuBLASLt 13.1, products
 * of 5042 tokens: 3.8 and 3.2 ms where 0.65 ms are due). So what is over eights
 * of a large one is a product of its own. */
enum { EIGHTS_MIN = 4096 };

static int over_eights(enum dtype dtype, int count)
{
    return dtype != DTYPE_FP32 && count >= EIGHTS_MIN ? count % 8 : 0;
}

static const void *elements_on(const void *x, enum dtype dtype, size_t count)
{
    return (const char *)x + count * dtype_bytes(dtype);
}

/* out(M,N) = a(M,K) b(N,K)^T: the last columns of out apart. */
static enum zd_status matmul_columns_apart(
        struct stream *stream, void *out, enum dtype out_type, const void *a,
        const void *b, const struct matmul_strides *strides, enum dtype dtype,
        int M, int N, int K, bool accumulate)
{
    int rest = over_eights(dtype, N), most = N - rest;
    ZD_TRY(matmul_whole(
            stream, out, out_type, a, b, NULL, strides, dtype, M, most, K,
            false, true, accumulate));
    return matmul_whole(
            stream, (void *)elements_on(out, out_type, (size_t)most), out_type,
            a, elements_on(b, dtype, (size_t)most * (size_t)strides->b), NULL,
            strides, dtype, M, rest, K, false, true, accumulate);
}

/* out(M,N) = a(M,K) b(K,N): the last of the sum first, so that the rest is
 * added to it in fp32 and rounded with it; of its own it is rounded to out's
 * type, which is a part in thousands of one rounding of the sum. */
static enum zd_status matmul_depth_apart(
        struct stream *stream, void *out, enum dtype out_type, const void *a,
        const void *b, const struct matmul_strides *strides, enum dtype dtype,
        int M, int N, int K, bool accumulate)
{
    int rest = over_eights(dtype, K), most = K - rest;
    ZD_TRY(matmul_whole(
            stream, out, out_type, elements_on(a, dtype, (size_t)most),
            elements_on(b, dtype, (size_t)most * (size_t)strides->b), NULL,
            strides, dtype, M, N, rest, false, false, accumulate));
    return matmul_whole(
            stream, out, out_type, a, b, NULL, strides, dtype, M, N, most,
            false, false, true);
}

static enum zd_status matmul_strided(
        struct stream *stream, void *out, enum dtype out_type, const void *a,
        const void *b, const void *bias, const struct matmul_strides *strides,
        enum dtype dtype, int M, int N, int K, bool trans_a, bool trans_b,
        bool accumulate)
{
    assert(!accumulate || out_type == DTYPE_FP32);
    if (!bias && !trans_a && trans_b && over_eights(dtype, N) &&
        strides->out % 8 == 0)
        return matmul_columns_apart(
                stream, out, out_type, a, b, strides, dtype, M, N, K,
                accumulate);
    if (!bias && !trans_a && !trans_b && over_eights(dtype, K) &&
        strides->a % 8 == 0)
        return matmul_depth_apart(
                stream, out, out_type, a, b, strides, dtype, M, N, K,
                accumulate);
    return matmul_whole(
            stream, out, out_type, a, b, bias, strides, dtype, M, N, K, trans_a,
            trans_b, accumulate);
}

static enum zd_status matmul(
        struct stream *stream, void *out, enum dtype out_type, const void *a,
        const void *b, const void *bias, enum dtype dtype, int M, int N, int K,
        bool trans_a, bool trans_b, bool accumulate)
{
    struct matmul_strides dense = {N, trans_a ? M : K, trans_b ? K : N};
    return matmul_strided(
            stream, out, out_type, a, b, bias, &dense, dtype, M, N, K, trans_a,
            trans_b, accumulate);
}

/* bf16 and fp16 only, and where the aux matrix suits the library. */
static bool can_fuse_gelu(enum dtype dtype, int N, const void *aux)
{
    return dtype != DTYPE_FP32 && N % 8 == 0 && (uintptr_t)aux % 16 == 0;
}

/* The product with its epilogue, else `apart`; which of them is the faster is
 * found out at its first use. */
static enum zd_status fused_or_apart(
        struct stream *stream, const struct product *product,
        const struct product_operands *operands, product_fn *apart,
        const void *ctx)
{
    enum product_outcome outcome;
    ZD_TRY(product_run(stream, product, operands, &outcome));
    if (outcome == PRODUCT_REFUSED)
        return apart(ctx);
    if (outcome == PRODUCT_UNDECIDED)
        return product_decide(stream, product, operands, apart, ctx);
    return ZD_OK;
}

/* --- GELU ---------------------------------------------------------------- */

struct gelu {
    struct stream *stream;
    enum dtype dtype;
    void *out, *pre; /* forward: both written; backward: pre is read */
    const void *a, *b, *bias;
    int M, N, K;
    bool trans_b;
};

static enum zd_status gelu_apart(const void *ctx)
{
    const struct gelu *g = ctx;
    ZD_TRY(
            matmul(g->stream, g->pre, g->dtype, g->a, g->b, g->bias, g->dtype,
                   g->M, g->N, g->K, false, g->trans_b, false));
    return gelu_forward_of[g->dtype](
            g->stream, g->out, g->pre, (size_t)g->M * (size_t)g->N);
}

static enum zd_status dgelu_apart(const void *ctx)
{
    const struct gelu *g = ctx;
    ZD_TRY(
            matmul(g->stream, g->out, g->dtype, g->a, g->b, NULL, g->dtype,
                   g->M, g->N, g->K, false, g->trans_b, false));
    return gelu_backward_of[g->dtype](
            g->stream, g->out, g->out, g->pre, (size_t)g->M * (size_t)g->N);
}

static enum zd_status gelu_product(
        const struct gelu *g, enum product_epilogue epilogue, product_fn *apart)
{
    struct product_operands operands = {
            .a = g->b,
            .b = g->a,
            .d = g->out,
            .bias = (void *)g->bias,
            .aux = g->pre,
    };
    struct product product = product_of(
            g->dtype, g->dtype, g->M, g->N, g->K, false, g->trans_b, epilogue,
            &operands);
    if (!can_fuse_gelu(g->dtype, g->N, g->pre))
        return apart(g);
    return fused_or_apart(g->stream, &product, &operands, apart, g);
}

static enum zd_status matmul_gelu(
        struct stream *stream, void *out, void *pre, const void *a,
        const void *b, const void *bias, enum dtype dtype, int M, int N, int K,
        bool trans_b)
{
    const struct gelu g = {stream, dtype, out, pre, a,      b,
                           bias,   M,     N,   K,   trans_b};
    return gelu_product(
            &g, bias ? PRODUCT_GELU_AUX_BIAS : PRODUCT_GELU_AUX, gelu_apart);
}

static enum zd_status matmul_dgelu(
        struct stream *stream, void *dpre, const void *dout, const void *b,
        const void *pre, enum dtype dtype, int M, int N, int K, bool trans_b)
{
    const struct gelu g = {stream, dtype, dpre, (void *)pre, dout,   b,
                           NULL,   M,     N,    K,           trans_b};
    return gelu_product(&g, PRODUCT_DGELU, dgelu_apart);
}

/* --- gradients of a linear layer's parameters ---------------------------- */

struct grads {
    struct stream *stream;
    enum dtype dtype;
    float *dweight, *dbias;
    const void *a, *b;
    int rows, columns, tokens;
    bool dy_first, accumulate;
};

static int bias_count(const struct grads *g)
{
    return g->dy_first ? g->rows : g->columns;
}

static enum zd_status grads_apart(const void *ctx)
{
    const struct grads *g = ctx;
    ZD_TRY(matmul(
            g->stream, g->dweight, DTYPE_FP32, g->a, g->b, NULL, g->dtype,
            g->rows, g->columns, g->tokens, true, false, g->accumulate));
    return reduce_rows_of[g->dtype](
            g->stream, g->dbias, g->dy_first ? g->a : g->b, g->tokens,
            bias_count(g), g->accumulate);
}

/* In one pass; the sums of columns, which overwrite, go into `sums`. */
static struct product_operands grads_operands(
        const struct grads *g, float *sums)
{
    return (struct product_operands){
            .a = g->b,
            .b = g->a,
            .d = g->dweight,
            .bias = sums,
            .accumulate = g->accumulate,
    };
}

/* Our b is the library's A, and columns of ours are rows there. */
static struct product grads_product(
        const struct grads *g, const struct product_operands *operands)
{
    return product_of(
            g->dtype, DTYPE_FP32, g->rows, g->columns, g->tokens, true, false,
            g->dy_first ? PRODUCT_BGRADB : PRODUCT_BGRADA, operands);
}

/* The sums go by way of the workspace. What is added to cannot be measured
 * against its parts: that waits for a call that overwrites. */
static enum zd_status grads_added(const struct grads *g)
{
    size_t bytes = (size_t)bias_count(g) * sizeof(float);
    enum product_outcome outcome;
    if (bytes > PRODUCT_BORROW_BYTES || cuda_workspace_size() < bytes)
        return grads_apart(g);
    float *sums = cuda_workspace(bytes);
    struct product_operands operands = grads_operands(g, sums);
    struct product product = grads_product(g, &operands);
    ZD_TRY(product_run(g->stream, &product, &operands, &outcome));
    if (outcome == PRODUCT_REFUSED)
        return grads_apart(g);
    return matmul_add_sums_cuda(g->stream, g->dbias, sums, bias_count(g));
}

static enum zd_status matmul_weight_grads(
        struct stream *stream, float *dweight, float *dbias, const void *a,
        const void *b, enum dtype dtype, int rows, int columns, int tokens,
        bool dy_first, bool accumulate)
{
    const struct grads g = {stream, dtype,   dweight, dbias,    a,         b,
                            rows,   columns, tokens,  dy_first, accumulate};
    if (!dbias)
        return matmul(
                stream, dweight, DTYPE_FP32, a, b, NULL, dtype, rows, columns,
                tokens, true, false, accumulate);
    if (accumulate)
        return grads_added(&g);
    struct product_operands operands = grads_operands(&g, dbias);
    struct product product = grads_product(&g, &operands);
    return fused_or_apart(stream, &product, &operands, grads_apart, &g);
}

/* --- the table's entries ------------------------------------------------- */

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
    enum zd_status matmul_strided_cuda_##type(                                 \
            struct stream *stream, void *out, enum dtype out_type,             \
            const void *a, const void *b,                                      \
            const struct matmul_strides *strides, int M, int N, int K,         \
            bool trans_a, bool trans_b, bool accumulate)                       \
    {                                                                          \
        return matmul_strided(                                                 \
                stream, out, out_type, a, b, NULL, strides, DTYPE_##TYPE, M,   \
                N, K, trans_a, trans_b, accumulate);                           \
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

enum zd_status matmul_cuda_open(const char **name_out)
{
    return products_open(name_out);
}
