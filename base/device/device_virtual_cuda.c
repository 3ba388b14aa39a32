/* device_virtual_cuda.c - device memory by the driver's virtual memory calls.
 *
 * Unlike memory of cudaMalloc, it can be registered by NCCL and shared with
 * other processes and the network. The driver's functions come through the
 * runtime, so that the program is not linked to the driver. Memory comes in the
 * driver's grains (2 MiB).
 *
 * Source: CUDA driver API, section "Virtual Memory Management". */
#include "base/device/gpu_cuda.h"

#include <cuda.h>
#include <stdlib.h>

struct gpu_block {
    struct gpu_block *next;
    CUdeviceptr base;
    size_t bytes; /* whole grains */
    bool is_mapped;
};

static void *function(const char *name)
{
    void *found = NULL;
    enum cudaDriverEntryPointQueryResult result;
    cudaError_t error = cudaGetDriverEntryPointByVersion(
            name, &found, 12000, cudaEnableDefault, &result);
    cudaGetLastError();
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? found
                                                                         : NULL;
}

/* Memory that NCCL may register and share with other processes and with the
 * network where the system can do that; else plain memory. */
static CUmemAllocationProp properties_of(const struct gpu *gpu)
{
    return (CUmemAllocationProp){
            .type = CU_MEM_ALLOCATION_TYPE_PINNED,
            .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            .location = {
                    .type = CU_MEM_LOCATION_TYPE_DEVICE,
                    .id = gpu->head.facts.index}};
}

static void find_functions(struct gpu_virtual *v)
{
    v->reserve = function("cuMemAddressReserve");
    v->unreserve = function("cuMemAddressFree");
    v->create = function("cuMemCreate");
    v->release = function("cuMemRelease");
    v->map = function("cuMemMap");
    v->unmap = function("cuMemUnmap");
    v->set_access = function("cuMemSetAccess");
    v->granularity = function("cuMemGetAllocationGranularity");
}

void gpu_virtual_init(struct gpu *gpu)
{
    struct gpu_virtual *v = &gpu->virtual;
    CUmemAllocationProp properties = properties_of(gpu);
    pthread_mutex_init(&v->lock, NULL);
    find_functions(v);
    if (!v->reserve || !v->unreserve || !v->create || !v->release || !v->map ||
        !v->unmap || !v->set_access || !v->granularity)
        return;
    if (v->granularity(
                &v->grain, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) !=
        CUDA_SUCCESS)
        v->grain = 0;
}

void gpu_virtual_fini(struct gpu *gpu)
{
    pthread_mutex_destroy(&gpu->virtual.lock);
}

static bool is_refusal(CUresult result)
{
    return result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY;
}

/* Memory that the network and other processes can reach; without the network
 * where the GPU cannot (GeForce), alone where the system gives no handles
 * (containers). */
static CUresult create(
        const struct gpu_virtual *v, size_t bytes,
        CUmemAllocationProp properties, CUmemGenericAllocationHandle *handle)
{
    properties.allocFlags.gpuDirectRDMACapable = 1;
    CUresult result = v->create(handle, bytes, &properties, 0);
    properties.allocFlags.gpuDirectRDMACapable = 0;
    if (is_refusal(result))
        result = v->create(handle, bytes, &properties, 0);
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    if (is_refusal(result))
        result = v->create(handle, bytes, &properties, 0);
    return result;
}

/* Physical memory for all of the block. It belongs to the mapping alone, and
 * goes when that goes. */
static CUresult map(const struct gpu *gpu, struct gpu_block *block)
{
    const struct gpu_virtual *v = &gpu->virtual;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties = properties_of(gpu);
    CUmemAccessDesc access = {
            .location = properties.location,
            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = create(v, block->bytes, properties, &handle);
    if (result != CUDA_SUCCESS)
        return result;
    result = v->map(block->base, block->bytes, 0, handle, 0);
    v->release(handle);
    if (result != CUDA_SUCCESS)
        return result;
    result = v->set_access(block->base, block->bytes, &access, 1);
    if (result != CUDA_SUCCESS)
        v->unmap(block->base, block->bytes);
    block->is_mapped = result == CUDA_SUCCESS;
    return result;
}

static void free_block(const struct gpu *gpu, struct gpu_block *block)
{
    const struct gpu_virtual *v = &gpu->virtual;
    if (block->is_mapped)
        v->unmap(block->base, block->bytes);
    if (block->base)
        v->unreserve(block->base, block->bytes);
    free(block);
}

/* Only what the GPU has too little of is a refusal; the rest says that this
 * driver does not do it, or not here. */
static cudaError_t as_runtime(CUresult result)
{
    if (result == CUDA_SUCCESS)
        return cudaSuccess;
    return result == CUDA_ERROR_OUT_OF_MEMORY ? cudaErrorMemoryAllocation
                                              : cudaErrorNotSupported;
}

cudaError_t gpu_virtual_take(struct gpu *gpu, size_t bytes, void **base_out)
{
    struct gpu_virtual *v = &gpu->virtual;
    size_t grains = v->grain ? (bytes + v->grain - 1) / v->grain : 0;
    struct gpu_block *block = grains ? calloc(1, sizeof *block) : NULL;
    if (!block)
        return cudaErrorNotSupported;
    block->bytes = grains * v->grain;
    CUresult result = v->reserve(&block->base, block->bytes, 0, 0, 0);
    if (result == CUDA_SUCCESS)
        result = map(gpu, block);
    if (result != CUDA_SUCCESS) {
        free_block(gpu, block);
        return as_runtime(result);
    }
    pthread_mutex_lock(&v->lock);
    block->next = v->blocks;
    v->blocks = block;
    pthread_mutex_unlock(&v->lock);
    *base_out = (void *)block->base;
    return cudaSuccess;
}

/* The link to the block that begins there; NULL: not our memory */
static struct gpu_block **link_to(struct gpu *gpu, void *base)
{
    struct gpu_block **link = &gpu->virtual.blocks;
    while (*link && (*link)->base != (CUdeviceptr)base)
        link = &(*link)->next;
    return *link ? link : NULL;
}

bool gpu_virtual_give(struct gpu *gpu, void *base)
{
    struct gpu_virtual *v = &gpu->virtual;
    pthread_mutex_lock(&v->lock);
    struct gpu_block **link = link_to(gpu, base);
    struct gpu_block *block = link ? *link : NULL;
    if (block)
        *link = block->next;
    pthread_mutex_unlock(&v->lock);
    if (block)
        free_block(gpu, block);
    return block != NULL;
}
