/* test_standin.c - the stand-in for cuBLASLt does what its descriptors say,
 * also what the program does not ask for yet: batches, row order, leading
 * dimensions beyond the rows, scalars on the device, C apart from D. And it
 * refuses. */
#include "base/device/device_cuda.h"
#include "kernels/matmul/cublaslt.h"

#include <criterion/criterion.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>

static const struct cublaslt *lt;
static struct device *gpu;
static cublasLtHandle_t handle;
static __typeof__(cublasLtMatrixLayoutSetAttribute) *layout_set;

#define MUST(call) cr_assert_eq((call), CUBLAS_STATUS_SUCCESS)

static void begin(void)
{
    setenv("ZD_STANDIN_ABORT", "0", 1); /* mistakes are made on purpose */
    cr_assert_eq(device_open(DEVICE_CUDA, 0, 1, &gpu), ZD_OK);
    device_use(gpu);
    cr_assert_eq(cublaslt_open(&lt), ZD_OK);
    MUST(lt->create(&handle));
    void *library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_NOLOAD);
    layout_set = (__typeof__(layout_set))dlsym(
            library, "cublasLtMatrixLayoutSetAttribute");
    cr_assert(layout_set);
}

static void end(void)
{
    lt->destroy(handle);
    device_use(NULL);
    device_close(gpu);
}

/* --- a product of fp32 by definition ------------------------------------- */

struct matrix {
    int rows, columns, ld, batch;
    int64_t stride;
    bool by_rows;
    float *host, *device;
};

static size_t matrix_count(const struct matrix *x)
{
    int lines = x->by_rows ? x->rows : x->columns;
    return (size_t)((x->batch - 1) * x->stride) + (size_t)x->ld * (size_t)lines;
}

static struct matrix matrix(
        int rows, int columns, int ld, int batch, bool by_rows)
{
    struct matrix x = {rows, columns, ld, batch, 0, by_rows, NULL, NULL};
    x.stride = batch > 1 ? (int64_t)ld * (by_rows ? rows : columns) + 5 : 0;
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

static float *at(const struct matrix *x, int batch, int row, int column)
{
    int64_t place = x->by_rows ? (int64_t)row * x->ld + column
                               : (int64_t)column * x->ld + row;
    return x->host + batch * x->stride + place;
}

static cublasLtMatrixLayout_t layout(const struct matrix *x)
{
    cublasLtMatrixLayout_t l;
    int32_t order = x->by_rows ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
    MUST(lt->layout_create(
            &l, CUDA_R_32F, (uint64_t)x->rows, (uint64_t)x->columns, x->ld));
    MUST(layout_set(l, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order));
    MUST(layout_set(
            l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &x->batch, sizeof(int32_t)));
    MUST(layout_set(
            l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &x->stride,
            sizeof x->stride));
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
    for (int n = 0; n < d->batch; n++)
        for (int i = 0; i < d->rows; i++)
            for (int j = 0; j < d->columns; j++) {
                double sum = 0.0;
                for (int k = 0; k < a->columns; k++)
                    sum += (double)*at(a, n, i, k) * (double)*at(b, n, k, j);
                *at(d, n, i, j) = (float)(alpha * sum) + beta * *at(c, n, i, j);
            }
    /* what lies between rows and matrices was not touched */
    for (size_t i = 0; i < matrix_count(d); i++)
        cr_assert_float_eq(result[i], d->host[i], 1e-5);
    free(result);
}

static void product(bool by_rows, bool on_device, int batch)
{
    static const float scalars[] = {0.5f, -2.0f};
    int M = 7, N = 10, K = 6;
    struct matrix a = matrix(M, K, by_rows ? K + 1 : M + 2, batch, by_rows);
    struct matrix b = matrix(K, N, K + 3, batch, false);
    struct matrix c = matrix(M, N, M, batch, false);
    struct matrix d = matrix(M, N, by_rows ? N + 2 : M + 4, batch, by_rows);
    struct setup s = setup(&a, &b, &c, &d);
    void *device = NULL;
    int32_t mode = CUBLASLT_POINTER_MODE_DEVICE;
    cr_assert_eq(device_take(sizeof scalars, &device), ZD_OK);
    cr_assert_eq(device_write(device, scalars, sizeof scalars), ZD_OK);
    if (on_device)
        MUST(lt->desc_set(
                s.desc, CUBLASLT_MATMUL_DESC_POINTER_MODE, &mode, sizeof mode));
    const float *alpha = on_device ? device : scalars;
    MUST(lt->matmul(
            handle, s.desc, alpha, a.device, s.a, b.device, s.b, alpha + 1,
            c.device, s.c, d.device, s.d, NULL, NULL, 0,
            device_cuda_stream(NULL)));
    compare(&a, &b, &c, &d, scalars[0], scalars[1]);
    device_give(device, sizeof scalars);
    setup_free(&s);
    matrix_free(&a), matrix_free(&b), matrix_free(&c), matrix_free(&d);
}

Test(cublaslt_standin, computes_from_its_descriptors, .init = begin,
     .fini = end)
{
    for (int i = 0; i < 8; i++)
        product(i & 1, i & 2, i & 4 ? 3 : 1);
}

Test(cublaslt_standin, refuses_what_does_not_fit, .init = begin, .fini = end)
{
    float one = 1.0f, zero = 0.0f;
    struct matrix a = matrix(8, 8, 8, 1, false), b = matrix(8, 8, 8, 1, false);
    struct matrix wide = matrix(8, 9, 8, 1, false);
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

Test(cublaslt_standin, an_array_of_the_host_breaks_the_device, .init = begin,
     .fini = end)
{
    float one = 1.0f, zero = 0.0f;
    float *host = calloc(64, sizeof *host);
    struct matrix a = matrix(8, 8, 8, 1, false);
    struct setup s = setup(&a, &a, &a, &a);
    MUST(lt->matmul(
            handle, s.desc, &one, host, s.a, a.device, s.b, &zero, a.device,
            s.c, a.device, s.d, NULL, NULL, 0, device_cuda_stream(NULL)));
    cr_assert_eq(device_finish(), ZD_ERR_DEVICE);
    cr_assert_eq(device_check(), ZD_ERR_DEVICE);
    free(host);
}
