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

struct range { /* reserved */
    size_t bytes;
    struct allocation *allocation; /* mapped; NULL: none is */
    bool is_accessible;
};

struct virtual_memory {
    std::mutex mutex;
    std::map<CUdeviceptr, struct range> ranges;

    /* The range of exactly these bytes; NULL: there is none. */
    struct range *find(CUdeviceptr base, size_t bytes)
    {
        auto it = ranges.find(base);
        return it == ranges.end() || it->second.bytes != bytes ? nullptr
                                                               : &it->second;
    }
};

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
    locked<struct virtual_memory> v;
    *out = (CUdeviceptr)tagged(range);
    v->ranges[*out] = {bytes, nullptr, false};
    return CUDA_SUCCESS;
}

CUresult unreserve(CUdeviceptr base, size_t bytes)
{
    locked<struct virtual_memory> v;
    struct range *range = v->find(base, bytes);
    if (!range)
        return wrong("a range is freed that was not reserved");
    if (range->allocation)
        return wrong("a range is freed that memory is mapped to");
    munmap(host_of((void *)base), bytes + GRAIN);
    v->ranges.erase(base);
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
    if ((properties->allocFlags.gpuDirectRDMACapable && lasts(NO_RDMA)) ||
        (is_shareable && lasts(NO_HANDLES)))
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
    locked<struct virtual_memory> v;
    a->is_released = true;
    settle(a);
    return CUDA_SUCCESS;
}

CUresult map(
        CUdeviceptr base, size_t bytes, size_t offset,
        CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    struct allocation *a = (struct allocation *)handle;
    locked<struct virtual_memory> v;
    struct range *range = v->find(base, bytes);
    if (!range || a->bytes != bytes || offset)
        return wrong("a mapping that is not of a whole range");
    if (range->allocation)
        return wrong("a mapping to a range that has one");
    a->is_mapped = true;
    range->allocation = a;
    return CUDA_SUCCESS;
}

CUresult set_access(
        CUdeviceptr base, size_t bytes, const CUmemAccessDesc *access,
        size_t count)
{
    locked<struct virtual_memory> v;
    struct range *range = v->find(base, bytes);
    if (!range || !range->allocation)
        return wrong("access to what is not mapped");
    if (mprotect(host_of((void *)base), bytes, PROT_READ | PROT_WRITE) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range->is_accessible = true;
    add_mapped((void *)base, bytes, range->allocation->device);
    return CUDA_SUCCESS;
}

CUresult unmap(CUdeviceptr base, size_t bytes)
{
    locked<struct virtual_memory> v;
    struct range *range = v->find(base, bytes);
    if (!range || !range->allocation)
        return wrong("what is not mapped is unmapped");
    struct allocation *a = range->allocation;
    if (range->is_accessible)
        drop_mapped((void *)base);
    /* its pages go, and a late access is a fault */
    mmap(host_of((void *)base), bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    *range = {bytes, nullptr, false};
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
    TRY(start_error());
    *out = nullptr;
    *result_out = cudaDriverEntryPointSymbolNotFound;
    for (const struct entry &entry : entries)
        if (strcmp(entry.name, name) == 0 && !lasts(NO_VIRTUAL)) {
            *out = entry.function;
            *result_out = cudaDriverEntryPointSuccess;
        }
    return cudaSuccess;
}
