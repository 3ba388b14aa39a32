/* The operations of a GPU against the plain definitions on the CPU, and against
 * themselves: on a GPU, or on the stand-in for one (tests/cuda). */
#include "cases.h"
#include "fp8_sums.h"

#include "base/device/device_memory.h"
#include "base/must.h"
#include "tests/support/child.h"
#include "tests/support/must.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The maximum over all cases. */
enum { MOST_TOKENS = 2048, MOST_COLUMNS = 8200 };

/* Opens the GPU, with a workspace full of NaN. */
static enum zd_status open_runner(
        enum dtype dtype, int shift, struct runner *runner_out)
{
    struct runner runner = {.shift = shift};
    size_t bytes =
            kernels_workspace_bytes(MOST_TOKENS, MOST_COLUMNS, MOST_COLUMNS);
    void *workspace;
    ZD_TRY(device_open(DEVICE_CUDA, 0, 1, &runner.device));
    device_use(runner.device);
    ZD_TRY(device_take(bytes, &workspace));
    unsigned char *nans = malloc(bytes);
    memset(nans, 0xff, bytes);
    enum zd_status status = device_write(workspace, nans, bytes);
    free(nans);
    ZD_TRY(status);
    kernels_set_workspace(workspace, bytes);
    ZD_TRY(kernels_device(dtype, &runner.ops));
    *runner_out = runner;
    return ZD_OK;
}

static struct runner cuda_runner(enum dtype dtype, int shift)
{
    struct runner runner = {0};
    if (device_gpu_count(NULL) == 0)
        cr_skip("no CUDA device");
    MUST(open_runner(dtype, shift, &runner));
    cr_assert_eq(runner.ops->dtype, dtype);
    cr_assert_eq(strncmp(runner.ops->name, "cuda ", 5), 0);
    return runner;
}

/* Matmuls and attention have their own tests, also with other alignments. */
static bool is_of_library(const char *name)
{
    return strstr(name, "matmul") || strstr(name, "products") ||
           strstr(name, "attention");
}

static void agree(
        const struct op_case *cases, int count, enum dtype dtype, int shift)
{
    struct runner plain = {.threads = 1}, cuda = cuda_runner(dtype, shift);
    MUST(kernels_plain(dtype, &plain.ops));
    for (int c = 0; c < count; c++) {
        if (shift && is_of_library(cases[c].name))
            continue;
        double error = case_run(cases[c].run, cuda, plain);
        double most = cases[c].tolerance[dtype];
        if (strcmp(cases[c].name, "fp8 matmul, gradients") == 0)
            most = fp8_sum_tolerance(most);
        cr_expect(
                error <= most, "%s, %s: differs by %g", cases[c].name,
                dtype_name(dtype), error);
    }
}

#define AGREES(type, TYPE)                                                     \
    Test(kernels_cuda, type##_agrees_with_the_plain_definitions)               \
    {                                                                          \
        agree(op_cases, op_case_count, DTYPE_##TYPE, 0);                       \
    }                                                                          \
    Test(kernels_cuda, type##_agrees_at_the_shapes_of_a_gpu)                   \
    {                                                                          \
        agree(cuda_cases, cuda_case_count, DTYPE_##TYPE, 0);                   \
    }
AGREES(fp32, FP32)
AGREES(bf16, BF16)
AGREES(fp16, FP16)

/* Arrays that do not begin at a multiple of 16 bytes: one element at a time. */
Test(kernels_cuda, fp32_agrees_at_any_alignment)
{
    agree(op_cases, op_case_count, DTYPE_FP32, 1);
    agree(cuda_cases, cuda_case_count, DTYPE_FP32, 1);
}

Test(kernels_cuda, bf16_agrees_at_any_alignment)
{
    agree(op_cases, op_case_count, DTYPE_BF16, 3);
    agree(cuda_cases, cuda_case_count, DTYPE_BF16, 3);
}

/* The fused kernel and its parts have the same bits. */
Test(kernels_cuda, fused_head_norm_rope_has_the_bits_of_its_parts)
{
    for (int dtype = DTYPE_FP32; dtype <= DTYPE_FP16; dtype++) {
        struct runner once = cuda_runner((enum dtype)dtype, 0), parts = once;
        struct kernels table = *once.ops;
        table.head_norm_rope_forward = NULL;
        table.head_norm_rope_backward = NULL;
        parts.ops = &table;
        cr_expect_eq(
                case_run(head_norm_rope_case, once, parts), 0.0, "%s",
                dtype_name((enum dtype)dtype));
    }
}

/* Runs every case twice, in a process whose blocks run in this order (only in
 * the stand-in). 0: something differed or failed; else a digest of the results.
 */
static uint64_t digest(const void *dtype)
{
    struct runner runner = {0};
    bool same = true;
    if (open_runner(*(const enum dtype *)dtype, 0, &runner) != ZD_OK)
        return 0;
    pair_digest();
    for (int c = 0; c < op_case_count; c++)
        if (!is_of_library(op_cases[c].name))
            same = same && case_run(op_cases[c].run, runner, runner) == 0.0;
    for (int c = 0; c < cuda_case_count; c++)
        if (!is_of_library(cuda_cases[c].name))
            same = same && case_run(cuda_cases[c].run, runner, runner) == 0.0;
    return same ? pair_digest() : 0;
}

Test(kernels_cuda, neither_a_run_nor_the_order_of_blocks_changes_a_bit)
{
    enum dtype dtype = DTYPE_BF16;
    uint64_t forward = child_with_gpu(digest, &dtype, "forward");
    if (forward == CHILD_NO_GPU)
        cr_skip("no CUDA device");
    cr_expect_neq(forward, 0, "two runs differ");
    cr_expect_eq(child_with_gpu(digest, &dtype, "7"), forward, "shuffled");
}

/* Equal to base/number/exact_sum.h's sum of the same losses, bit for bit. */
static void add_losses_exactly(
        struct runner runner, const float *losses, int count)
{
    struct exact_sum want = {0}, got;
    pair_runners(runner, runner);
    struct pair sum = pair_of_zeros(sizeof want);
    struct pair list = pair_of_logits(losses, (size_t)count);
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < count; i++)
            exact_sum_add(&want, (double)losses[i]);
        MUST(runner.ops->add_losses(NULL, sum.of[0], list.of[0], count));
    }
    MUST(device_read(&got, sum.of[0], sizeof got));
    cr_expect_arr_eq(&got, &want, sizeof got, "of %d losses", count);
}

Test(kernels_cuda, losses_are_added_exactly)
{
    enum { COUNT = 5000 };
    static const float odd[] = {
            0.0f,      -0.0f,   1e30f,     -3e38f, 1e-38f, 1e-45f,
            INFINITY,  1.0f,    -1e-20f,   NAN,    7e-41f, -INFINITY,
            0x1p-126f, 3.5e-9f, 0x1p-149f, 65504,  -1.0f,  0x1.fffffep127f};
    static float losses[COUNT];
    struct runner runner = cuda_runner(DTYPE_FP32, 0);
    uint64_t seed = 1;
    for (int i = 0; i < COUNT; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        losses[i] = (float)(seed >> 40) * 0x1p-21f;
        if (i % 3 == 1)
            losses[i] = odd[i / 3 % (int)(sizeof odd / sizeof odd[0])];
    }
    add_losses_exactly(runner, losses, 0);
    add_losses_exactly(runner, losses, 1);
    add_losses_exactly(runner, losses, 777);
    add_losses_exactly(runner, losses, COUNT);
    add_losses_exactly(runner, odd, sizeof odd / sizeof odd[0]);
}

/* Values too large for fp16 become infinite. */
Test(kernels_cuda, fp16_overflows_to_infinity)
{
    static const float a[] = {65504, 65504, -65504, 6e-8f, 0x1p-24f, 1, -0.0f};
    static const float b[] = {0, 65504, -20000, 0, -0x1p-25f, INFINITY, -0.0f};
    static const uint16_t want[] = {0x7bff, 0x7c00, 0xfc00, 1,
                                    1,      0x7c00, 0x8000};
    enum { COUNT = sizeof want / sizeof want[0] };
    struct runner runner = cuda_runner(DTYPE_FP16, 0);
    pair_runners(runner, runner);
    struct pair x = pair_of_logits(a, COUNT), y = pair_of_logits(b, COUNT);
    MUST(runner.ops->add(NULL, x.of[0], x.of[0], y.of[0], COUNT));
    ZD_FREED uint16_t *got = pair_fetch(&x, 0);
    for (int i = 0; i < COUNT; i++)
        cr_expect_eq(
                got[i], want[i], "%g + %g = %04x", (double)a[i], (double)b[i],
                got[i]);
}

/* NaN logits give a NaN loss, so that training notices. */
Test(kernels_cuda, a_loss_of_nan_logits_is_nan)
{
    enum { V = 300 };
    static const float bad[] = {NAN, INFINITY};
    struct runner runner = cuda_runner(DTYPE_BF16, 0);
    pair_runners(runner, runner);
    for (int i = 0; i < 2; i++) {
        float logits[V] = {0};
        int32_t target = 3;
        logits[17] = bad[i];
        struct pair x = pair_of_logits(logits, V);
        struct pair targets = pair_of_ints(&target, 1);
        struct pair loss = pair_of_zeros(sizeof(float));
        struct loss_rows rows = {loss.of[0], x.of[0], x.of[0], targets.of[0],
                                 1.0f,       1,       V,       {0, V, V}};
        MUST(runner.ops->cross_entropy(NULL, &rows));
        ZD_FREED float *got = pair_fetch(&loss, 0);
        cr_expect(isnan(*got), "%g", (double)*got);
    }
}
