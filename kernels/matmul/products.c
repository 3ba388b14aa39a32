#include "kernels/matmul/products.h"
#include "kernels/cpu/threads.h"

#include "zd_config.h"

#include <pthread.h>
#include <stdio.h>

#if ZD_HAVE_ONEDNN
#include <dnnl.h>
#elif ZD_HAVE_OPENBLAS
#include <cblas.h>
#endif

static char library_name[64];

static void name_library(void)
{
#if ZD_HAVE_ONEDNN
    snprintf(
            library_name, sizeof library_name, "oneDNN %d.%d",
            dnnl_version()->major, dnnl_version()->minor);
#elif ZD_HAVE_OPENBLAS
    snprintf(library_name, sizeof library_name, "OpenBLAS");
#endif
}

const char *products_library(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, name_library);
    return library_name;
}

static enum zd_status library_sgemm(
        float *out, const float *a, const float *b, int M, int N, int K,
        bool trans_a, bool trans_b, float beta, int threads)
{
    int lda = trans_a ? M : K, ldb = trans_b ? K : N;
#if ZD_HAVE_ONEDNN
    kernels_library_threads(threads);
    dnnl_status_t refused = dnnl_sgemm(
            trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', M, N, K, 1.0f, a, lda, b,
            ldb, beta, out, N);
    if (refused != dnnl_success)
        return ZD_FAIL(
                ZD_ERR_DEVICE, "E0612",
                "oneDNN refused a product of %d x %d x %d: status %d", M, N, K,
                (int)refused);
#elif ZD_HAVE_OPENBLAS
    openblas_set_num_threads(kernels_library_threads(threads));
    cblas_sgemm(
            CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans,
            trans_b ? CblasTrans : CblasNoTrans, M, N, K, 1.0f, a, lda, b, ldb,
            beta, out, N);
#endif
    return ZD_OK;
}

enum zd_status products_sgemm(
        float *out, const float *a, const float *b, const float *bias, int M,
        int N, int K, bool trans_a, bool trans_b, bool accumulate, int threads)
{
    if (bias) {
#pragma omp parallel for num_threads(threads)
        for (int m = 0; m < M; m++)
            for (int n = 0; n < N; n++) {
                float *o = out + (size_t)m * (size_t)N + n;
                *o = accumulate ? *o + bias[n] : bias[n];
            }
    }
    return library_sgemm(
            out, a, b, M, N, K, trans_a, trans_b,
            accumulate || bias ? 1.0f : 0.0f, threads);
}
