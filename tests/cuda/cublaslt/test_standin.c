/* test_standin.c - what the stand-in for cuBLASLt refuses. Its matmuls are
 * compared with the CPU's in tests/kernels/matmul. */
#include "base/device/device_cuda.h"
#include "kernels/matmul/cublaslt.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
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

/* --- FP8: what NVIDIA documents as refused, by GPU ------------------------ */

static const char *const capabilities[] = {"8.6", "8.9", "9.0", "10.0", "12.0"};

#define E4M3      CUDA_R_8F_E4M3
#define E5M2      CUDA_R_8F_E5M2
#define TENSOR    CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F
#define VECTORS   CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
#define TILES     CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F
#define BF16      CUDA_R_16BF
#define FP32      CUDA_R_32F
#define NO_BIAS   CUBLASLT_EPILOGUE_DEFAULT
#define WITH_BIAS CUBLASLT_EPILOGUE_BIAS
static const struct fp8_row {
    cudaDataType_t a, b, d;
    int32_t a_mode, b_mode;
    int32_t trans_a, trans_b;
    int8_t fast;
    uint64_t k;
    uint32_t epilogue;
    const char *taken; /* by each of these GPUs: 1 */
    uint64_t n;        /* 0: 48 */
} fp8_rows[] = {
        {E4M3, E4M3, BF16, TENSOR, TENSOR, 1, 0, 1, 64, WITH_BIAS, "01111"},
        {E4M3, E5M2, BF16, TENSOR, TENSOR, 1, 0, 0, 64, NO_BIAS, "01111"},
        {E4M3, E5M2, FP32, TENSOR, TENSOR, 1, 0, 0, 64, NO_BIAS, "01111"},
        {E4M3, E4M3, FP32, TENSOR, TENSOR, 1, 0, 1, 64, WITH_BIAS, "00000"},
        {E5M2, E5M2, BF16, TENSOR, TENSOR, 1, 0, 0, 64, NO_BIAS, "00000"},
        {E4M3, BF16, BF16, TENSOR, TENSOR, 1, 0, 0, 64, NO_BIAS, "00000"},
        {E4M3, E4M3, BF16, TENSOR, TENSOR, 0, 0, 0, 64, NO_BIAS, "00010"},
        {E4M3, E4M3, BF16, TENSOR, TENSOR, 1, 1, 0, 64, NO_BIAS, "00010"},
        {E4M3, E4M3, BF16, TENSOR, TENSOR, 1, 0, 0, 72, NO_BIAS, "00000"},
        {E4M3, E4M3, BF16, TILES, VECTORS, 1, 0, 0, 64, WITH_BIAS, "00100"},
        {E4M3, E4M3, FP32, VECTORS, VECTORS, 1, 0, 0, 64, NO_BIAS, "00100"},
        {E4M3, E4M3, BF16, TILES, TILES, 1, 0, 0, 64, NO_BIAS, "00000"},
        {E4M3, E4M3, BF16, TILES, VECTORS, 1, 0, 1, 64, NO_BIAS, "00000"},
        {E4M3, E4M3, BF16, TENSOR, VECTORS, 1, 0, 0, 64, NO_BIAS, "00000"},
        {E4M3, E4M3, BF16, TENSOR, TENSOR, 1, 0, 0, 64, NO_BIAS, "01111", 37},
        {E4M3, E4M3, BF16, TILES, VECTORS, 1, 0, 0, 64, NO_BIAS, "00100", 36},
        {E4M3, E4M3, BF16, TILES, VECTORS, 1, 0, 0, 64, NO_BIAS, "00000", 37},
        {E4M3, E4M3, FP32, VECTORS, VECTORS, 1, 0, 0, 64, NO_BIAS, "00000", 38},
};
enum { FP8_ROWS = sizeof fp8_rows / sizeof fp8_rows[0] };

static bool is_offered(const struct fp8_row *row)
{
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t result;
    uint64_t k = row->k, n = row->n ? row->n : 48;
    int count = 0;
    MUST(SET(TRANSA, row->trans_a));
    MUST(SET(TRANSB, row->trans_b));
    MUST(SET(FAST_ACCUM, row->fast));
    MUST(SET(A_SCALE_MODE, row->a_mode));
    MUST(SET(B_SCALE_MODE, row->b_mode));
    MUST(SET(EPILOGUE, row->epilogue));
    uint64_t a_rows = row->trans_a ? k : 32, b_rows = row->trans_b ? n : k;
    MUST(lt->layout_create(
            &a, row->a, a_rows, row->trans_a ? 32 : k, (int64_t)a_rows));
    MUST(lt->layout_create(
            &b, row->b, b_rows, row->trans_b ? k : n, (int64_t)b_rows));
    MUST(lt->layout_create(&d, row->d, 32, n, 32));
    MUST(lt->preference_create(&preference));
    lt->heuristic(handle, desc, a, b, d, d, preference, 1, &result, &count);
    lt->preference_destroy(preference);
    lt->layout_destroy(a), lt->layout_destroy(b), lt->layout_destroy(d);
    return count > 0;
}

ParameterizedTestParameters(cublaslt_fp8, is_taken_by_capability)
{
    static int which[] = {0, 1, 2, 3, 4};
    return cr_make_param_array(int, which, 5);
}

/* A process each: the stand-in reads its environment once. */
ParameterizedTest(int *which, cublaslt_fp8, is_taken_by_capability)
{
    setenv("ZD_STANDIN_CAPABILITY", capabilities[*which], 1);
    begin();
    for (int i = 0; i < FP8_ROWS; i++)
        cr_expect_eq(
                is_offered(&fp8_rows[i]), fp8_rows[i].taken[*which] == '1',
                "row %d on %s", i, capabilities[*which]);
    end();
}
