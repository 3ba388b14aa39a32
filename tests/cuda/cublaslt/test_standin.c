/* test_standin.c - what the stand-in for cuBLASLt refuses. Its matmuls are
 * compared with the CPU's in tests/kernels/matmul. */
#include "base/device/device_cuda.h"
#include "kernels/matmul/cublaslt.h"

#include <criterion/criterion.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>

static const struct cublaslt *lt;
static struct device *gpu;
static cublasLtHandle_t handle;
static cublasLtMatmulDesc_t desc;

#define MUST(call) cr_assert_eq((call), CUBLAS_STATUS_SUCCESS)

static void begin(void)
{
    setenv("ZD_STANDIN_ABORT", "0", 1); /* mistakes are made on purpose */
    cr_assert_eq(device_open(DEVICE_CUDA, 0, 1, &gpu), ZD_OK);
    device_use(gpu);
    cr_assert_eq(cublaslt_open(&lt), ZD_OK);
    MUST(lt->create(&handle));
    MUST(lt->desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
}

static void end(void)
{
    lt->desc_destroy(desc);
    lt->destroy(handle);
    device_use(NULL);
    device_close(gpu);
}

/* Columns of `rows` floats, of any value: the tests of matmuls look at those.
 */
static float *matrix(int rows, int columns)
{
    size_t bytes = (size_t)rows * (size_t)columns * sizeof(float);
    void *data;
    cr_assert_eq(device_take(bytes, &data), ZD_OK);
    cr_assert_eq(device_clear(data, bytes), ZD_OK);
    return data;
}

static cublasLtMatrixLayout_t layout(uint64_t columns)
{
    cublasLtMatrixLayout_t l;
    MUST(lt->layout_create(&l, CUDA_R_32F, 8, columns, 8));
    return l;
}

/* to (8, 8) = from (8, 8) b (8, columns) */
static cublasStatus_t run(
        const void *from, const float *b, uint64_t columns, void *to)
{
    static const float one = 1.0f, zero = 0.0f;
    cublasLtMatrixLayout_t square = layout(8), other = layout(columns);
    cublasStatus_t status = lt->matmul(
            handle, desc, &one, from, square, b, other, &zero, to, square, to,
            square, NULL, NULL, 0, device_cuda_stream(NULL));
    lt->layout_destroy(square), lt->layout_destroy(other);
    return status;
}

TestSuite(cublaslt_standin, .init = begin, .fini = end);

Test(cublaslt_standin, refuses_what_does_not_fit)
{
    float *a = matrix(8, 8), *b = matrix(8, 9);
    uint32_t epilogue = CUBLASLT_EPILOGUE_GELU_AUX;
    int64_t ld = 8;
    int8_t narrow = 1;
#define REFUSED(call) cr_assert_eq((call), CUBLAS_STATUS_INVALID_VALUE)
#define SET(attribute, value)                                                  \
    lt->desc_set(                                                              \
            desc, CUBLASLT_MATMUL_DESC_##attribute, &(value), sizeof(value))
    MUST(run(a, b, 8, a));
    /* shapes, addresses, attributes' sizes */
    REFUSED(run(a, b, 9, a));
    REFUSED(run((char *)a + 2, b, 8, a));
    REFUSED(run(a, b, 8, NULL));
    REFUSED(SET(TRANSA, narrow));
    /* an aux matrix: none, then rows that are not a multiple of 8 */
    MUST(SET(EPILOGUE, epilogue));
    MUST(SET(EPILOGUE_AUX_LD, ld));
    REFUSED(run(a, b, 8, a));
    MUST(SET(EPILOGUE_AUX_POINTER, b));
    MUST(run(a, b, 8, a));
    ld = 12;
    MUST(SET(EPILOGUE_AUX_LD, ld));
    REFUSED(run(a, b, 8, a));
    cr_assert_eq(device_finish(), ZD_OK);
    device_give(a, 8 * 8 * sizeof *a), device_give(b, 8 * 9 * sizeof *b);
}

Test(cublaslt_standin, an_array_of_the_host_breaks_the_device)
{
    float *host = calloc(64, sizeof *host), *a = matrix(8, 8);
    MUST(run(host, a, 8, a));
    cr_assert_eq(device_finish(), ZD_ERR_DEVICE);
    cr_assert_eq(device_check(), ZD_ERR_DEVICE);
    free(host);
}
