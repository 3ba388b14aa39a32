/* memory.cpp - memory of the device (the host's, under other addresses) and
 * page-locked memory.
 *
 * An allocation is mapped for itself and ends at a page that cannot be touched;
 * its address carries TAG in the 16 high bits, where no address of user space
 * has any. */
#include "tests/cuda/stand_in/internal.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <sys/mman.h>

namespace standin
{
namespace
{
const uintptr_t TAG = 0x0d5eull << 48, TAG_MASK = 0xffffull << 48;
const size_t PAGE = 4096, ALIGNMENT = 512;

struct block {
    size_t bytes;
    enum kind kind;
    int device;
    void *map;
    size_t map_bytes;
};

struct memory {
    std::mutex mutex;
    std::map<uintptr_t, struct block> blocks; /* by address as callers see it */
    std::map<int, uint64_t> device_bytes;
};

/* The block that holds this address, or ends at it; locked by the caller. */
std::map<uintptr_t, struct block>::iterator block_at(uintptr_t address)
{
    auto &blocks = only<struct memory>().blocks;
    auto it = blocks.upper_bound(address);
    if (it == blocks.begin())
        return blocks.end();
    --it;
    return address <= it->first + it->second.bytes ? it : blocks.end();
}

bool overlaps(uintptr_t address, size_t bytes)
{
    auto &blocks = only<struct memory>().blocks;
    auto it = blocks.lower_bound(address + bytes);
    if (it == blocks.begin())
        return false;
    --it;
    return it->first + it->second.bytes > address;
}
} // namespace

/* Of this process, its context included. The next three: the lock is held. */
static uint64_t used_here(int device)
{
    uint64_t bytes = only<struct memory>().device_bytes[device] +
                     settings().context_bytes;
    board_put(device, bytes);
    return bytes;
}

static bool add_bytes(int device, size_t bytes)
{
    if (used_here(device) + board_others(device) + bytes >
        settings().memory_bytes)
        return false;
    only<struct memory>().device_bytes[device] += bytes;
    counters().device_bytes += bytes;
    used_here(device);
    return true;
}

static void remove_bytes(int device, size_t bytes)
{
    only<struct memory>().device_bytes[device] -= bytes;
    counters().device_bytes -= bytes;
    used_here(device);
}

bool is_tagged(const void *address)
{
    return ((uintptr_t)address & TAG_MASK) == TAG;
}

void *tagged(const void *address)
{
    return (void *)((uintptr_t)address | TAG);
}

void *host_of(const void *address)
{
    uintptr_t a = (uintptr_t)address;
    return (void *)((a & TAG_MASK) == TAG ? a & ~TAG_MASK : a);
}

bool find(
        const void *address, size_t bytes, enum kind *kind_out, int *device_out,
        const char **why)
{
    struct unseen unseen;
    locked<struct memory> m;
    uintptr_t a = (uintptr_t)address;
    *kind_out = PAGEABLE;
    *device_out = -1;
    auto it = block_at(a);
    if (it == m->blocks.end() ||
        (it->second.kind == PINNED && a == it->first + it->second.bytes)) {
        *why = "is in no allocation of the device";
        if (is_tagged(address))
            *kind_out = DEVICE;
        else if (overlaps(a, bytes))
            *why = "reaches into page-locked memory";
        else
            return true;
        return false;
    }
    *kind_out = it->second.kind;
    *device_out = it->second.device;
    *why = "leaves its allocation";
    return a + bytes <= it->first + it->second.bytes;
}

uint64_t used_bytes(int device)
{
    locked<struct memory> m;
    return used_here(device) + board_others(device);
}

/* New memory of a device is no zeros. Only the beginning of what is large: all
 * of it would be touched. */
static void poison(void *address, size_t bytes)
{
    const size_t most = 1 << 20;
    memset(host_of(address), 0xff, bytes < most ? bytes : most);
}

/* --- allocations --------------------------------------------------------- */

static cudaError_t device_malloc(void **out, size_t bytes)
{
    int owner = device();
    size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    size_t map_bytes = (rounded + PAGE - 1) / PAGE * PAGE;
    locked<struct memory> m;
    void *map =
            mmap(nullptr, map_bytes + PAGE, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    if (!add_bytes(owner, map_bytes)) {
        munmap(map, map_bytes + PAGE);
        return cudaErrorMemoryAllocation;
    }
    mprotect(static_cast<char *>(map) + map_bytes, PAGE, PROT_NONE);
    uintptr_t address = ((uintptr_t)map + map_bytes - rounded) | TAG;
    m->blocks[address] = {bytes, DEVICE, owner, map, map_bytes};
    *out = (void *)address;
    poison(*out, rounded);
    return cudaSuccess;
}

static cudaError_t device_free(void *address)
{
    struct block block;
    {
        locked<struct memory> m;
        auto it = m->blocks.find((uintptr_t)address);
        if (it == m->blocks.end() || it->second.kind != DEVICE)
            return cudaErrorInvalidValue;
        block = it->second;
        m->blocks.erase(it);
        remove_bytes(block.device, block.map_bytes);
    }
    munmap(block.map, block.map_bytes + PAGE);
    return cudaSuccess;
}

static cudaError_t add_pinned(void *host, size_t bytes)
{
    locked<struct memory> m;
    if (overlaps((uintptr_t)host, bytes))
        return cudaErrorHostMemoryAlreadyRegistered;
    m->blocks[(uintptr_t)host] = {bytes, PINNED, -1, nullptr, 0};
    counters().pinned_bytes += bytes;
    return cudaSuccess;
}

static bool drop_pinned(void *host)
{
    locked<struct memory> m;
    auto it = m->blocks.find((uintptr_t)host);
    if (it == m->blocks.end() || it->second.kind != PINNED)
        return false;
    counters().pinned_bytes -= it->second.bytes;
    m->blocks.erase(it);
    return true;
}
} // namespace standin

using namespace standin;

void *zd_standin_host(const void *address)
{
    return host_of(address);
}

bool zd_standin_is_reachable(const void *address, size_t bytes)
{
    enum kind kind;
    int owner;
    const char *why;
    return find(address, bytes, &kind, &owner, &why) && kind != PAGEABLE;
}

bool zd_emulate_translate(void *value, size_t bytes, bool pointer, int device)
{
    unsigned char *at = static_cast<unsigned char *>(value);
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        void *word;
        memcpy(&word, at + i, 8);
        if (!word || (!pointer && !is_tagged(word)))
            continue;
        enum kind kind;
        int owner;
        const char *why;
        bool known = find(word, 0, &kind, &owner, &why);
        if (pointer && (!known || kind == PAGEABLE)) {
            report("an argument of a kernel, %p, is no memory of the device "
                   "nor "
                   "page-locked",
                   word);
            return false;
        }
        if (known && kind == DEVICE && owner != device) {
            report("an argument of a kernel, %p, is memory of another device",
                   word);
            return false;
        }
        if (known && kind == DEVICE) {
            void *host = host_of(word);
            memcpy(at + i, &host, 8);
        }
    }
    return true;
}

/* --- the runtime's functions --------------------------------------------- */

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    TRY(begin());
    if (!out)
        return keep(cudaErrorInvalidValue);
    *out = nullptr;
    if (fails_now(FAIL_MALLOC))
        return keep(cudaErrorMemoryAllocation);
    return bytes ? keep(device_malloc(out, bytes)) : cudaSuccess;
}

cudaError_t cudaFree(void *address)
{
    TRY(begin());
    if (!address)
        return cudaSuccess;
    enum kind kind;
    int owner;
    const char *why;
    find(address, 0, &kind, &owner, &why);
    if (kind == DEVICE && owner >= 0)
        finish_device(owner);
    return keep(device_free(address));
}

cudaError_t cudaHostRegister(void *host, size_t bytes, unsigned flags)
{
    TRY(begin());
    if (!host || !bytes || is_tagged(host))
        return keep(cudaErrorInvalidValue);
    if (fails_now(FAIL_PIN))
        return keep(cudaErrorMemoryAllocation);
    wait_at_random();
    return keep(add_pinned(host, bytes));
}

cudaError_t cudaHostUnregister(void *host)
{
    TRY(begin());
    for (int i = 0; i < settings().gpus; i++)
        finish_device(i);
    return drop_pinned(host) ? cudaSuccess
                             : keep(cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaMemGetInfo(size_t *free_out, size_t *total_out)
{
    TRY(begin());
    *total_out = settings().memory_bytes;
    uint64_t used = used_bytes(device()), total = settings().memory_bytes;
    *free_out = total > used ? total - used : 0;
    return cudaSuccess;
}
