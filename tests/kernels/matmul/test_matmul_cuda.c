/* test_matmul_cuda.c - matmuls on a GPU against the plain definition, also if
 * the library refuses one. On a stand-in of the GPU they also check the calls
 * to the library. */
#include "matmul_cases.h"

#include "kernels/cuda/cuda_workspace.h"
#include "kernels/matmul/cublaslt.h"
#include "kernels/matmul/matmul_cuda.h"
#include "kernels/matmul/matmul_plan_cuda.h"

#include <stdlib.h>

TestSuite(matmul_cuda, .init = gpu_begin, .fini = gpu_end);

/* --- values: those of dense matmuls are in test_cuda.c ---------------------
 */

/* Chosen by heuristics, timed, and by our own kernel. */
static void check_all_gaps(void)
{
    for (int dtype = DTYPE_FP32; dtype <= DTYPE_FP16; dtype++)
        for (int flags = 0; flags < 8; flags++)
            for (int gap = 0; gap < 14; gap += 13)
                check_gaps(
                        (enum dtype)dtype, 37, 51, 70,
                        flags & ADDS ? flags : flags | NARROW, gap);
}

Test(matmul_cuda, rows_may_have_gaps)
{
    check_all_gaps();
    setenv("ZEROD_MATMUL_TIMING", "all", 1);
    matmul_cuda_close();
    check_all_gaps();
    if (!is_standin())
        return;
    let_fail("empty");
    setenv("ZEROD_MATMUL_TIMING", "off", 1);
    matmul_cuda_close();
    uint64_t before = asked().products;
    check_all_gaps();
    cr_assert_eq(asked().products, before);
}

/* The remainder of a vocabulary modulo eight is a separate matmul: for the
 * logits, and for the gradient of their input. */
Test(matmul_cuda, odd_vocabulary_is_split)
{
    for (int dtype = DTYPE_FP32; dtype <= DTYPE_FP16; dtype++)
        for (int over = 1; over < 8; over += 3)
            for (int to = ADDS; to <= NARROW; to *= 2) {
                int V = 4096 + over, gap = 8 - over;
                check_gaps((enum dtype)dtype, 5, V, 24, TRANS_B | to, gap);
                check_gaps((enum dtype)dtype, 5, 24, V, to, gap);
            }
}

/* The stand-in's second algorithm needs rows that begin at multiples of 16
 * bytes and have whole packs. */
static bool fast_algorithm_is_tried(int V, int stride)
{
    enum { N = 8, C = 32 };
    let_fail(NULL);
    setenv("ZEROD_MATMUL_TIMING", "all", 1);
    check_matmul(
            (struct matmul){
                    .M = N,
                    .N = V,
                    .K = C,
                    .a = {.type = DTYPE_BF16},
                    .b = {.transposed = true},
                    .out = {.type = DTYPE_BF16, .stride = stride}},
            0);
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

/* Checks that epilogues are used: otherwise the test above proves nothing. */
Test(matmul_cuda, an_epilogue_is_one_call)
{
    if (!is_standin())
        cr_skip("not the stand-in");
    let_fail(NULL);
    check_shape(DTYPE_BF16, 32, 64, 48, NARROW | TRANS_B | BIAS, MATMUL_GELU);
    check_shape(DTYPE_BF16, 32, 64, 48, NARROW, MATMUL_DGELU);
    check_shape(DTYPE_BF16, 32, 64, 48, TRANS_A | ADDS, MATMUL_SUM_A);
    cr_assert_eq(asked().products, 3);
    cr_assert_eq(asked().with_epilogue, 3);
}

Test(matmul_cuda, odd_addresses_work)
{
    check_matmul(
            (struct matmul){
                    .M = 24,
                    .N = 40,
                    .K = 32,
                    .a = {.type = DTYPE_BF16},
                    .out = {.type = DTYPE_BF16},
                    .epilogue = MATMUL_GELU},
            1);
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
        check_matmul(
                (struct matmul){
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
                        .accumulate = kind == 3},
                0);
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
    setenv("ZEROD_MATMUL_TIMING", "all", 1);
    check_all_codes();
    struct matmul_counters first = matmul_counters();
    matmul_cuda_close();
    check_all_codes();
    struct matmul_counters second = matmul_counters();
    cr_assert_eq(first.refused, 0);
    cr_assert_gt(first.timed, 0);
    cr_assert_eq(second.timed, first.timed);
    cr_assert_gt(second.read, first.read);
    if (!is_standin()) /* with a single algorithm nothing is stored */
        return;
    cr_assert_eq(second.read - first.read, 3 * CODE_PAIRS);
    setenv("ZEROD_MATMUL_TIMING", "off", 1);
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
            check_shape((enum dtype)dtype, 70, 67, 37, flags, MATMUL_PLAIN);
    check_shape(DTYPE_BF16, 9, 24, 33, NARROW | TRANS_B | BIAS, MATMUL_GELU);
    check_shape(DTYPE_BF16, 9, 24, 33, NARROW, MATMUL_DGELU);
    check_shape(DTYPE_BF16, 9, 24, 33, TRANS_A | ADDS, MATMUL_SUM_A);
    check_shape(DTYPE_BF16, 9, 24, 33, TRANS_A, MATMUL_SUM_B);
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
    check_some();
    cr_assert_gt(asked().products, 0);
}

Test(matmul_cuda, failed_matmul_is_an_error)
{
    if (!is_standin())
        cr_skip("not the stand-in");
    pairs_on_gpu(DTYPE_FP32, 0);
    struct pair x = pair_of(DTYPE_FP32, 64, 1.0f, 1);
    const struct matmul m = {
            .M = 8,
            .N = 8,
            .K = 8,
            .a = {x.of[0], DTYPE_FP32},
            .b = {x.of[0], DTYPE_FP32},
            .out = {x.of[0], DTYPE_FP32}};
    let_fail("fail:1");
    cr_assert_eq(pair_enter(0)->matmul(NULL, &m), ZD_ERR_DEVICE);
    cr_assert_str_eq(zd_error_get()->code, "E1222");
    cr_assert(strstr(zd_error_get()->what, "CUBLAS_STATUS_EXECUTION_FAILED"));
    cr_assert(strstr(zd_error_get()->help, "Xid"));
    zd_error_clear();
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
    REFUSED(kernels_cuda(DTYPE_BF16, &table), ZD_ERR_UNFIT, "E1221", "");
}

/* The only thing that NVIDIA's library does without a GPU. */
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
            plan.tuned.key = (struct matmul_key){
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
    check_shape(DTYPE_BF16, 64, 64, 64, NARROW, MATMUL_PLAIN);
    cr_assert_eq(asked().sm_target, 100);
    matmul_set_sm_target(0);
    check_shape(DTYPE_BF16, 64, 64, 64, NARROW, MATMUL_PLAIN);
    cr_assert_eq(asked().sm_target, 0);
    cr_assert_eq(matmul_counters().plans, 2);
}

/* The error of one fp32 product, with TF32 or not. */
static double fp32_error(bool tf32)
{
    enum { SIDE = 64 };
    matmul_set_tf32(tf32);
    pairs_on_gpu(DTYPE_FP32, 0);
    struct pair a = pair_of(DTYPE_FP32, SIDE * SIDE, 1.0f, 1);
    struct pair b = pair_of(DTYPE_FP32, SIDE * SIDE, 1.0f, 2);
    struct pair out = pair_of(DTYPE_FP32, SIDE * SIDE, 1.0f, 3);
    for (int r = 0; r < 2; r++)
        MUST(pair_enter(r)->matmul(
                NULL, &(struct matmul){
                              .M = SIDE,
                              .N = SIDE,
                              .K = SIDE,
                              .a = {a.of[r], DTYPE_FP32},
                              .b = {b.of[r], DTYPE_FP32},
                              .out = {out.of[r], DTYPE_FP32}}));
    pair_compare(out);
    return pair_difference();
}

Test(matmul_cuda, tf32_is_asked_for)
{
    cr_assert_lt(fp32_error(false), 1e-5);
    double error = fp32_error(true);
    cr_assert_lt(error, 1e-2);
    cr_assert_gt(error, 1e-4);
}
