/* virtual.cpp - the driver's virtual memory: ranges of addresses, and memory
 * that is put behind them and taken away. Where none is, an access by the
 * host's threads that play the device is a fault, and a copy is refused. */
#include "tests/cuda/stand_in/internal.h"

#include <cstring>
#include <cuda.h>
#include <map>
#include <sys/mman.h>

namespace standin
{
namespace
{
const size_t GRAIN = 2 << 20;

struct allocation { /* physical */
    size_t bytes;
    int device;
    bool is_mapped, is_released;
};

struct mapping {
    size_t bytes;
    struct allocation *allocation;
    bool is_accessible;
};

struct virtual_memory {
    std::mutex mutex;
    std::map<CUdeviceptr, size_t> ranges; /* reserved */
    std::map<CUdeviceptr, struct mapping> mappings;
};

struct virtual_memory &all(void)
{
    static struct virtual_memory *const one = new struct virtual_memory;
    return *one;
}

CUresult wrong(const char *what)
{
    report("%s", what);
    return CUDA_ERROR_INVALID_VALUE;
}

void settle(struct allocation *a)
{
    if (a->is_mapped || !a->is_released)
        return;
    discharge(a->device, a->bytes);
    delete a;
}

CUresult granularity(
        size_t *out, const CUmemAllocationProp *properties,
        CUmemAllocationGranularity_flags option)
{
    *out = GRAIN;
    return CUDA_SUCCESS;
}

CUresult reserve(
        CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr wish,
        unsigned long long flags)
{
    if (!bytes || bytes % GRAIN)
        return wrong("a reservation that is not of whole grains");
    void *range =
            mmap(nullptr, bytes + GRAIN, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct virtual_memory &v = all();
    std::lock_guard<std::mutex> lock(v.mutex);
    *out = (CUdeviceptr)tagged(range);
    v.ranges[*out] = bytes;
    return CUDA_SUCCESS;
}

CUresult unreserve(CUdeviceptr base, size_t bytes)
{
    struct virtual_memory &v = all();
    std::lock_guard<std::mutex> lock(v.mutex);
    auto it = v.ranges.find(base);
    if (it == v.ranges.end() || it->second != bytes)
        return wrong("a range is freed that was not reserved");
    if (v.mappings.count(base))
        return wrong("a range is freed that memory is mapped to");
    munmap(host_of((void *)base), bytes + GRAIN);
    v.ranges.erase(it);
    return CUDA_SUCCESS;
}

CUresult create(
        CUmemGenericAllocationHandle *out, size_t bytes,
        const CUmemAllocationProp *properties, unsigned long long flags)
{
    if (!bytes || bytes % GRAIN)
        return wrong("memory that is not of whole grains");
    int device = properties->location.id;
    bool is_shareable = properties->requestedHandleTypes != 0;
    if ((properties->allocFlags.gpuDirectRDMACapable && has_no_rdma()) ||
        (is_shareable && has_no_handles()))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (fails_now(FAIL_MALLOC) || !charge(device, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct allocation *made = new allocation();
    made->bytes = bytes;
    made->device = device;
    *out = (CUmemGenericAllocationHandle)made;
    counters().shareable += is_shareable;
    return CUDA_SUCCESS;
}

CUresult release(CUmemGenericAllocationHandle handle)
{
    struct allocation *a = (struct allocation *)handle;
    struct virtual_memory &v = all();
    std::lock_guard<std::mutex> lock(v.mutex);
    a->is_released = true;
    settle(a);
    return CUDA_SUCCESS;
}

CUresult map(
        CUdeviceptr base, size_t bytes, size_t offset,
        CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    struct allocation *a = (struct allocation *)handle;
    struct virtual_memory &v = all();
    std::lock_guard<std::mutex> lock(v.mutex);
    auto it = v.ranges.find(base);
    if (it == v.ranges.end() || it->second != bytes || a->bytes != bytes ||
        offset)
        return wrong("a mapping that is not of a whole range");
    if (v.mappings.count(base))
        return wrong("a mapping to a range that has one");
    a->is_mapped = true;
    v.mappings[base] = {bytes, a, false};
    return CUDA_SUCCESS;
}

CUresult set_access(
        CUdeviceptr base, size_t bytes, const CUmemAccessDesc *access,
        size_t count)
{
    struct virtual_memory &v = all();
    std::lock_guard<std::mutex> lock(v.mutex);
    auto it = v.mappings.find(base);
    if (it == v.mappings.end() || it->second.bytes != bytes)
        return wrong("access to what is not mapped");
    if (mprotect(host_of((void *)base), bytes, PROT_READ | PROT_WRITE) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    it->second.is_accessible = true;
    memset(host_of((void *)base), 0x5a, 4096); /* nobody promised zeros */
    add_mapped((void *)base, bytes, it->second.allocation->device);
    return CUDA_SUCCESS;
}

CUresult unmap(CUdeviceptr base, size_t bytes)
{
    struct virtual_memory &v = all();
    std::lock_guard<std::mutex> lock(v.mutex);
    auto it = v.mappings.find(base);
    if (it == v.mappings.end() || it->second.bytes != bytes)
        return wrong("what is not mapped is unmapped");
    struct allocation *a = it->second.allocation;
    if (it->second.is_accessible)
        drop_mapped((void *)base);
    /* its pages go, and a late access is a fault */
    mmap(host_of((void *)base), bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    v.mappings.erase(it);
    a->is_mapped = false;
    settle(a);
    return CUDA_SUCCESS;
}

struct entry {
    const char *name;
    void *function;
};

const struct entry entries[] = {
        {"cuMemGetAllocationGranularity", (void *)granularity},
        {"cuMemAddressReserve", (void *)reserve},
        {"cuMemAddressFree", (void *)unreserve},
        {"cuMemCreate", (void *)create},
        {"cuMemRelease", (void *)release},
        {"cuMemMap", (void *)map},
        {"cuMemSetAccess", (void *)set_access},
        {"cuMemUnmap", (void *)unmap},
};
} // namespace
} // namespace standin

using namespace standin;

cudaError_t cudaGetDriverEntryPointByVersion(
        const char *name, void **out, unsigned version,
        unsigned long long flags,
        enum cudaDriverEntryPointQueryResult *result_out)
{
    cudaError_t error = start_error();
    if (error)
        return keep(error);
    *out = nullptr;
    *result_out = cudaDriverEntryPointSymbolNotFound;
    for (const struct entry &entry : entries)
        if (strcmp(entry.name, name) == 0 && !has_no_virtual()) {
            *out = entry.function;
            *result_out = cudaDriverEntryPointSuccess;
        }
    return cudaSuccess;
}
