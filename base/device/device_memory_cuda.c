/* device_memory_cuda.c - memory of the thread's GPU, and memory of the host
 * that it can reach. */
#include "base/device/gpu_cuda.h"
#include "base/device/host_pages.h"
#include "base/device/populate.h"

#include <linux/mempolicy.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

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

enum zd_status gpu_clear(void *device, size_t bytes)
{
    ZD_CUDA(cudaMemsetAsync(device, 0, bytes, device_cuda_stream(NULL)));
    return ZD_OK;
}

/* Cleared, and so before any stream: others may be the first to use it. */
static enum zd_status clear_now(void *device, size_t bytes)
{
    ZD_TRY(gpu_clear(device, bytes));
    return device_finish();
}

enum zd_status gpu_take(size_t bytes, void **device_out)
{
    void *device;
    size_t grains = (bytes + DEVICE_GRAIN - 1) / DEVICE_GRAIN;
    cudaError_t error = cudaMalloc(&device, grains * DEVICE_GRAIN);
    if (error != cudaSuccess)
        return device_refused(bytes, error);
    enum zd_status status = clear_now(device, bytes);
    if (status != ZD_OK) {
        gpu_give(device, bytes);
        return status;
    }
    *device_out = device;
    return ZD_OK;
}

/* cudaFree waits for queued work, which may still use the memory. */
void gpu_give(void *device, size_t bytes)
{
    cudaFree(device);
    cudaGetLastError();
}

/* --- memory of the host --------------------------------------------------- */

/* A wish: pages come from the node while it has some. libnuma is not worth a
 * dependency for one call. */
static void prefer_node(void *host, size_t bytes, int node)
{
    unsigned long mask[16] = {0};
    size_t bits = 8 * sizeof mask[0];
    if (node < 0 || (size_t)node >= sizeof mask * 8)
        return;
    mask[(size_t)node / bits] = 1UL << ((size_t)node % bits);
    syscall(SYS_mbind, host, bytes, MPOL_PREFERRED, mask, sizeof mask * 8, 0);
}

/* Of these pages; anything else is a failure of the GPU from before. */
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

enum zd_status gpu_take_pinned(size_t bytes, void **host_out)
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

void gpu_give_pinned(void *host, size_t bytes)
{
    cudaHostUnregister(host);
    cudaGetLastError();
    munmap(host, bytes);
}

/* --- copies --------------------------------------------------------------- */

enum zd_status gpu_move(
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

enum zd_status gpu_read(void *host, const void *device, size_t bytes)
{
    cudaStream_t compute = device_cuda_stream(NULL);
    ZD_CUDA(cudaMemcpyAsync(
            host, device, bytes, cudaMemcpyDeviceToHost, compute));
    ZD_CUDA(cudaStreamSynchronize(compute));
    return ZD_OK;
}

void gpu_staging_fini(struct gpu_staging *staging)
{
    for (int i = 0; i < STAGING_SLOTS; i++)
        if (staging->sent[i])
            cudaEventDestroy(staging->sent[i]);
    if (staging->slots && !staging->is_lent)
        gpu_give_pinned(staging->slots, DEVICE_STAGING_BYTES);
    pthread_mutex_destroy(&staging->lock);
}

enum zd_status gpu_staging_init(struct gpu_staging *staging)
{
    pthread_mutex_init(&staging->lock, NULL);
    for (int i = 0; i < STAGING_SLOTS; i++)
        ZD_CUDA(cudaEventCreateWithFlags(
                &staging->sent[i],
                cudaEventDisableTiming | cudaEventBlockingSync));
    return ZD_OK;
}

/* Nothing passes through the slots when others take their place. At the end of
 * a run what went wrong before has been told. */
enum zd_status gpu_lend_staging(void *pinned)
{
    struct gpu_staging *staging = &gpu_current()->staging;
    pthread_mutex_lock(&staging->lock);
    cudaError_t error = cudaStreamSynchronize(device_cuda_stream(NULL));
    enum zd_status status =
            pinned ? device_cuda_check(error, "cudaStreamSynchronize") : ZD_OK;
    cudaGetLastError();
    if (staging->slots && !staging->is_lent)
        gpu_give_pinned(staging->slots, DEVICE_STAGING_BYTES);
    staging->slots = pinned;
    staging->is_lent = pinned != NULL;
    pthread_mutex_unlock(&staging->lock);
    return status;
}

/* The lock is held. */
static enum zd_status need_slots(struct gpu_staging *staging)
{
    void *slots;
    if (staging->slots)
        return ZD_OK;
    ZD_TRY(gpu_take_pinned(DEVICE_STAGING_BYTES, &slots));
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

enum zd_status gpu_write(void *device, const void *host, size_t bytes)
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
