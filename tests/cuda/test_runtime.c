/* The stand-in for the CUDA runtime: memory, streams, events. The failures that
 * it injects are in tests/base/device/test_device_refused.c. */
#include "tests/cuda/gives.h"
#include "tests/cuda/stand_in/stand_in.h"

#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

static sem_t gate;

static void close_gate(void)
{
    sem_init(&gate, 0, 0);
}

TestSuite(cuda_runtime, .init = close_gate);

/* --- memory */

Test(cuda_runtime, copies_are_checked_against_allocations)
{
    enum { BYTES = 1000 };
    char host[BYTES] = {1, 2, 3}, back[BYTES], *device;
    OK(cudaMalloc((void **)&device, BYTES));
    OK(cudaMemcpy(device, host, BYTES, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(back, device, BYTES, cudaMemcpyDefault));
    cr_expect_arr_eq(back, host, BYTES);
    GIVES(ErrorInvalidValue,
          cudaMemcpy(device + 1, host, BYTES, cudaMemcpyHostToDevice));
    cr_expect(strstr(zd_standin_report(), "leaves its allocation"));
    GIVES(ErrorInvalidMemcpyDirection,
          cudaMemcpy(back, device, BYTES, cudaMemcpyHostToDevice));
    GIVES(ErrorInvalidValue, cudaMemset(device + 8, 0, BYTES - 7));
    GIVES(ErrorInvalidValue, cudaMemset(host, 0, 8));
    GIVES(ErrorInvalidValue, cudaFree(device + 8));
    OK(cudaFree(device));
    GIVES(ErrorInvalidValue,
          cudaMemcpy(back, device, 8, cudaMemcpyDeviceToHost));
    GIVES(ErrorInvalidValue, cudaGetLastError());
    cr_expect_eq(cudaGetLastError(), cudaSuccess, "not sticky");
}

Test(cuda_runtime, memory_that_a_library_may_touch)
{
    static char pinned[8192];
    char *device;
    cudaMalloc((void **)&device, 64);
    OK(cudaHostRegister(pinned, 8192, 0));
    GIVES(ErrorHostMemoryAlreadyRegistered,
          cudaHostRegister(pinned + 4096, 100, 0));
    cr_expect(zd_standin_is_reachable(device, 64));
    cr_expect(!zd_standin_is_reachable(device, 65));
    cr_expect(zd_standin_is_reachable(pinned + 3, 64));
    cr_expect(!zd_standin_is_reachable(&device, 1));
    OK(cudaHostUnregister(pinned));
    GIVES(ErrorHostMemoryNotRegistered, cudaHostUnregister(pinned));
}

/* --- streams */

static void pass(void *ctx)
{
    (void)ctx;
    sem_wait(&gate);
}

static cudaStream_t new_stream(unsigned flags)
{
    cudaStream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, flags));
    return stream;
}

Test(cuda_runtime, copies_from_page_locked_memory_are_asynchronous)
{
    static char pinned[4096];
    char *device, pageable[4096] = {5}, back[4096];
    cudaMalloc((void **)&device, 8192);
    cudaHostRegister(pinned, sizeof pinned, 0);
    cudaStream_t s = new_stream(cudaStreamNonBlocking);
    pinned[0] = 1;
    OK(cudaLaunchHostFunc(s, pass, NULL));
    OK(cudaMemcpyAsync(device, pinned, 4096, cudaMemcpyDefault, s));
    OK(cudaMemcpyAsync(device + 4096, pageable, 4096, cudaMemcpyDefault, s));
    GIVES(ErrorNotReady, cudaStreamQuery(s));
    pinned[0] = 2;   /* too early: the copy sees it */
    pageable[0] = 6; /* staged: it does not */
    sem_post(&gate);
    OK(cudaStreamSynchronize(s));
    cudaMemcpy(back, device, 4096, cudaMemcpyDefault);
    cr_expect_eq(back[0], 2);
    cudaMemcpy(back, device + 4096, 4096, cudaMemcpyDefault);
    cr_expect_eq(back[0], 5);
}

Test(cuda_runtime, the_default_stream_waits_for_no_other)
{
    char *device;
    cudaStream_t blocking;
    cudaMalloc((void **)&device, 64);
    cudaStream_t free_running = new_stream(cudaStreamNonBlocking);
    cudaLaunchHostFunc(free_running, pass, NULL);
    OK(cudaMemset(device, 1, 64));
    OK(cudaStreamSynchronize(0));
    GIVES(ErrorNotReady, cudaStreamQuery(free_running));
    sem_post(&gate);
    OK(cudaDeviceSynchronize());
    GIVES(ErrorInvalidValue,
          cudaStreamCreateWithFlags(&blocking, cudaStreamDefault));
}

Test(cuda_runtime, use_after_destruction_is_an_error)
{
    cudaStream_t s = new_stream(cudaStreamNonBlocking);
    cudaEvent_t event;
    cudaEventCreate(&event);
    OK(cudaStreamDestroy(s));
    GIVES(ErrorInvalidResourceHandle, cudaEventRecord(event, s));
    GIVES(ErrorInvalidResourceHandle, cudaStreamSynchronize(s));
    OK(cudaEventDestroy(event));
    GIVES(ErrorInvalidResourceHandle, cudaEventSynchronize(event));
}

static void calls_back(void *ctx)
{
    *(cudaError_t *)ctx = cudaDeviceSynchronize();
}

Test(cuda_runtime, a_host_function_may_not_call_the_gpu)
{
    cudaError_t error = cudaSuccess;
    cudaLaunchHostFunc(0, calls_back, &error);
    OK(cudaDeviceSynchronize());
    cr_expect_eq(error, cudaErrorNotPermitted);
}

Test(cuda_runtime, devices_have_their_own_memory_and_events)
{
    setenv("ZD_STANDIN_GPUS", "2", 1);
    struct cudaDeviceProp a, b;
    int count;
    cudaEvent_t event;
    OK(cudaGetDeviceCount(&count));
    cr_assert_eq(count, 2);
    cudaGetDeviceProperties(&a, 0);
    cudaGetDeviceProperties(&b, 1);
    cr_expect(memcmp(&a.uuid, &b.uuid, sizeof a.uuid));
    cudaEventCreate(&event);
    GIVES(ErrorInvalidDevice, cudaSetDevice(2));
    OK(cudaSetDevice(1));
    GIVES(ErrorInvalidResourceHandle, cudaEventRecord(event, 0));
}
