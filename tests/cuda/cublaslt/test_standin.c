/* test_standin.c - the stand-in for cuBLASLt does what its descriptors say,
 * also with leading dimensions beyond the rows and with C apart from D. And it
 * refuses. */
#include "base/device/device_cuda.h"
#include "kernels/matmul/cublaslt.h"

#include <criterion/criterion.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>

static const struct cublaslt *lt;
static struct device *gpu;
static cublasLtHandle_t handle;

#define MUST(call) cr_assert_eq((call), CUBLAS_STATUS_SUCCESS)

static void begin(void)
{
    setenv("ZD_STANDIN_ABORT", "0", 1); /* mistakes are made on purpose */
    cr_assert_eq(device_open(DEVICE_CUDA, 0, 1, &gpu), ZD_OK);
    device_use(gpu);
    cr_assert_eq(cublaslt_open(&lt), ZD_OK);
    MUST(lt->create(&handle));
}

static void end(void)
{
    lt->destroy(handle);
    device_use(NULL);
    device_close(gpu);
}

/* --- a product of fp32 by definition ------------------------------------- */

struct matrix {
    int rows, columns, ld;
    float *host, *device;
};

static size_t matrix_count(const struct matrix *x)
{
    return (size_t)x->ld * (size_t)x->columns;
}

static struct matrix matrix(int rows, int columns, int ld)
{
    struct matrix x = {rows, columns, ld, NULL, NULL};
    size_t bytes = matrix_count(&x) * sizeof(float);
    x.host = malloc(bytes);
    for (size_t i = 0; i < matrix_count(&x); i++)
        x.host[i] = (float)rand() / (float)RAND_MAX - 0.5f;
    cr_assert_eq(device_take(bytes, (void **)&x.device), ZD_OK);
    cr_assert_eq(device_write(x.device, x.host, bytes), ZD_OK);
    return x;
}

static void matrix_free(struct matrix *x)
{
    device_give(x->device, matrix_count(x) * sizeof(float));
    free(x->host);
}

static float *at(const struct matrix *x, int row, int column)
{
    return x->host + (int64_t)column * x->ld + row;
}

static cublasLtMatrixLayout_t layout(const struct matrix *x)
{
    cublasLtMatrixLayout_t l;
    MUST(lt->layout_create(
            &l, CUDA_R_32F, (uint64_t)x->rows, (uint64_t)x->columns, x->ld));
    return l;
}

struct setup {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c, d;
};

static struct setup setup(
        const struct matrix *a, const struct matrix *b, const struct matrix *c,
        const struct matrix *d)
{
    struct setup s = {NULL, layout(a), layout(b), layout(c), layout(d)};
    MUST(lt->desc_create(&s.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    return s;
}

static void setup_free(struct setup *s)
{
    lt->desc_destroy(s->desc);
    lt->layout_destroy(s->a), lt->layout_destroy(s->b);
    lt->layout_destroy(s->c), lt->layout_destroy(s->d);
}

/* D = alpha A B + beta C against what is on the device. */
static void compare(
        const struct matrix *a, const struct matrix *b, const struct matrix *c,
        struct matrix *d, float alpha, float beta)
{
    float *result = malloc(matrix_count(d) * sizeof *result);
    cr_assert_eq(
            device_read(result, d->device, matrix_count(d) * sizeof *result),
            ZD_OK);
    for (int i = 0; i < d->rows; i++)
        for (int j = 0; j < d->columns; j++) {
            double sum = 0.0;
            for (int k = 0; k < a->columns; k++)
                sum += (double)*at(a, i, k) * (double)*at(b, k, j);
            *at(d, i, j) = (float)(alpha * sum) + beta * *at(c, i, j);
        }
    /* what lies between columns was not touched */
    for (size_t i = 0; i < matrix_count(d); i++)
        cr_assert_float_eq(result[i], d->host[i], 1e-5);
    free(result);
}

TestSuite(cublaslt_standin, .init = begin, .fini = end);

Test(cublaslt_standin, computes_from_its_descriptors)
{
    enum { M = 7, N = 10, K = 6 };
    float alpha = 0.5f, beta = -2.0f;
    struct matrix a = matrix(M, K, M + 2), b = matrix(K, N, K + 3);
    struct matrix c = matrix(M, N, M), d = matrix(M, N, M + 4);
    struct setup s = setup(&a, &b, &c, &d);
    MUST(lt->matmul(
            handle, s.desc, &alpha, a.device, s.a, b.device, s.b, &beta,
            c.device, s.c, d.device, s.d, NULL, NULL, 0,
            device_cuda_stream(NULL)));
    compare(&a, &b, &c, &d, alpha, beta);
    setup_free(&s);
    matrix_free(&a), matrix_free(&b), matrix_free(&c), matrix_free(&d);
}

Test(cublaslt_standin, refuses_what_does_not_fit)
{
    float one = 1.0f, zero = 0.0f;
    struct matrix a = matrix(8, 8, 8), b = matrix(8, 8, 8);
    struct matrix wide = matrix(8, 9, 8);
    struct setup s = setup(&a, &b, &a, &a), odd = setup(&a, &wide, &a, &a);
    uint32_t epilogue = CUBLASLT_EPILOGUE_GELU_AUX;
    int64_t ld = 8;
    int8_t narrow = 1;
#define RUN(s, from, to)                                                       \
    lt->matmul(                                                                \
            handle, (s).desc, &one, (from), (s).a, b.device, (s).b, &zero,     \
            (to), (s).c, (to), (s).d, NULL, NULL, 0, device_cuda_stream(NULL))
    MUST(RUN(s, a.device, a.device));
    /* shapes, addresses, attributes' sizes */
    cr_assert_eq(RUN(odd, a.device, a.device), CUBLAS_STATUS_INVALID_VALUE);
    cr_assert_eq(
            RUN(s, (char *)a.device + 2, a.device),
            CUBLAS_STATUS_INVALID_VALUE);
    cr_assert_eq(RUN(s, a.device, NULL), CUBLAS_STATUS_INVALID_VALUE);
    cr_assert_eq(
            lt->desc_set(s.desc, CUBLASLT_MATMUL_DESC_TRANSA, &narrow, 1),
            CUBLAS_STATUS_INVALID_VALUE);
    /* an aux matrix: none, then rows that are no multiple of 8 */
    MUST(lt->desc_set(
            s.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    MUST(lt->desc_set(
            s.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof ld));
    cr_assert_eq(RUN(s, a.device, a.device), CUBLAS_STATUS_INVALID_VALUE);
    MUST(lt->desc_set(
            s.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &b.device,
            sizeof b.device));
    MUST(RUN(s, a.device, a.device));
    ld = 12;
    MUST(lt->desc_set(
            s.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof ld));
    cr_assert_eq(RUN(s, a.device, a.device), CUBLAS_STATUS_INVALID_VALUE);
    cr_assert_eq(device_finish(), ZD_OK);
    setup_free(&s), setup_free(&odd);
    matrix_free(&a), matrix_free(&b), matrix_free(&wide);
}

Test(cublaslt_standin, an_array_of_the_host_breaks_the_device)
{
    float one = 1.0f, zero = 0.0f;
    float *host = calloc(64, sizeof *host);
    struct matrix a = matrix(8, 8, 8);
    struct setup s = setup(&a, &a, &a, &a);
    MUST(lt->matmul(
            handle, s.desc, &one, host, s.a, a.device, s.b, &zero, a.device,
            s.c, a.device, s.d, NULL, NULL, 0, device_cuda_stream(NULL)));
    cr_assert_eq(device_finish(), ZD_ERR_DEVICE);
    cr_assert_eq(device_check(), ZD_ERR_DEVICE);
    free(host);
}
