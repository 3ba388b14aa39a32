/* device_cuda.c - a rank's GPU: its context and what can go wrong with it. */
#include "base/device/device_cuda.h"
#include "base/must.h"

#include "base/device/device_probe_cuda.h"
#include "base/device/gpu_cuda.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The thread's current device; the next call reports an error of this one. */
static void use(struct device *device)
{
    cudaSetDevice(device->facts.index);
}

static void close_gpu(struct device *device)
{
    struct gpu *gpu = (struct gpu *)device;
    cudaSetDevice(device->facts.index);
    stream_destroy(gpu->compute);
    gpu_staging_fini(&gpu->staging);
    free(gpu); /* the context is the process's, perhaps of other ranks too */
}

/* Waits block: a host that spins takes a core from the optimizer's workers. */
static cudaError_t open_context(int index, const char **call_out)
{
    *call_out = "cudaInitDevice";
    cudaError_t error = cudaInitDevice(
            index, cudaDeviceScheduleBlockingSync, cudaInitDeviceFlagsAreValid);
    if (error != cudaSuccess)
        return error;
    *call_out = "cudaSetDevice";
    error = cudaSetDevice(index);
    if (error != cudaSuccess)
        return error;
    *call_out = "cudaFuncGetAttributes";
    return device_probe();
}

static cudaError_t read_memory(struct device_facts *facts)
{
    size_t free_bytes, total_bytes;
    cudaError_t error = cudaMemGetInfo(&free_bytes, &total_bytes);
    if (error != cudaSuccess)
        return error;
    facts->free_bytes = free_bytes;
    facts->total_bytes = total_bytes;
    return cudaSuccess;
}

static enum zd_status open_gpu(struct gpu *gpu, int index)
{
    const char *call;
    ZD_TRY(gpu_read_facts(index, &gpu->head.facts));
    cudaError_t error = open_context(index, &call);
    if (error == cudaSuccess) {
        call = "cudaMemGetInfo";
        error = read_memory(&gpu->head.facts);
    }
    if (error != cudaSuccess)
        return gpu_refused(&gpu->head.facts, error, call);
    return ZD_OK;
}

enum zd_status device_open_gpu(
        int local_rank, int local_size, struct device **device_out)
{
    const char *why;
    int count = device_gpus(&why);
    struct device *before = device_current();
    struct gpu *gpu = zd_must(calloc(1, sizeof *gpu));
    gpu->head.table = &device_table_cuda;
    enum zd_status status = open_gpu(gpu, count > 0 ? local_rank % count : 0);
    if (status == ZD_OK) {
        device_use(&gpu->head);
        status = stream_create("compute", STREAM_CUDA, &gpu->compute);
        if (status == ZD_OK)
            status = gpu_staging_init(&gpu->staging);
        if (status != ZD_OK)
            close_gpu(&gpu->head);
        device_use(before);
    } else {
        free(gpu);
    }
    if (status != ZD_OK)
        return status;
    *device_out = &gpu->head;
    return ZD_OK;
}

static enum zd_status finish(void)
{
    ZD_CUDA(cudaStreamSynchronize(device_cuda_stream(NULL)));
    return ZD_OK;
}

/* A kernel's failure shows at any later call; a query waits for nothing. */
static enum zd_status check(void)
{
    cudaError_t error = cudaStreamQuery(device_cuda_stream(NULL));
    if (error == cudaSuccess || error == cudaErrorNotReady)
        error = cudaGetLastError();
    if (error == cudaSuccess || error == cudaErrorNotReady)
        return ZD_OK;
    return device_cuda_check(error, "what was queued on the GPU");
}

static enum zd_status used_bytes(uint64_t *bytes_out)
{
    size_t free_bytes, total_bytes;
    ZD_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
    *bytes_out = total_bytes - free_bytes;
    return ZD_OK;
}

const struct device_table device_table_cuda = {
        .streams = &stream_table_cuda,
        .close = close_gpu,
        .use = use,
        .take = gpu_take,
        .give = gpu_give,
        .take_pinned = gpu_take_pinned,
        .give_pinned = gpu_give_pinned,
        .lend_staging = gpu_lend_staging,
        .clear = gpu_clear,
        .move = gpu_move,
        .read = gpu_read,
        .write = gpu_write,
        .finish = finish,
        .check = check,
        .used_bytes = used_bytes,
};
