/* device_cuda.c - a rank's GPU: its memory, page-locked host memory, its
 * context, and their errors. */
#include "base/device/gpu_cuda.h"
#include "base/device/host_pages.h"
#include "base/device/populate.h"
#include "base/must.h"

#include <linux/mempolicy.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* --- its memory ----------------------------------------------------------- */

static enum zd_status device_refused(size_t bytes, cudaError_t error)
{
    size_t free_bytes = 0, total_bytes = 0;
    struct device_facts facts = device_facts();
    if (error != cudaErrorMemoryAllocation)
        return device_cuda_check(error, "cudaMalloc");
    cudaGetLastError();
    cudaMemGetInfo(&free_bytes, &total_bytes);
    ZD_FAIL(ZD_ERR_MEMORY, "E1204",
            "GPU %d (%s) refused %zu bytes of device memory: %zu of %zu are "
            "free",
            facts.index, facts.name, bytes, free_bytes, total_bytes);
    return zd_fail_help("`nvidia-smi` lists who holds memory there; or lower "
                        "device.memory_limit, so that the plan asks for less");
}

static enum zd_status clear(void *device, size_t bytes)
{
    ZD_CUDA(cudaMemsetAsync(device, 0, bytes, device_cuda_stream(NULL)));
    return ZD_OK;
}

/* Wait until it is cleared: any stream may be the first to use the memory. */
static enum zd_status clear_now(void *device, size_t bytes)
{
    ZD_TRY(clear(device, bytes));
    return device_finish();
}

/* cudaFree waits for queued work, which may still use the memory. */
static void give(void *device, size_t bytes)
{
    cudaFree(device);
    cudaGetLastError();
}

static enum zd_status take(size_t bytes, void **device_out)
{
    void *device;
    size_t grains = (bytes + DEVICE_GRAIN - 1) / DEVICE_GRAIN;
    cudaError_t error = cudaMalloc(&device, grains * DEVICE_GRAIN);
    if (error != cudaSuccess)
        return device_refused(bytes, error);
    enum zd_status status = clear_now(device, bytes);
    if (status != ZD_OK) {
        give(device, bytes);
        return status;
    }
    *device_out = device;
    return ZD_OK;
}

/* --- memory of the host --------------------------------------------------- */

/* A preference only: pages come from this node while it has some. libnuma is
 * not worth a dependency for one call. */
static void prefer_node(void *host, size_t bytes, int node)
{
    unsigned long mask[16] = {0};
    size_t bits = 8 * sizeof mask[0];
    if (node < 0 || (size_t)node >= sizeof mask * 8)
        return;
    mask[(size_t)node / bits] = 1UL << ((size_t)node % bits);
    syscall(SYS_mbind, host, bytes, MPOL_PREFERRED, mask, sizeof mask * 8, 0);
}

/* A refusal to lock these pages; any other error is an earlier failure of the
 * GPU. */
static bool is_refusal(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ||
           error == cudaErrorOperatingSystem ||
           error == cudaErrorHostMemoryAlreadyRegistered ||
           error == cudaErrorNotSupported || error == cudaErrorInvalidValue;
}

static enum zd_status page_lock(void *host, size_t bytes)
{
    cudaError_t error = cudaHostRegister(host, bytes, cudaHostRegisterPortable);
    if (error == cudaSuccess || !is_refusal(error))
        return device_cuda_check(error, "cudaHostRegister");
    cudaGetLastError();
    ZD_FAIL(ZD_ERR_MEMORY, "E1205",
            "the driver refused to page-lock %zu bytes of host memory: "
            "%s (%s)",
            bytes, cudaGetErrorString(error), cudaGetErrorName(error));
    return zd_fail_help(
            "the memory must be there in full: see `free -m`, the limit of a "
            "container or a batch job, and `ulimit -l`");
}

static enum zd_status take_pinned(size_t bytes, void **host_out)
{
    void *host;
    ZD_TRY(host_pages_take(bytes, "pinned", &host));
    prefer_node(host, bytes, device_facts().numa_node);
    populate(host, bytes);
    enum zd_status status = page_lock(host, bytes);
    if (status != ZD_OK) {
        munmap(host, bytes);
        return status;
    }
    *host_out = host;
    return ZD_OK;
}

static void give_pinned(void *host, size_t bytes)
{
    cudaHostUnregister(host);
    cudaGetLastError();
    munmap(host, bytes);
}

/* --- copies --------------------------------------------------------------- */

static enum zd_status move(
        void *to, const void *from, const struct device_rows *rows)
{
    cudaStream_t compute = device_cuda_stream(NULL);
    if (rows->count == 1) /* of any size */
        ZD_CUDA(cudaMemcpyAsync(
                to, from, rows->bytes, cudaMemcpyDeviceToDevice, compute));
    else
        ZD_CUDA(cudaMemcpy2DAsync(
                to, rows->to_stride, from, rows->from_stride, rows->bytes,
                rows->count, cudaMemcpyDeviceToDevice, compute));
    return ZD_OK;
}

static enum zd_status read_back(void *host, const void *device, size_t bytes)
{
    cudaStream_t compute = device_cuda_stream(NULL);
    ZD_CUDA(cudaMemcpyAsync(
            host, device, bytes, cudaMemcpyDeviceToHost, compute));
    ZD_CUDA(cudaStreamSynchronize(compute));
    return ZD_OK;
}

static void staging_fini(struct gpu_staging *staging)
{
    for (int i = 0; i < STAGING_SLOTS; i++)
        if (staging->sent[i])
            cudaEventDestroy(staging->sent[i]);
    if (staging->slots && !staging->is_lent)
        give_pinned(staging->slots, DEVICE_STAGING_BYTES);
    pthread_mutex_destroy(&staging->lock);
}

static enum zd_status staging_init(struct gpu_staging *staging)
{
    pthread_mutex_init(&staging->lock, NULL);
    for (int i = 0; i < STAGING_SLOTS; i++)
        ZD_CUDA(cudaEventCreateWithFlags(
                &staging->sent[i],
                cudaEventDisableTiming | cudaEventBlockingSync));
    return ZD_OK;
}

/* Wait for the slots before they are replaced. NULL, at the end of a run,
 * ignores errors: they have already been reported. */
static enum zd_status lend_staging(void *pinned)
{
    struct gpu_staging *staging = &gpu_current()->staging;
    pthread_mutex_lock(&staging->lock);
    cudaError_t error = cudaStreamSynchronize(device_cuda_stream(NULL));
    enum zd_status status =
            pinned ? device_cuda_check(error, "cudaStreamSynchronize") : ZD_OK;
    cudaGetLastError();
    if (staging->slots && !staging->is_lent)
        give_pinned(staging->slots, DEVICE_STAGING_BYTES);
    staging->slots = pinned;
    staging->is_lent = pinned != NULL;
    pthread_mutex_unlock(&staging->lock);
    return status;
}

/* The caller holds the lock. */
static enum zd_status need_slots(struct gpu_staging *staging)
{
    void *slots;
    if (staging->slots)
        return ZD_OK;
    ZD_TRY(take_pinned(DEVICE_STAGING_BYTES, &slots));
    staging->slots = slots;
    return ZD_OK;
}

/* The next slot, once the GPU has read what was in it. */
static enum zd_status send_piece(
        struct gpu_staging *staging, char *device, const char *host,
        size_t bytes)
{
    int slot = staging->next;
    char *piece = staging->slots + (size_t)slot * STAGING_BYTES;
    cudaStream_t compute = device_cuda_stream(NULL);
    ZD_CUDA(cudaEventSynchronize(staging->sent[slot]));
    memcpy(piece, host, bytes);
    ZD_CUDA(cudaMemcpyAsync(
            device, piece, bytes, cudaMemcpyHostToDevice, compute));
    ZD_CUDA(cudaEventRecord(staging->sent[slot], compute));
    staging->next = (slot + 1) % STAGING_SLOTS;
    return ZD_OK;
}

static enum zd_status write_to(void *device, const void *host, size_t bytes)
{
    struct gpu_staging *staging = &gpu_current()->staging;
    pthread_mutex_lock(&staging->lock);
    enum zd_status status = need_slots(staging);
    for (size_t at = 0; status == ZD_OK && at < bytes; at += STAGING_BYTES) {
        size_t rest = bytes - at;
        status = send_piece(
                staging, (char *)device + at, (const char *)host + at,
                rest < STAGING_BYTES ? rest : STAGING_BYTES);
    }
    pthread_mutex_unlock(&staging->lock);
    return status;
}

/* --- its context ---------------------------------------------------------- */

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
    staging_fini(&gpu->staging);
    free(gpu); /* the context belongs to the process, and other ranks may use it
                */
}

/* Block in waits: spinning would take a core from the optimizer's workers. */
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

static enum zd_status open_gpu(struct gpu *gpu, int index)
{
    struct device_facts *facts = &gpu->head.facts;
    size_t free_bytes = 0, total_bytes = 0;
    const char *call;
    ZD_TRY(gpu_read_facts(index, facts));
    cudaError_t error = open_context(index, &call);
    if (error == cudaSuccess) {
        call = "cudaMemGetInfo";
        error = cudaMemGetInfo(&free_bytes, &total_bytes);
    }
    facts->free_bytes = free_bytes;
    facts->total_bytes = total_bytes;
    return error == cudaSuccess ? ZD_OK : gpu_refused(facts, error, call);
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
        ZD_THEN(status, staging_init(&gpu->staging));
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

/* A kernel's failure shows at any later call; a query does not wait. */
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
        .take = take,
        .give = give,
        .take_pinned = take_pinned,
        .give_pinned = give_pinned,
        .lend_staging = lend_staging,
        .clear = clear,
        .move = move,
        .read = read_back,
        .write = write_to,
        .finish = finish,
        .check = check,
        .used_bytes = used_bytes,
};
