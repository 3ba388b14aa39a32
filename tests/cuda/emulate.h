/* emulate.h - CUDA C++ for the compiler of the CPU: what nvcc knows and g++
 * does not, so that the .cu of kernels can be compiled as C++17 and run without
 * a GPU.
 *
 * A grid is a loop over blocks, the threads of a block are fibres of one thread
 * of the host (stand_in/block.cpp). The wrapper of the build puts this file in
 * front of a .cu; nothing else includes it.
 *
 * ZD_LAUNCH (kernels/cuda/cuda.cuh) calls zd_emulate_launch, which queues a run
 * on a stream of the stand-in for the CUDA runtime. Device addresses in the
 * arguments, also in structs passed by value, become addresses of the host;
 * addresses kept in device memory do not.
 *
 * What is checked: barriers reached by some threads only or from different
 * lines, lanes missing from a mask, shuffles from a lane outside the mask,
 * misaligned vector accesses by the load and store intrinsics, impossible
 * launches, pointer arguments that are no memory of the device. Dynamic shared
 * memory is NaN before each block and ends at a page that cannot be touched. */
#pragma once

#ifndef ZD_EMULATE
#define ZD_EMULATE 1
#endif

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <math.h>
#include <new>
#include <tuple>
#include <type_traits>

#include <cuda_runtime.h>

#include "tests/cuda/stand_in/stand_in.h"

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __launch_bounds__
#undef __forceinline__
#define __global__
#define __device__
#define __host__
#define __shared__ static thread_local
#define __constant__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))

/* --- where a thread is ---------------------------------------------------- */

#define threadIdx zd_emulate_thread
#define blockIdx  zd_emulate_block
#define blockDim  zd_emulate_block_dim
#define gridDim   zd_emulate_grid_dim

#define ZD_SHARED(type, name)                                                  \
    type *const name = reinterpret_cast<type *>(zd_emulate_shared)

/* --- launches ------------------------------------------------------------- */

template <typename... P> struct zd_emulate_packed {
    void (*kernel)(P...);
    std::tuple<P...> args;

    static void run(const void *self)
    {
        const auto *packed = static_cast<const zd_emulate_packed *>(self);
        std::apply(packed->kernel, packed->args);
    }
};

/* gcc 12 loses count behind an array of structs, and then clears members: a
 * type for which that is so does not have what lies behind it cleared. */
template <typename T> inline bool zd_emulate_padding_is_known(void)
{
    struct probe {
        T value;
        char last;
        alignas(8) char next;
    };
    alignas(probe) unsigned char bytes[sizeof(probe)];
    memset(bytes, 0xff, sizeof bytes);
    __builtin_clear_padding(reinterpret_cast<probe *>(bytes));
    return bytes[offsetof(probe, last) + 1] == 0;
}

template <typename T> inline bool zd_emulate_argument(T *value, int device)
{
    static_assert(
            std::is_trivially_copyable<T>::value,
            "a kernel's argument is copied byte by byte");
    /* What lies between members is left from what was there before: an int
     * with half of an old address behind it looks like an address. */
    if constexpr (std::is_class<T>::value) {
        static const bool is_known = zd_emulate_padding_is_known<T>();
        if (is_known)
            __builtin_clear_padding(value);
    }
    return zd_emulate_translate(
            value, sizeof *value, std::is_pointer<T>::value, device);
}

template <typename... P, typename... A>
cudaError_t zd_emulate_launch(
        const char *name, void (*kernel)(P...), dim3 grid, dim3 block,
        size_t shared_bytes, cudaStream_t stream, A &&...args)
{
    using packed_type = zd_emulate_packed<std::remove_cv_t<P>...>;
    struct zd_emulate_launch launch = {};
    launch.name = name;
    launch.kernel = reinterpret_cast<const void *>(kernel);
    launch.run = packed_type::run;
    launch.grid[0] = grid.x, launch.grid[1] = grid.y, launch.grid[2] = grid.z;
    launch.block[0] = block.x, launch.block[1] = block.y;
    launch.block[2] = block.z;
    launch.shared_bytes = shared_bytes;
    int device = zd_emulate_device(stream);
    packed_type *packed = new (std::malloc(sizeof(packed_type)))
            packed_type{kernel, std::tuple<P...>(std::forward<A>(args)...)};
    launch.args = packed;
    bool ok = std::apply(
            [device](auto &...one) {
                return (zd_emulate_argument(&one, device) && ... && true);
            },
            packed->args);
    return zd_emulate_enqueue(&launch, stream, ok);
}

/* --- barriers and lanes --------------------------------------------------- */

#define __syncthreads() zd_emulate_barrier(__FILE__, __LINE__)
#define __syncwarp(...) zd_emulate_syncwarp(__FILE__, __LINE__, ##__VA_ARGS__)
#define __trap()        zd_emulate_fail(__FILE__, __LINE__, "__trap")

inline void zd_emulate_syncwarp(
        const char *file, int line, unsigned mask = 0xffffffffu)
{
    zd_emulate_warp_exchange(mask, NULL, 0, "__syncwarp", file, line);
}

/* Every lane of the mask gives a value and may read those of all others, until
 * its next exchange. mma.cuh builds on it, with structs up to 256 bytes. */
template <typename T> struct zd_emulate_values {
    struct zd_emulate_lanes lanes;

    const T &operator[](int lane) const
    {
        return *reinterpret_cast<const T *>(
                lanes.bytes + (size_t)lane * lanes.stride);
    }
};

template <typename T>
inline zd_emulate_values<T> zd_emulate_exchange(
        unsigned mask, const T &value, const char *op, const char *file,
        int line)
{
    static_assert(sizeof(T) <= ZD_EMULATE_EXCHANGE_BYTES, "too large");
    return zd_emulate_values<T>{zd_emulate_warp_exchange(
            mask, &value, sizeof value, op, file, line)};
}

inline int zd_emulate_lane(void)
{
    return (int)(zd_emulate_flat_thread & 31);
}

/* The value of lane `from`, or this lane's own where `from` is outside of its
 * part of the warp. */
template <typename T>
inline T zd_emulate_shuffle(
        const char *op, const char *file, int line, unsigned mask, T value,
        int from, bool inside)
{
    auto values = zd_emulate_exchange(mask, value, op, file, line);
    if (!inside)
        return value;
    if (!(mask >> from & 1))
        zd_emulate_fail(
                file, line,
                "%s reads lane %d, which is not in the "
                "mask %08x",
                op, from, mask);
    return values[from];
}

template <typename T>
inline T zd_emulate_shfl(
        const char *file, int line, unsigned mask, T value, int from,
        int width = 32)
{
    int first = zd_emulate_lane() & ~(width - 1);
    return zd_emulate_shuffle(
            "__shfl_sync", file, line, mask, value,
            first + (from & (width - 1)), true);
}

template <typename T>
inline T zd_emulate_shfl_xor(
        const char *file, int line, unsigned mask, T value, int lane_mask,
        int width = 32)
{
    int lane = zd_emulate_lane(), from = lane ^ lane_mask;
    return zd_emulate_shuffle(
            "__shfl_xor_sync", file, line, mask, value, from & 31,
            from < (lane & ~(width - 1)) + width);
}

/* What a group of `lanes` neighbors has after shuffles over half of it, a
 * quarter, ... one: pairs are combined in the same order, and the lanes meet
 * once. */
template <typename T, typename F>
inline T zd_emulate_butterfly(T value, int lanes, F combine, const char *op)
{
    auto values = zd_emulate_exchange(0xffffffffu, value, op, __FILE__, lanes);
    int first = zd_emulate_lane() & ~(lanes - 1);
    T all[32];
    for (int i = 0; i < lanes; i++)
        all[i] = values[first + i];
    for (int offset = lanes / 2; offset > 0; offset /= 2)
        for (int i = 0; i < offset; i++)
            all[i] = combine(all[i], all[i + offset]);
    return all[0];
}

template <typename T> inline T zd_emulate_sum(T value, int lanes)
{
    return zd_emulate_butterfly(
            value, lanes, [](T a, T b) { return a + b; }, "a sum of lanes");
}

inline float zd_emulate_max(float value, int lanes)
{
    return zd_emulate_butterfly(
            value, lanes,
            [](float a, float b) { return a > b || b != b ? a : b; },
            "a maximum of lanes");
}

#define __shfl_sync(...) zd_emulate_shfl(__FILE__, __LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...)                                                   \
    zd_emulate_shfl_xor(__FILE__, __LINE__, __VA_ARGS__)

#include "tests/cuda/emulate_math.h"
