/* The operations of a GPU against the plain definitions on the CPU, and against
 * themselves: on a GPU, or on the stand-in for one (tests/cuda). */
#include "cases.h"

#include "base/device_memory.h"
#include "kernels/plain.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Largest of what the cases ask for. */
static const struct kernels_request request = {
        .backend = DEVICE_CUDA,
        .N = 2048,
        .C = 8200,
        .columns = 8200,
        .V = 50257,
};

/* The GPU and the memory that operations borrow, which is full of NaN. */
static struct runner cuda_runner(enum dtype dtype, int shift)
{
    struct runner runner = {.shift = shift};
    size_t bytes = kernels_workspace_bytes(&request);
    void *workspace;
    if (device_gpu_count(NULL) == 0)
        cr_skip("no CUDA device");
    cr_assert_eq(device_open(DEVICE_CUDA, 0, 1, &runner.device), ZD_OK);
    device_use(runner.device);
    cr_assert_eq(device_take(bytes, &workspace), ZD_OK);
    unsigned char *nans = malloc(bytes);
    memset(nans, 0xff, bytes);
    cr_assert_eq(device_write(workspace, nans, bytes), ZD_OK);
    free(nans);
    kernels_set_workspace(workspace, bytes);
    enum zd_status status = kernels_device(dtype, &runner.ops);
    cr_assert_eq(status, ZD_OK, "%s", zd_error_get()->what);
    cr_assert_eq(runner.ops->dtype, dtype);
    return runner;
}

static void agree(
        const struct op_case *cases, int count, enum dtype dtype, int shift)
{
    struct runner plain = {.threads = 1}, cuda = cuda_runner(dtype, shift);
    cr_assert_eq(kernels_plain(dtype, &plain.ops), ZD_OK);
    for (int c = 0; c < count; c++) {
        double error = cases[c].run(cuda, plain);
        cr_expect(
                error <= cases[c].tolerance[dtype], "%s, %s: differs by %g",
                cases[c].name, dtype_name(dtype), error);
    }
}

Test(kernels_cuda, fp32_agrees_with_the_plain_definitions)
{
    agree(op_cases, op_case_count, DTYPE_FP32, 0);
}

Test(kernels_cuda, bf16_agrees_with_the_plain_definitions)
{
    agree(op_cases, op_case_count, DTYPE_BF16, 0);
}

Test(kernels_cuda, fp16_agrees_with_the_plain_definitions)
{
    agree(op_cases, op_case_count, DTYPE_FP16, 0);
}

Test(kernels_cuda, fp32_agrees_at_the_shapes_of_a_gpu)
{
    agree(cuda_cases, cuda_case_count, DTYPE_FP32, 0);
}

Test(kernels_cuda, bf16_agrees_at_the_shapes_of_a_gpu)
{
    agree(cuda_cases, cuda_case_count, DTYPE_BF16, 0);
}

Test(kernels_cuda, fp16_agrees_at_the_shapes_of_a_gpu)
{
    agree(cuda_cases, cuda_case_count, DTYPE_FP16, 0);
}
