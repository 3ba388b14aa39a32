/* test_matmul_cuda.c - products on a GPU against the plain definition, and what
 * happens when the library refuses one. On a stand-in of the GPU these also
 * look at what the library was asked. */
#include "matmul_cases.h"

#include "kernels/cuda/cuda_workspace.h"
#include "kernels/matmul/cublaslt.h"
#include "kernels/matmul/matmul_cuda.h"
#include "kernels/matmul/matmul_plan_cuda.h"

static void check_fused(enum dtype dtype)
{
    /* the last has rows that the GELU epilogues do not take */
    static const int shapes[][3] = {{40, 48, 64}, {17, 136, 33}, {9, 21, 50}};
    for (int s = 0; s < 3; s++) {
        int M = shapes[s][0], N = shapes[s][1], K = shapes[s][2];
        for (int flags = 0; flags < 4; flags++) {
            check_gelu(dtype, M, N, K, flags & 1, flags & 2);
            check_dgelu(dtype, M, N, K, flags & 1);
            check_weight_grads(dtype, M, N, K, flags & 1, flags & 2);
        }
    }
}

static void check_all(enum dtype dtype)
{
    static const int shapes[][3] = {
            {37, 48, 509}, {1, 130, 48}, {3, 509, 37}, {64, 64, 64}, {1, 1, 1}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int flags = 0; flags < 32; flags++)
            check_plain(
                    dtype, shapes[s][0], shapes[s][1], shapes[s][2], flags & 1,
                    flags & 2, flags & 4, flags & 8, flags & 16);
}

TestSuite(matmul_cuda, .init = gpu_begin, .fini = gpu_end);

/* --- values -------------------------------------------------------------- */

Test(matmul_cuda, fp32_matches_the_definition)
{
    check_all(DTYPE_FP32);
}

Test(matmul_cuda, bf16_matches_the_definition)
{
    check_all(DTYPE_BF16);
}

Test(matmul_cuda, fp16_matches_the_definition)
{
    check_all(DTYPE_FP16);
}

Test(matmul_cuda, epilogues_match_the_definition)
{
    for (int dtype = DTYPE_FP32; dtype <= DTYPE_FP16; dtype++)
        check_fused((enum dtype)dtype);
}

/* Chosen by heuristics, timed, and by our own kernel. */
static void check_all_strided(void)
{
    for (int dtype = DTYPE_FP32; dtype <= DTYPE_FP16; dtype++)
        for (int flags = 0; flags < 8; flags++)
            for (int gap = 0; gap < 14; gap += 13)
                check_strided(
                        (enum dtype)dtype, 37, 51, 70, flags & 1, flags & 2,
                        flags & 4, gap);
}

Test(matmul_cuda, rows_may_have_gaps)
{
    check_all_strided();
    matmul_set_timing(MATMUL_TIME_ALL);
    matmul_cuda_close();
    check_all_strided();
    if (!is_standin())
        return;
    let_fail("empty");
    matmul_set_timing(MATMUL_HEURISTIC);
    matmul_cuda_close();
    uint64_t before = asked().products;
    check_all_strided();
    cr_assert_eq(asked().products, before);
}

/* What is over eights of a vocabulary is a product of its own: the logits, and
 * the gradient of what they were made of. */
Test(matmul_cuda, odd_vocabulary_is_split)
{
    for (int dtype = DTYPE_FP32; dtype <= DTYPE_FP16; dtype++)
        for (int over = 1; over < 8; over += 3)
            for (int add = 0; add < 2; add++) {
                int V = 4096 + over, gap = 8 - over;
                check_strided(
                        (enum dtype)dtype, 5, V, 24, false, true, add, gap);
                check_strided(
                        (enum dtype)dtype, 5, 24, V, false, false, add, gap);
            }
}

/* Of the stand-in's algorithms the second takes only rows that begin at
 * multiples of 16 bytes, and no odd ends. */
static bool fast_algorithm_is_tried(int V, int stride)
{
    enum { N = 8, C = 32 };
    struct tables t = tables_of(DTYPE_BF16);
    struct twin x = twin(DTYPE_BF16, N * C, 1.0f, 1);
    struct twin w = twin(DTYPE_BF16, (size_t)V * C, 1.0f, 2);
    struct twin y = twin(DTYPE_BF16, (size_t)N * stride, 1.0f, 3);
    let_fail(NULL);
    matmul_set_timing(MATMUL_TIME_ALL);
    MUST(t.gpu->matmul(
            NULL, &(struct matmul){
                          .M = N,
                          .N = V,
                          .K = C,
                          .a = {x.device, DTYPE_BF16},
                          .b = {w.device, DTYPE_BF16, true},
                          .out = {y.device, DTYPE_BF16, stride}}));
    twin_free(&x), twin_free(&w), twin_free(&y);
    return asked().of_algorithm[2] > 0;
}

Test(matmul_cuda, an_odd_vocabulary_has_the_fast_algorithms)
{
    if (!is_standin())
        cr_skip("not the stand-in");
    cr_assert_eq(logits_stride(DEVICE_CUDA, 50257), 50304);
    cr_assert_eq(logits_stride(DEVICE_CPU, 50257), 50257);
    cr_assert_not(fast_algorithm_is_tried(4097, 4097));
    cr_assert(fast_algorithm_is_tried(4097, logits_stride(DEVICE_CUDA, 4097)));
}

/* Epilogues are in use, or the test above would prove nothing. */
Test(matmul_cuda, an_epilogue_is_one_call)
{
    if (!is_standin())
        cr_skip("not the stand-in");
    let_fail(NULL);
    check_gelu(DTYPE_BF16, 32, 64, 48, true, true);
    check_dgelu(DTYPE_BF16, 32, 64, 48, false);
    check_weight_grads(DTYPE_BF16, 32, 64, 48, true, true);
    cr_assert_eq(asked().products, 3);
    cr_assert_eq(asked().with_epilogue, 3);
}

Test(matmul_cuda, odd_addresses_work)
{
    struct tables t = tables_of(DTYPE_BF16);
    enum { M = 24, N = 40, K = 32 };
    struct twin a = twin(DTYPE_BF16, M * K + 1, 0.2f, 1);
    struct twin b = twin(DTYPE_BF16, K * N + 1, 1.0f, 2);
    struct twin out = twin(DTYPE_BF16, M * N + 1, 1.0f, 3);
    struct twin pre = twin(DTYPE_BF16, M * N + 1, 1.0f, 4);
#define FROM_1(array) ((uint16_t *)(array) + 1)
#define GELU_ON(side)                                                          \
    &(struct matmul){                                                          \
            .M = M,                                                            \
            .N = N,                                                            \
            .K = K,                                                            \
            .a = {FROM_1(a.side), DTYPE_BF16},                                 \
            .b = {FROM_1(b.side), DTYPE_BF16},                                 \
            .out = {FROM_1(out.side), DTYPE_BF16},                             \
            .epilogue = MATMUL_GELU,                                           \
            .aux = FROM_1(pre.side)}
    MUST(t.plain->matmul(NULL, GELU_ON(host)));
    MUST(t.gpu->matmul(NULL, GELU_ON(device)));
#undef GELU_ON
#undef FROM_1
    compare(&out, 3.2e-2, "gelu");
    compare(&pre, 1.6e-2, "before gelu");
    twin_free(&a), twin_free(&b);
}

/* --- FP8 ------------------------------------------------------------------ */

/* Forward, a gradient; forward and both gradients by blocks. */
static const struct {
    enum dtype a, b;
    enum scale_layout of_a, of_b;
} code_pairs[] = {
        {DTYPE_E4M3, DTYPE_E4M3, SCALES_TENSOR, SCALES_TENSOR},
        {DTYPE_E5M2, DTYPE_E4M3, SCALES_TENSOR, SCALES_TENSOR},
        {DTYPE_E4M3, DTYPE_E4M3, SCALES_1X128, SCALES_128X128},
        {DTYPE_E4M3, DTYPE_E4M3, SCALES_1X128, SCALES_1X128}};
enum { CODE_PAIRS = sizeof code_pairs / sizeof code_pairs[0] };

/* To bf16 with a bias and with gaps, to fp32, written before it is added to. */
static void check_codes_of(int pair)
{
    for (int kind = 0; kind < 4; kind++)
        check_codes((struct matmul){
                .M = 37,
                .N = 144,
                .K = 272,
                .a = {.type = code_pairs[pair].a,
                      .layout = code_pairs[pair].of_a},
                .b = {.type = code_pairs[pair].b,
                      .transposed = true,
                      .layout = code_pairs[pair].of_b},
                .out = {.type = kind < 2 ? DTYPE_BF16 : DTYPE_FP32,
                        .stride = kind == 1 ? 160 : 0},
                .bias = kind == 0 ? "" : NULL,
                .accumulate = kind == 3});
}

static void check_all_codes(void)
{
    for (int pair = 0; pair < CODE_PAIRS; pair++)
        check_codes_of(pair);
}

/* By heuristics, timed, as the file has them, and by our own kernel. */
Test(matmul_cuda, codes_match_the_definition)
{
    check_all_codes();
    matmul_cuda_close();
    matmul_set_timing(MATMUL_TIME_ALL);
    check_all_codes();
    struct matmul_counters first = matmul_counters();
    matmul_cuda_close();
    check_all_codes();
    struct matmul_counters second = matmul_counters();
    cr_assert_eq(first.refused, 0);
    cr_assert_gt(first.timed, 0);
    cr_assert_eq(second.timed, first.timed);
    cr_assert_gt(second.read, first.read);
    if (!is_standin()) /* of one algorithm alone nothing is kept */
        return;
    cr_assert_eq(second.read - first.read, 3 * CODE_PAIRS);
    matmul_set_timing(MATMUL_HEURISTIC);
    matmul_cuda_close();
    let_fail("no_fp8_bias");
    check_all_codes();
    cr_assert_eq(asked().products, 4 * CODE_PAIRS);
    matmul_cuda_close();
    let_fail("empty");
    check_all_codes();
    cr_assert_eq(asked().products, 0);
}

Test(matmul_cuda, codes_are_summed_fast_in_forward_alone)
{
    if (!is_standin())
        cr_skip("not the stand-in");
    for (int pair = 0; pair < CODE_PAIRS; pair++) {
        let_fail(NULL);
        check_codes_of(pair);
        cr_expect_eq(asked().products, 4);
        cr_expect_eq(asked().summed_fast, pair == 0 ? 4 : 0, "%d", pair);
    }
}

/* --- what the library refuses -------------------------------------------- */

static void check_some(void)
{
    for (int dtype = DTYPE_FP32; dtype <= DTYPE_FP16; dtype++)
        for (int flags = 0; flags < 32; flags += 3)
            check_plain(
                    (enum dtype)dtype, 70, 67, 37, flags & 1, flags & 2,
                    flags & 4, flags & 8, flags & 16);
    check_gelu(DTYPE_BF16, 9, 24, 33, true, true);
    check_dgelu(DTYPE_BF16, 9, 24, 33, false);
    check_weight_grads(DTYPE_BF16, 9, 24, 33, true, true);
    check_weight_grads(DTYPE_BF16, 9, 24, 33, false, false);
}

Test(matmul_cuda, own_kernel_runs_what_the_heuristic_refuses)
{
    if (!is_standin())
        cr_skip("not the stand-in");
    let_fail("empty");
    check_some();
    cr_assert_eq(asked().products, 0);
    cr_assert_gt(matmul_counters().refused, 0);
}

Test(matmul_cuda, own_kernel_runs_what_the_call_refuses)
{
    if (!is_standin())
        cr_skip("not the stand-in");
    let_fail("refuse");
    check_some();
    cr_assert_eq(asked().products, 0);
}

Test(matmul_cuda, missing_epilogues_are_composed)
{
    if (!is_standin())
        cr_skip("not the stand-in");
    let_fail("no_bgrad,no_gelu");
    check_fused(DTYPE_BF16);
    cr_assert_gt(asked().products, 0);
}

Test(matmul_cuda, failed_matmul_is_an_error)
{
    if (!is_standin())
        cr_skip("not the stand-in");
    struct tables t = tables_of(DTYPE_FP32);
    struct twin x = twin(DTYPE_FP32, 64, 1.0f, 1);
    struct twin out = twin(DTYPE_FP32, 64, 1.0f, 2);
    let_fail("fail:1");
    cr_assert_eq(
            t.gpu->matmul(
                    NULL,
                    &(struct matmul){
                            .M = 8,
                            .N = 8,
                            .K = 8,
                            .a = {x.device, DTYPE_FP32},
                            .b = {x.device, DTYPE_FP32},
                            .out = {out.device, DTYPE_FP32}}),
            ZD_ERR_DEVICE);
    cr_assert_str_eq(zd_error_get()->code, "E1222");
    cr_assert(strstr(zd_error_get()->what, "CUBLAS_STATUS_EXECUTION_FAILED"));
    cr_assert(strstr(zd_error_get()->help, "Xid"));
    zd_error_clear();
    twin_free(&x), twin_free(&out);
}

Test(matmul_library, missing_library_has_a_fix)
{
    const struct kernels *table;
    setenv("ZEROD_CUBLASLT", "/nowhere/libcublasLt.so.13", 1);
    cr_assert_eq(kernels_cuda(DTYPE_BF16, &table), ZD_ERR_UNFIT);
    cr_assert_str_eq(zd_error_get()->code, "E1220");
    cr_assert(strstr(zd_error_get()->what, "/nowhere/libcublasLt.so.13"));
    cr_assert(strstr(zd_error_get()->help, "device.backend"));
}

Test(matmul_library, library_without_our_functions_is_named)
{
    const struct kernels *table;
    setenv("ZEROD_CUBLASLT", "libm.so.6", 1);
    cr_assert_eq(kernels_cuda(DTYPE_BF16, &table), ZD_ERR_UNFIT);
    cr_assert_str_eq(zd_error_get()->code, "E1221");
}

/* The one thing that NVIDIA's own library does without a GPU. */
Test(matmul_library, the_library_takes_our_descriptors)
{
    struct plan_table table = {0};
    if (cublaslt_open(&table.api) != ZD_OK) {
        zd_error_clear();
        cr_skip("no cuBLASLt");
    }
    for (int epilogue = 0; epilogue < KEY_EPILOGUES; epilogue++)
        for (int dtype = DTYPE_FP32; dtype <= DTYPE_FP16; dtype++) {
            struct plan plan = {0};
            plan.key = (struct matmul_key){
                    .m = 64,
                    .n = 32,
                    .k = 16,
                    .sm_target = 100 * (dtype == DTYPE_BF16),
                    .dtype = dtype,
                    .out_type = dtype,
                    .trans_a = epilogue & 1,
                    .epilogue = epilogue,
                    .alignment = 16,
                    .tf32 = dtype == DTYPE_FP32,
            };
            MUST(plan_describe(&table, &plan));
            plan_clear(&table, &plan);
        }
}

/* --- settings ------------------------------------------------------------ */

Test(matmul_cuda, collectives_keep_their_multiprocessors)
{
    if (!is_standin())
        cr_skip("not the stand-in");
    let_fail(NULL);
    matmul_set_sm_target(100);
    check_plain(DTYPE_BF16, 64, 64, 64, false, false, false, true, false);
    cr_assert_eq(asked().sm_target, 100);
    matmul_set_sm_target(0);
    check_plain(DTYPE_BF16, 64, 64, 64, false, false, false, true, false);
    cr_assert_eq(asked().sm_target, 0);
    cr_assert_eq(matmul_counters().plans, 2);
}

/* The error of one fp32 product, with TF32 or not. */
static double fp32_error(bool tf32)
{
    struct tables t = tables_of(DTYPE_FP32);
    enum { SIDE = 64 };
    struct twin a = twin(DTYPE_FP32, SIDE * SIDE, 1.0f, 1);
    struct twin b = twin(DTYPE_FP32, SIDE * SIDE, 1.0f, 2);
    struct twin out = twin(DTYPE_FP32, SIDE * SIDE, 1.0f, 3);
    matmul_set_tf32(tf32);
    struct matmul m = {
            .M = SIDE,
            .N = SIDE,
            .K = SIDE,
            .a = {a.host, DTYPE_FP32},
            .b = {b.host, DTYPE_FP32},
            .out = {out.host, DTYPE_FP32}};
    MUST(t.plain->matmul(NULL, &m));
    m.a.data = a.device, m.b.data = b.device, m.out.data = out.device;
    MUST(t.gpu->matmul(NULL, &m));
    double error = twin_error(&out);
    twin_free(&a), twin_free(&b), twin_free(&out);
    return error;
}

Test(matmul_cuda, tf32_is_asked_for)
{
    cr_assert_lt(fp32_error(false), 1e-5);
    double error = fp32_error(true);
    cr_assert_lt(error, 1e-2);
    cr_assert_gt(error, 1e-4);
}
