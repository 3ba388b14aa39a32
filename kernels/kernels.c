#include "kernels/kernels.h"

#include "kernels/plain.h"

#include "zd_config.h"

#include <assert.h>
#include <omp.h>
#include <string.h>

#if ZD_HAVE_ONEDNN
#include <dnnl.h>
#else
#include <cblas.h>
#endif

/* Set once at start, before any operation runs. */
static int kernel_threads;

void kernels_set_threads(int threads)
{
    kernel_threads = threads;
    omp_set_num_threads(threads);
}

size_t attention_scratch_bytes(
        const struct attention_shape *shape, enum dtype dtype)
{
    return 0;
}

size_t matmul_scratch_bytes(enum dtype dtype)
{
    return 0;
}

static void sgemm(
        float *out, const float *a, const float *b, int M, int N, int K,
        bool trans_a, bool trans_b, float beta)
{
    int lda = trans_a ? M : K, ldb = trans_b ? K : N;
#if ZD_HAVE_ONEDNN
    dnnl_sgemm(
            trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', M, N, K, 1.0f, a, lda, b,
            ldb, beta, out, N);
#else
    cblas_sgemm(
            CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans,
            trans_b ? CblasTrans : CblasNoTrans, M, N, K, 1.0f, a, lda, b, ldb,
            beta, out, N);
#endif
}

static enum zd_status matmul_fp32(
        struct stream *stream, void *out, enum dtype out_type, const void *a,
        const void *b, const void *bias, int M, int N, int K, bool trans_a,
        bool trans_b, bool accumulate)
{
    assert(out_type == DTYPE_FP32);
    if (bias)
        for (int m = 0; m < M; m++)
            for (int n = 0; n < N; n++) {
                float *o = (float *)out + (size_t)m * N + n;
                float add = ((const float *)bias)[n];
                *o = accumulate ? *o + add : add;
            }
    sgemm(out, a, b, M, N, K, trans_a, trans_b,
          accumulate || bias ? 1.0f : 0.0f);
    return ZD_OK;
}

enum zd_status kernels_cpu(enum dtype dtype, const struct kernels **table_out)
{
    static struct kernels fp32;
    if (dtype != DTYPE_FP32)
        return kernels_plain(dtype, table_out);
    fp32 = kernels_plain_fp32;
    fp32.matmul = matmul_fp32;
    fp32.name = "cpu fp32";
    *table_out = &fp32;
    return ZD_OK;
}

enum zd_status kernels_plain(enum dtype dtype, const struct kernels **table_out)
{
    switch (dtype) {
    case DTYPE_FP32:
        *table_out = &kernels_plain_fp32;
        return ZD_OK;
    case DTYPE_BF16:
        *table_out = &kernels_plain_bf16;
        return ZD_OK;
    default:
        return ZD_FAIL(
                ZD_ERR_UNFIT, "E0610",
                "the CPU cannot compute in %s; it computes in fp32 and bf16",
                dtype_name(dtype));
    }
}
