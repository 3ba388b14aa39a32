#include "kernels/matmul/library.h"
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
    ZD_PRINT(
            library_name, "oneDNN %d.%d", dnnl_version()->major,
            dnnl_version()->minor);
#elif ZD_HAVE_OPENBLAS
    ZD_PRINT(library_name, "OpenBLAS");
#endif
}

const char *matmul_library(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, name_library);
    return library_name;
}

bool library_has_amx(void)
{
#if ZD_HAVE_ONEDNN
    return dnnl_get_effective_cpu_isa() >= dnnl_cpu_isa_avx512_core_amx;
#else
    return false;
#endif
}

/* out [+]= a b */
static enum zd_status multiply(const struct matmul *m, bool adds, int threads)
{
    float beta = adds ? 1.0f : 0.0f;
    int lda = matmul_stride_a(m), ldb = matmul_stride_b(m);
#if ZD_HAVE_ONEDNN
    kernels_library_threads(threads);
    dnnl_status_t refused = dnnl_sgemm(
            m->a.transposed ? 'T' : 'N', m->b.transposed ? 'T' : 'N', m->M,
            m->N, m->K, 1.0f, m->a.data, lda, m->b.data, ldb, beta, m->out.data,
            m->N);
    if (refused != dnnl_success)
        return ZD_FAIL(
                ZD_ERR_DEVICE, "E0612",
                "oneDNN refused a matmul of %d x %d x %d: status %d", m->M,
                m->N, m->K, (int)refused);
#elif ZD_HAVE_OPENBLAS
    openblas_set_num_threads(kernels_library_threads(threads));
    cblas_sgemm(
            CblasRowMajor, m->a.transposed ? CblasTrans : CblasNoTrans,
            m->b.transposed ? CblasTrans : CblasNoTrans, m->M, m->N, m->K, 1.0f,
            m->a.data, lda, m->b.data, ldb, beta, m->out.data, m->N);
#endif
    return ZD_OK;
}

enum zd_status library_sgemm(const struct matmul *m, int threads)
{
    const float *bias = m->bias;
    if (bias) {
#pragma omp parallel for num_threads(threads)
        for (int row = 0; row < m->M; row++)
            for (int n = 0; n < m->N; n++) {
                float *o = (float *)m->out.data + (size_t)row * (size_t)m->N;
                o[n] = m->accumulate ? o[n] + bias[n] : bias[n];
            }
    }
    return multiply(m, m->accumulate || bias, threads);
}
