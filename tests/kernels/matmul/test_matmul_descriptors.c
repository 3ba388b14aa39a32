/* test_matmul_descriptors.c - the descriptors of our matmuls as cuBLASLt has
 * them: the real library where there is one, which needs no GPU for that. */
#include "kernels/matmul/matmul_plan_cuda.h"

#include <criterion/criterion.h>
#include <dlfcn.h>

/* Keys of one shape, by the type of a. */
#define OF(type)                                                               \
    .m = 64, .n = 48, .k = 256, .dtype = type, .trans_a = 1, .alignment = 16
static const struct matmul_key keys[] = {
        /* bf16, as it was */
        {OF(DTYPE_BF16), .b_type = DTYPE_BF16, .out_type = DTYPE_BF16,
         .epilogue = KEY_BIAS},
        /* one scale a tensor: forward, then a gradient */
        {OF(DTYPE_E4M3), .b_type = DTYPE_E4M3, .out_type = DTYPE_BF16,
         .epilogue = KEY_BIAS, .a_scales = SCALES_TENSOR,
         .b_scales = SCALES_TENSOR, .fast = 1},
        {OF(DTYPE_E4M3), .b_type = DTYPE_E5M2, .out_type = DTYPE_FP32,
         .a_scales = SCALES_TENSOR, .b_scales = SCALES_TENSOR},
        /* blocks: tokens and weights, then tokens and tokens */
        {OF(DTYPE_E4M3), .b_type = DTYPE_E4M3, .out_type = DTYPE_BF16,
         .a_scales = SCALES_128X128, .b_scales = SCALES_1X128},
        {OF(DTYPE_E4M3), .b_type = DTYPE_E4M3, .out_type = DTYPE_FP32,
         .a_scales = SCALES_1X128, .b_scales = SCALES_1X128}};
enum { KEYS = sizeof keys / sizeof keys[0] };

static struct plan_table table;
static __typeof__(cublasLtMatmulDescGetAttribute) *read_attribute;
static __typeof__(cublasLtMatrixLayoutGetAttribute) *read_layout;

static void begin(void)
{
    if (cublaslt_open(&table.api) != ZD_OK)
        cr_skip("cuBLASLt is not there");
    void *library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_NOLOAD);
    cr_assert(library);
    void *of_descriptors = dlsym(library, "cublasLtMatmulDescGetAttribute");
    void *of_layouts = dlsym(library, "cublasLtMatrixLayoutGetAttribute");
    memcpy(&read_attribute, &of_descriptors, sizeof read_attribute);
    memcpy(&read_layout, &of_layouts, sizeof read_layout);
    cr_assert(read_attribute && read_layout);
}

TestSuite(matmul_descriptors, .init = begin);

/* Also that the library's attribute has the size that we set. */
static int64_t read_back(
        const struct plan *plan, cublasLtMatmulDescAttributes_t attribute,
        size_t bytes)
{
    int64_t value = 0;
    size_t written = 0;
    cr_assert_eq(
            read_attribute(plan->desc, attribute, &value, bytes, &written),
            CUBLAS_STATUS_SUCCESS);
    cr_assert_eq(written, bytes);
    return value;
}

static int64_t read_of(
        cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t what,
        size_t bytes)
{
    int64_t value = 0;
    size_t written = 0;
    cr_assert_eq(
            read_layout(layout, what, &value, bytes, &written),
            CUBLAS_STATUS_SUCCESS);
    cr_assert_eq(written, bytes);
    return value;
}

static int64_t mode_of(int32_t layout)
{
    return layout == SCALES_1X128 ? 4 : layout == SCALES_128X128 ? 5 : 0;
}

static void check_scales(const struct plan *plan)
{
    const struct matmul_key *k = &plan->tuned.key;
#define READ(attribute, bytes)                                                 \
    read_back(plan, CUBLASLT_MATMUL_DESC_##attribute, bytes)
    cr_assert_eq(READ(FAST_ACCUM, 1), k->fast);
    cr_assert_eq(READ(A_SCALE_MODE, 4), mode_of(k->a_scales));
    cr_assert_eq(READ(B_SCALE_MODE, 4), mode_of(k->b_scales));
    cr_assert_eq(READ(A_SCALE_POINTER, 8) != 0, k->a_scales != 0);
    cr_assert_eq(READ(B_SCALE_POINTER, 8) != 0, k->b_scales != 0);
    cr_assert_eq(READ(TRANSA, 4), CUBLAS_OP_T);
    cr_assert_eq(READ(TRANSB, 4), CUBLAS_OP_N);
    cr_assert_eq(
            READ(EPILOGUE, 4), k->epilogue == KEY_BIAS
                                       ? CUBLASLT_EPILOGUE_BIAS
                                       : CUBLASLT_EPILOGUE_DEFAULT);
#undef READ
}

static int64_t library_type(int32_t dtype)
{
    return dtype == DTYPE_E4M3   ? CUDA_R_8F_E4M3
           : dtype == DTYPE_E5M2 ? CUDA_R_8F_E5M2
           : dtype == DTYPE_BF16 ? CUDA_R_16BF
                                 : CUDA_R_32F;
}

static void check_layout(
        cublasLtMatrixLayout_t layout, int32_t type, int rows, int columns)
{
#define READ(attribute, bytes)                                                 \
    read_of(layout, CUBLASLT_MATRIX_LAYOUT_##attribute, bytes)
    cr_assert_eq(READ(TYPE, 4), library_type(type));
    cr_assert_eq(READ(ROWS, 8), rows);
    cr_assert_eq(READ(COLS, 8), columns);
    cr_assert_eq(READ(LD, 8), rows);
#undef READ
}

Test(matmul_descriptors, hold_what_a_matmul_asks_for)
{
    for (int i = 0; i < KEYS; i++) {
        struct plan plan = {.tuned.key = keys[i]};
        const struct matmul_key *k = &plan.tuned.key;
        cr_assert_eq(plan_describe(&table, &plan), ZD_OK, "key %d", i);
        check_scales(&plan);
        check_layout(plan.a, k->dtype, k->k, k->m);
        check_layout(plan.b, k->b_type, k->k, k->n);
        check_layout(plan.d, k->out_type, k->m, k->n);
        plan_clear(&table, &plan);
    }
}

/* One scale a tensor from sm_89 on, blocks on sm_90. */
static bool has_algorithms(
        const struct matmul_key *key, const struct device_facts *gpu)
{
    int capability = 10 * gpu->major + gpu->minor;
    return key->a_scales == SCALES_NONE ||
           (key->a_scales == SCALES_TENSOR ? capability >= 89
                                           : capability == 90);
}

Test(matmul_descriptors, are_known_to_the_heuristic)
{
    struct device_facts gpu;
    if (device_list(&gpu, 1) == 0)
        cr_skip("cuBLASLt's heuristic needs a GPU");
    table.workspace_bytes = LIBRARY_WORKSPACE_BYTES;
    cr_assert_eq(table.api->create(&table.handle), CUBLAS_STATUS_SUCCESS);
    for (int i = 0; i < KEYS; i++) {
        struct plan plan = {.tuned.key = keys[i]};
        struct plan_candidates candidates;
        cr_assert_eq(plan_describe(&table, &plan), ZD_OK);
        cr_assert_eq(plan_candidates(&table, &plan, &candidates), ZD_OK);
        cr_expect_eq(
                candidates.count > 0, has_algorithms(&plan.tuned.key, &gpu),
                "key %d", i);
        plan_clear(&table, &plan);
    }
    table.api->destroy(table.handle);
}
