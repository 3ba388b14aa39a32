/* The stand-in for the CUDA runtime: memory, streams, events, failures. */
#include "tests/cuda/stand_in/stand_in.h"

#include <criterion/criterion.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

/* --- memory
 * ------------------------------------------------------------------- */

Test(cuda_runtime, copies_are_checked_against_allocations)
{
    enum { BYTES = 1000 };
    char host[BYTES] = {1, 2, 3}, back[BYTES], *device;
    cr_assert_eq(cudaMalloc((void **)&device, BYTES), cudaSuccess);
    cr_expect_eq(
            cudaMemcpy(device, host, BYTES, cudaMemcpyHostToDevice),
            cudaSuccess);
    cr_expect_eq(
            cudaMemcpy(back, device, BYTES, cudaMemcpyDefault), cudaSuccess);
    cr_expect_arr_eq(back, host, BYTES);
    cr_expect_eq(
            cudaMemcpy(device + 1, host, BYTES, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
    cr_expect(strstr(zd_standin_report(), "leaves its allocation"));
    cr_expect_eq(
            cudaMemcpy(back, device, BYTES, cudaMemcpyHostToDevice),
            cudaErrorInvalidMemcpyDirection);
    cr_expect_eq(cudaMemset(device + 8, 0, BYTES - 7), cudaErrorInvalidValue);
    cr_expect_eq(cudaMemset(host, 0, 8), cudaErrorInvalidValue);
    cr_expect_eq(cudaFree(device + 8), cudaErrorInvalidValue);
    cr_expect_eq(cudaFree(device), cudaSuccess);
    cr_expect_eq(
            cudaMemcpy(back, device, 8, cudaMemcpyDeviceToHost),
            cudaErrorInvalidValue);
    cr_expect_eq(cudaGetLastError(), cudaErrorInvalidValue);
    cr_expect_eq(cudaGetLastError(), cudaSuccess, "not sticky");
}

Test(cuda_runtime, device_memory_has_an_end)
{
    setenv("ZD_STANDIN_MEMORY", "100M", 1);
    setenv("ZD_STANDIN_CONTEXT", "10M", 1);
    size_t free_bytes, total_bytes;
    void *a, *b;
    cr_assert_eq(cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
    cr_expect_eq(total_bytes, 100u << 20);
    cr_expect_eq(free_bytes, 90u << 20);
    cr_expect_eq(cudaMalloc(&a, 80 << 20), cudaSuccess);
    cr_expect_eq(cudaMalloc(&b, 11 << 20), cudaErrorMemoryAllocation);
    cr_expect_eq(cudaGetLastError(), cudaErrorMemoryAllocation);
    cr_expect_eq(cudaMalloc(&b, 10 << 20), cudaSuccess);
    cr_expect_eq(cudaFree(a), cudaSuccess);
    cr_expect_eq(cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
    cr_expect_eq(free_bytes, 80u << 20);
}

Test(cuda_runtime, memory_that_a_library_may_touch)
{
    static char pinned[8192];
    char *device;
    cudaMalloc((void **)&device, 64);
    cr_expect_eq(cudaHostRegister(pinned, 8192, 0), cudaSuccess);
    cr_expect_eq(
            cudaHostRegister(pinned + 4096, 100, 0),
            cudaErrorHostMemoryAlreadyRegistered);
    cr_expect(zd_standin_is_reachable(device, 64));
    cr_expect(!zd_standin_is_reachable(device, 65));
    cr_expect(zd_standin_is_reachable(pinned + 3, 64));
    cr_expect(!zd_standin_is_reachable(&device, 1));
    cr_expect_eq(cudaHostUnregister(pinned), cudaSuccess);
    cr_expect_eq(cudaHostUnregister(pinned), cudaErrorHostMemoryNotRegistered);
}

/* --- streams
 * ------------------------------------------------------------------- */

struct gate {
    sem_t opens;
};

static void pass(void *ctx)
{
    struct gate *gate = ctx;
    sem_wait(&gate->opens);
}

static cudaStream_t new_stream(unsigned flags)
{
    cudaStream_t stream;
    cr_assert_eq(cudaStreamCreateWithFlags(&stream, flags), cudaSuccess);
    return stream;
}

Test(cuda_runtime, copies_from_page_locked_memory_are_asynchronous)
{
    static char pinned[4096];
    char *device, pageable[4096] = {5}, back[4096];
    struct gate gate;
    sem_init(&gate.opens, 0, 0);
    cudaMalloc((void **)&device, 8192);
    cudaHostRegister(pinned, sizeof pinned, 0);
    cudaStream_t s = new_stream(cudaStreamNonBlocking);
    pinned[0] = 1;
    cr_assert_eq(cudaLaunchHostFunc(s, pass, &gate), cudaSuccess);
    cr_assert_eq(
            cudaMemcpyAsync(device, pinned, 4096, cudaMemcpyDefault, s),
            cudaSuccess);
    cr_assert_eq(
            cudaMemcpyAsync(
                    device + 4096, pageable, 4096, cudaMemcpyDefault, s),
            cudaSuccess);
    cr_expect_eq(cudaStreamQuery(s), cudaErrorNotReady);
    pinned[0] = 2;   /* too early: the copy sees it */
    pageable[0] = 6; /* staged: it does not */
    sem_post(&gate.opens);
    cr_expect_eq(cudaStreamSynchronize(s), cudaSuccess);
    cudaMemcpy(back, device, 4096, cudaMemcpyDefault);
    cr_expect_eq(back[0], 2);
    cudaMemcpy(back, device + 4096, 4096, cudaMemcpyDefault);
    cr_expect_eq(back[0], 5);
}

Test(cuda_runtime, a_stream_waits_for_the_last_record_before_the_wait)
{
    static char pinned[4096];
    char *device;
    struct gate gate;
    sem_init(&gate.opens, 0, 0);
    cudaMalloc((void **)&device, 4096);
    cudaHostRegister(pinned, sizeof pinned, 0);
    cudaStream_t a = new_stream(cudaStreamNonBlocking);
    cudaStream_t b = new_stream(cudaStreamNonBlocking);
    cudaEvent_t event;
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cr_expect_eq(cudaEventQuery(event), cudaSuccess, "never recorded");
    cudaLaunchHostFunc(a, pass, &gate);
    cudaMemsetAsync(device, 9, 4096, a);
    cudaEventRecord(event, a);
    cudaStreamWaitEvent(b, event, 0);
    cudaMemcpyAsync(pinned, device, 4096, cudaMemcpyDeviceToHost, b);
    cr_expect_eq(cudaEventQuery(event), cudaErrorNotReady);
    cr_expect_eq(cudaStreamQuery(b), cudaErrorNotReady);
    sem_post(&gate.opens);
    cr_expect_eq(cudaStreamSynchronize(b), cudaSuccess);
    cr_expect_eq(pinned[4095], 9);
    cr_expect_eq(cudaEventQuery(event), cudaSuccess);
}

Test(cuda_runtime, the_default_stream_waits_for_no_other)
{
    char *device;
    struct gate gate;
    cudaStream_t blocking;
    sem_init(&gate.opens, 0, 0);
    cudaMalloc((void **)&device, 64);
    cudaStream_t free_running = new_stream(cudaStreamNonBlocking);
    cudaLaunchHostFunc(free_running, pass, &gate);
    cr_expect_eq(cudaMemset(device, 1, 64), cudaSuccess);
    cr_expect_eq(cudaStreamSynchronize(0), cudaSuccess);
    cr_expect_eq(cudaStreamQuery(free_running), cudaErrorNotReady);
    sem_post(&gate.opens);
    cr_expect_eq(cudaDeviceSynchronize(), cudaSuccess);
    cr_expect_eq(
            cudaStreamCreateWithFlags(&blocking, cudaStreamDefault),
            cudaErrorInvalidValue);
}

Test(cuda_runtime, use_after_destruction_is_an_error)
{
    cudaStream_t s = new_stream(cudaStreamNonBlocking);
    cudaEvent_t event;
    cudaEventCreate(&event);
    cr_expect_eq(cudaStreamDestroy(s), cudaSuccess);
    cr_expect_eq(cudaEventRecord(event, s), cudaErrorInvalidResourceHandle);
    cr_expect_eq(cudaStreamSynchronize(s), cudaErrorInvalidResourceHandle);
    cr_expect_eq(cudaEventDestroy(event), cudaSuccess);
    cr_expect_eq(cudaEventSynchronize(event), cudaErrorInvalidResourceHandle);
}

static void calls_back(void *ctx)
{
    *(cudaError_t *)ctx = cudaDeviceSynchronize();
}

Test(cuda_runtime, a_host_function_may_not_call_the_gpu)
{
    cudaError_t error = cudaSuccess;
    cudaLaunchHostFunc(0, calls_back, &error);
    cr_expect_eq(cudaDeviceSynchronize(), cudaSuccess);
    cr_expect_eq(error, cudaErrorNotPermitted);
}

Test(cuda_runtime, devices_have_their_own_memory_and_events)
{
    setenv("ZD_STANDIN_GPUS", "2", 1);
    struct cudaDeviceProp a, b;
    int count;
    cudaEvent_t event;
    cr_assert_eq(cudaGetDeviceCount(&count), cudaSuccess);
    cr_assert_eq(count, 2);
    cudaGetDeviceProperties(&a, 0);
    cudaGetDeviceProperties(&b, 1);
    cr_expect(memcmp(&a.uuid, &b.uuid, sizeof a.uuid));
    cudaEventCreate(&event);
    cr_expect_eq(cudaSetDevice(2), cudaErrorInvalidDevice);
    cr_assert_eq(cudaSetDevice(1), cudaSuccess);
    cr_expect_eq(cudaEventRecord(event, 0), cudaErrorInvalidResourceHandle);
}

/* --- failures
 * -------------------------------------------------------------------- */

Test(cuda_runtime, failures_come_when_asked)
{
    void *p, *q;
    char host[64];
    cudaStream_t s;
    zd_standin_fail("malloc:2,stream:1,pin:1");
    cr_expect_eq(cudaMalloc(&p, 64), cudaSuccess);
    cr_expect_eq(cudaMalloc(&q, 64), cudaErrorMemoryAllocation);
    cr_expect_eq(cudaMalloc(&q, 64), cudaSuccess);
    cr_expect_eq(
            cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking),
            cudaErrorMemoryAllocation);
    cr_expect_eq(cudaHostRegister(host, 64, 0), cudaErrorMemoryAllocation);
    zd_standin_fail(NULL);
    cr_expect_eq(
            cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
}

Test(cuda_runtime, a_host_without_a_gpu)
{
    int count = 5, version;
    zd_standin_fail("no_device");
    cr_expect_eq(cudaGetDeviceCount(&count), cudaErrorNoDevice);
    cr_expect_eq(count, 0);
    zd_standin_fail("old_driver");
    cr_expect_eq(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
    cudaDriverGetVersion(&version);
    cr_expect_lt(version, CUDART_VERSION);
    zd_standin_fail("no_driver");
    cr_expect_eq(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
    cudaDriverGetVersion(&version);
    cr_expect_eq(version, 0);
    zd_standin_fail("busy");
    cr_expect_eq(cudaGetDeviceCount(&count), cudaSuccess);
    cr_expect_eq(cudaSetDevice(0), cudaErrorDevicesUnavailable);
}

Test(cuda_runtime, failures_of_the_environment)
{
    setenv("ZD_STANDIN_FAIL", "malloc:1", 1);
    void *p;
    cr_expect_eq(cudaMalloc(&p, 64), cudaErrorMemoryAllocation);
    cr_expect_eq(cudaMalloc(&p, 64), cudaSuccess);
}
