/* launch.cpp - launches: what a GPU refuses, and the blocks of a grid. */
#include "tests/cuda/stand_in/internal.h"

#include <chrono>
#include <cstdlib>
#include <map>
#include <thread>

namespace standin
{
namespace
{
const size_t SHARED_DEFAULT = 48 << 10, SHARED_OF_SYSTEM = 1 << 10;
const unsigned BLOCK_LIMIT[3] = {1024, 1024, 64};
const unsigned GRID_LIMIT[3] = {0x7fffffff, 65535, 65535};

struct attributes {
    std::mutex mutex;
    std::map<const void *, size_t> shared_bytes;
};

cudaError_t check(const struct zd_emulate_launch &l)
{
    uint64_t threads = 1;
    for (int i = 0; i < 3; i++) {
        threads *= l.block[i];
        if (!l.grid[i] || l.grid[i] > GRID_LIMIT[i] || !l.block[i] ||
            l.block[i] > BLOCK_LIMIT[i]) {
            report("launch of %s: a grid of %u,%u,%u blocks of %u,%u,%u "
                   "threads",
                   l.name, l.grid[0], l.grid[1], l.grid[2], l.block[0],
                   l.block[1], l.block[2]);
            return cudaErrorInvalidConfiguration;
        }
    }
    if (threads > 1024) {
        report("launch of %s: %llu threads in a block", l.name,
               (unsigned long long)threads);
        return cudaErrorInvalidConfiguration;
    }
    size_t fixed = static_shared_of(l.kernel)->bytes;
    size_t limit = shared_limit(l.kernel);
    if (l.shared_bytes + fixed >
                (limit < SHARED_DEFAULT ? SHARED_DEFAULT : limit) ||
        l.shared_bytes + fixed + SHARED_OF_SYSTEM > settings().shared_bytes) {
        report("launch of %s: %zu bytes of shared memory and %zu of its own; "
               "cudaFuncSetAttribute allowed %zu",
               l.name, l.shared_bytes, fixed, limit);
        return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}

/* Engines of threads that have ended, for the next ones: stacks are dear. */
struct idle_engines {
    std::mutex mutex;
    std::vector<struct engine *> list;
};

struct own_engine {
    struct engine *engine;

    own_engine(void)
    {
        locked<struct idle_engines> idle;
        engine = idle->list.empty() ? engine_create() : idle->list.back();
        if (!idle->list.empty())
            idle->list.pop_back();
    }
    ~own_engine()
    {
        locked<struct idle_engines> idle;
        idle->list.push_back(engine);
    }
};

/* The i-th block to run: in order, from behind, or by a step that has no factor
 * in common with their number. */
uint64_t block_at(uint64_t i, uint64_t blocks, uint64_t step)
{
    if (settings().reversed)
        return blocks - 1 - i;
    return (uint64_t)((unsigned __int128)i * step % blocks);
}

uint64_t step_for(uint64_t blocks)
{
    if (!settings().permuted)
        return 1;
    uint64_t step = (settings().seed * 2654435761u + blocks / 2) % blocks;
    for (;; step++) {
        uint64_t a = step ? step : 1, b = blocks;
        while (b) {
            uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1)
            return step ? step : 1;
    }
}

} // namespace

size_t shared_limit(const void *kernel)
{
    locked<struct attributes> of;
    auto it = of->shared_bytes.find(kernel);
    return it == of->shared_bytes.end() ? SHARED_DEFAULT : it->second;
}

static cudaError_t run_all(const struct zd_emulate_launch &launch)
{
    static thread_local struct own_engine own;
    uint64_t blocks =
            (uint64_t)launch.grid[0] * launch.grid[1] * launch.grid[2];
    uint64_t step = step_for(blocks);
    cudaError_t error = cudaSuccess;
    engine_begin(own.engine, &launch);
    for (uint64_t i = 0; i < blocks && !error; i++)
        error = engine_run_block(own.engine, block_at(i, blocks, step));
    return error;
}

cudaError_t run_grid(const struct zd_emulate_launch &launch)
{
    auto begin = std::chrono::steady_clock::now();
    cudaError_t error = run_all(launch);
    if (settings().slow > 0)
        std::this_thread::sleep_for(
                (std::chrono::steady_clock::now() - begin) * settings().slow);
    return error;
}
} // namespace standin

using namespace standin;

int zd_emulate_device(cudaStream_t stream)
{
    if (!stream)
        return device();
    int at = 0;
    return cudaStreamGetDevice(stream, &at) ? device() : at;
}

cudaError_t zd_emulate_enqueue(
        const struct zd_emulate_launch *launch, cudaStream_t stream,
        bool arguments_ok)
{
    struct stream *s;
    cudaError_t error = begin_on(stream, &s);
    if (!error && !arguments_ok)
        error = cudaErrorIllegalAddress;
    if (!error)
        error = check(*launch);
    if (!error && fails_now(FAIL_LAUNCH))
        error = cudaErrorLaunchOutOfResources;
    if (error) {
        free(launch->args);
        return keep(error);
    }
    counters().launches++;
    load_kernel(launch->kernel, stream_device(s));
    bool hangs = fails_now(FAIL_HANG), breaks = fails_now(FAIL_STICKY);
    struct zd_emulate_launch copy = *launch;
    enqueue(s, [=] {
        if (hangs)
            hang();
        int at = stream_device(s);
        cudaError_t error = breaks       ? cudaErrorECCUncorrectable
                            : sticky(at) ? cudaSuccess
                                         : run_grid(copy);
        if (error)
            set_sticky(at, error);
        free(copy.args);
    });
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(
        const void *kernel, enum cudaFuncAttribute attribute, int value)
{
    TRY(begin());
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return cudaSuccess;
    if (value < 0 || (size_t)value + SHARED_OF_SYSTEM > settings().shared_bytes)
        return keep(cudaErrorInvalidValue);
    locked<struct attributes> of;
    of->shared_bytes[kernel] = (size_t)value;
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(
        struct cudaFuncAttributes *out, const void *kernel)
{
    TRY(begin());
    if (lasts(NO_CODE))
        return keep(cudaErrorNoKernelImageForDevice);
    *out = {};
    out->maxThreadsPerBlock = 1024;
    out->maxDynamicSharedSizeBytes = (int)shared_limit(kernel);
    out->sharedSizeBytes = static_shared_of(kernel)->bytes;
    return cudaSuccess;
}
