/* races.cpp - races of the threads of a block, in shared and in global memory.
 *
 * Kernels that are compiled for the thread sanitizer call these functions at
 * every access to memory; the sanitizer itself is not there. Each byte has its
 * last write and its last reads. Two accesses, one of them a write, race where
 * nothing orders them:
 *
 *     threads of two warps      no barrier of the block between them
 *     lanes of one warp         no such barrier and no __syncwarp
 *
 * Which of them came first here does not matter, so a race is found in any
 * order of warps. What a shuffle orders on a GPU by chance is no order. Two
 * atomic operations do not race. Blocks are not compared with each other. */
#include "tests/cuda/stand_in/engine.h"

#include <cstring>
#include <map>
#include <mutex>

using namespace standin;

namespace
{
struct access {
    uint32_t time; /* the engine's clock; 0: never */
    uint16_t thread;
    bool is_atomic;
};

/* Of a byte: the last write, the last read, and the last of another thread. */
struct cell {
    struct access write, read, other;
};

enum { GRANULE = 8, GRANULES = 1 << 17 };

/* What was last touched of the addresses that share a place. Shared memory is
 * in one piece; what else takes its place is forgotten, not mistaken. */
struct shadow {
    struct {
        uintptr_t granule;
        struct cell cells[GRANULE];
    } places[GRANULES];
};

/* Times are an engine's own. Engines go from thread to thread. */
struct shadow *shadow_of(struct engine *e)
{
    static std::mutex mutex;
    static std::map<struct engine *, struct shadow *> all;
    static thread_local struct engine *engine;
    static thread_local struct shadow *shadow;
    if (engine == e)
        return shadow;
    std::lock_guard<std::mutex> lock(mutex);
    struct shadow *&found = all[e];
    if (!found)
        found = new struct shadow();
    engine = e;
    return shadow = found;
}

struct cell &cell_of(struct shadow *shadow, uintptr_t address)
{
    uintptr_t granule = address / GRANULE;
    auto &place = shadow->places[granule % GRANULES];
    if (place.granule != granule) {
        memset(&place, 0, sizeof place);
        place.granule = granule;
    }
    return place.cells[address % GRANULE];
}

bool is_ordered(
        const struct engine *e, const struct access &before,
        const struct access &now)
{
    return before.time < e->barrier_at || before.thread == now.thread ||
           (before.is_atomic && now.is_atomic) ||
           (before.thread / WARP == now.thread / WARP &&
            before.time < e->warp[now.thread / WARP].sync_at);
}

void expect_order(
        struct engine *e, const struct access &before, const struct access &now,
        const char *how)
{
    if (__builtin_expect(!is_ordered(e, before, now), 0))
        zd_emulate_fail(
                "races.cpp", __LINE__,
                "a race: %s thread %u, after the last barrier", how,
                before.thread);
}

void note(
        const void *address, size_t bytes, bool writes, bool is_atomic = false)
{
    struct engine *e = here;
    if (!e || !e->running || e->running == &e->main)
        return;
    uintptr_t first = (uintptr_t)address;
    if (first - (uintptr_t)e->running->stack < e->running->stack_bytes)
        return;
    struct shadow *shadow = shadow_of(e);
    struct access now = {e->clock, (uint16_t)e->current, is_atomic};
    for (size_t i = 0; i < bytes; i++) {
        struct cell &cell = cell_of(shadow, first + i);
        expect_order(
                e, cell.write, now,
                writes ? "writes what was written by"
                       : "reads what was written by");
        if (writes) {
            expect_order(e, cell.read, now, "writes what was read by");
            expect_order(e, cell.other, now, "writes what was read by");
            /* its own write before is still to be ordered */
            bool is_hidden = cell.write.time == now.time &&
                             cell.write.thread == now.thread &&
                             !cell.write.is_atomic;
            cell.write = now;
            cell.write.is_atomic = is_atomic && !is_hidden;
        } else {
            if (cell.read.thread != now.thread)
                cell.other = cell.read;
            cell.read = now;
        }
    }
}
} // namespace

extern "C" {
void zd_race_write(const void *address, size_t bytes)
{
    note(address, bytes, true);
}

void __tsan_init(void)
{
}
void __tsan_func_entry(void *)
{
}
void __tsan_func_exit(void)
{
}
void __tsan_vptr_update(void **, void *)
{
}
void __tsan_read_range(void *address, unsigned long bytes)
{
    note(address, bytes, false);
}
void __tsan_write_range(void *address, unsigned long bytes)
{
    note(address, bytes, true);
}

#define ACCESS(bytes)                                                          \
    void __tsan_read##bytes(void *address)                                     \
    {                                                                          \
        note(address, bytes, false);                                           \
    }                                                                          \
    void __tsan_write##bytes(void *address)                                    \
    {                                                                          \
        note(address, bytes, true);                                            \
    }                                                                          \
    void __tsan_unaligned_read##bytes(void *address)                           \
    {                                                                          \
        note(address, bytes, false);                                           \
    }                                                                          \
    void __tsan_unaligned_write##bytes(void *address)                          \
    {                                                                          \
        note(address, bytes, true);                                            \
    }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

#define ATOMIC(bits, type)                                                     \
    type __tsan_atomic##bits##_load(const volatile type *at, int)              \
    {                                                                          \
        return __atomic_load_n(at, __ATOMIC_SEQ_CST);                          \
    }                                                                          \
    int __tsan_atomic##bits##_compare_exchange_strong(                         \
            volatile type *at, type *seen, type x, int, int)                   \
    {                                                                          \
        note((const void *)at, sizeof *at, true, true);                        \
        return __atomic_compare_exchange_n(                                    \
                at, seen, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);       \
    }                                                                          \
    int __tsan_atomic##bits##_compare_exchange_weak(                           \
            volatile type *at, type *seen, type x, int order, int otherwise)   \
    {                                                                          \
        return __tsan_atomic##bits##_compare_exchange_strong(                  \
                at, seen, x, order, otherwise);                                \
    }
ATOMIC(8, unsigned char)
ATOMIC(16, unsigned short)
ATOMIC(32, unsigned)
ATOMIC(64, unsigned long)
void __tsan_atomic_thread_fence(int)
{
}
}
