/* test_emulate_mistakes.cpp - the mistakes that the emulator of kernels finds.
 */
#include "tests/cuda/emulate_case.h"

#include <sys/wait.h>
#include <unistd.h>

namespace
{
/* A kernel that must fail, and what the report must say. */
template <typename P>
void expect_report(
        const char *what, void (*kernel)(P *), dim3 grid, dim3 block, P *p,
        cudaError_t error = cudaErrorLaunchFailure)
{
    cr_assert_eq(
            zd_emulate_launch("broken", kernel, grid, block, 0, 0, p),
            cudaSuccess);
    cr_expect_eq(cudaDeviceSynchronize(), error);
    cr_expect_eq(cudaGetLastError(), error);
    cr_expect_eq(cudaGetLastError(), error, "sticky");
    cr_expect(
            strstr(zd_standin_report(), what), "\"%s\" lacks \"%s\"",
            zd_standin_report(), what);
    cr_expect(strstr(zd_standin_report(), "kernel broken, block ("));
    zd_standin_forget();
}

__global__ void some_skip_the_barrier(float *out)
{
    if (threadIdx.x < 100)
        __syncthreads();
    out[threadIdx.x] = 1;
}

__global__ void two_barriers(float *out)
{
    if (threadIdx.x < 100) {
        out[0] = 1;
        __syncthreads();
    } else {
        out[1] = 1;
        __syncthreads();
    }
}

Test(cuda_emulate, divergent_barriers_are_reported)
{
    float *out = device_floats(256);
    expect_report("has ended", some_skip_the_barrier, 2, 128, out);
    expect_report("waits at another", two_barriers, 1, 128, out);
}

__global__ void lane_has_ended(float *out)
{
    if (threadIdx.x == 37)
        return;
    out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
}

__global__ void lane_is_elsewhere(float *out)
{
    if (threadIdx.x != 37)
        out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
    __syncthreads();
}

__global__ void masks_differ(float *out)
{
    unsigned mask = threadIdx.x < 16 ? 0xffffu : 0xffffffffu;
    out[threadIdx.x] = __shfl_xor_sync(mask, 1.0f, 1);
}

__global__ void reads_outside_the_mask(float *out)
{
    if (threadIdx.x < 8)
        out[threadIdx.x] = __shfl_xor_sync(0xffu, 1.0f, 8);
}

__global__ void caller_is_not_in_the_mask(float *out)
{
    __syncwarp(0xfffffffeu);
    out[0] = 1;
}

Test(cuda_emulate, missing_lanes_are_reported)
{
    float *out = device_floats(256);
    expect_report(
            "mask ffffffff, of which lane 5 has ended", lane_has_ended, 1, 64,
            out);
    expect_report(
            "lane 5 of the mask ffffffff, which waits in __syncthreads",
            lane_is_elsewhere, 1, 64, out);
    expect_report(
            "mask ffffffff, of which lane 0 has ended", masks_differ, 1, 32,
            out);
    expect_report(
            "which is not in the mask 000000ff", reads_outside_the_mask, 1, 32,
            out);
    expect_report(
            "lacks the calling lane 0", caller_is_not_in_the_mask, 1, 32, out);
    expect_report("lane 16 is not in the block", lane_has_ended, 1, 16, out);
}

__global__ void misaligned(float *out)
{
    float4 x = __ldcs(reinterpret_cast<const float4 *>(out + 1));
    out[0] = x.x;
}

Test(cuda_emulate, misaligned_packs_are_reported)
{
    expect_report("not aligned", misaligned, 1, 1, device_floats(64));
}

__global__ void writes_behind(float *out)
{
    out[threadIdx.x * 32] = 1;
}

struct indirect {
    float *out;
};

__global__ void follows_a_kept_address(struct indirect *p)
{
    *p->out = 1;
}

Test(cuda_emulate, accesses_outside_of_memory_are_reported)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    float *out = device_floats(128);
    expect_report(
            "block (0,0,0), thread (4,0,0): touches", writes_behind, 1, 8, out,
            cudaErrorIllegalAddress);
    struct indirect *kept, host = {out};
    cudaMalloc((void **)&kept, sizeof *kept);
    cudaMemcpy(kept, &host, sizeof host, cudaMemcpyDefault);
    expect_report(
            "an address of the device", follows_a_kept_address, 1, 1, kept,
            cudaErrorIllegalAddress);
#endif
}

__global__ void nothing(float *)
{
}

Test(cuda_emulate, impossible_launches_are_refused)
{
    float *out = device_floats(16), host[16];
    auto launch = [&](dim3 grid, dim3 block, size_t shared, float *p) {
        return zd_emulate_launch("none", nothing, grid, block, shared, 0, p);
    };
    GIVES(ErrorInvalidConfiguration, launch(0, 32, 0, out));
    GIVES(ErrorInvalidConfiguration, launch(1, 0, 0, out));
    GIVES(ErrorInvalidConfiguration, launch(1, 1056, 0, out));
    GIVES(ErrorInvalidConfiguration, launch(1, dim3(64, 32), 0, out));
    GIVES(ErrorInvalidConfiguration, launch(dim3(1, 65536), 32, 0, out));
    GIVES(ErrorInvalidValue, launch(1, 32, (48 << 10) + 1, out));
    GIVES(ErrorInvalidValue,
          cudaFuncSetAttribute(
                  (const void *)nothing,
                  cudaFuncAttributeMaxDynamicSharedMemorySize, 228 << 10));
    GIVES(Success,
          cudaFuncSetAttribute(
                  (const void *)nothing,
                  cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10));
    GIVES(Success, launch(1, 32, 100 << 10, out));
    GIVES(ErrorIllegalAddress, launch(1, 32, 0, host));
    GIVES(Success, launch(1, 32, 0, nullptr));
    GIVES(Success, cudaDeviceSynchronize());
}

Test(cuda_emulate, launches_fail_when_asked)
{
    float *out = device_floats(16);
    void *p;
    cudaStream_t stream;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    auto launch = [&] {
        return zd_emulate_launch("none", nothing, 1, 32, 0, stream, out);
    };
    zd_standin_fail("launch:2");
    GIVES(Success, launch());
    GIVES(ErrorLaunchOutOfResources, launch());
    GIVES(Success, launch());
    zd_standin_fail("hang:1");
    GIVES(Success, launch());
    GIVES(ErrorNotReady, cudaStreamQuery(stream));
    zd_standin_unhang();
    GIVES(Success, cudaStreamSynchronize(stream));
    zd_standin_fail("sticky:1");
    GIVES(Success, launch());
    GIVES(ErrorECCUncorrectable, cudaStreamSynchronize(stream));
    GIVES(ErrorECCUncorrectable, launch());
    GIVES(ErrorECCUncorrectable, cudaMalloc(&p, 64));
    GIVES(ErrorECCUncorrectable, cudaGetLastError());
}

/* What a child process does ends it by a signal, or by a sanitizer's report. */
bool is_fatal(void (*action)(void))
{
    pid_t child = fork();
    if (!child) {
        if (!freopen("/dev/null", "w", stderr))
            abort();
        action();
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    return !WIFEXITED(status) || WEXITSTATUS(status);
}

float *volatile touched;
Test(cuda_emulate, the_host_cannot_dereference_device_memory)
{
    float *out = device_floats(16);
    touched = out;
    cr_expect(is_fatal([] { touched[0] = 1; }));
    touched = static_cast<float *>(zd_standin_host(out));
    cr_expect(!is_fatal([] { touched[0] = 1; }));
}
} // namespace
