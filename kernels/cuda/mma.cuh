/* mma.cuh - tensor cores and asynchronous copies (sm_80 and later).
 * tests/cuda/emulate_mma.h emulates them on the CPU: lanes exchange their
 * fragments, and a copy takes effect when it is waited for.
 *
 * Fragments as in PTX (lane = 4 g + t), two elements per word:
 *   a  16x16  a[0]: row g, columns 2t 2t+1;  a[1]: row g+8;
 *             a[2], a[3]: the same rows, columns 8 further
 *   b  16x8   b0: rows 2t 2t+1 of column g;  b1: 8 rows further
 *   c  16x8   c[0] c[1]: row g, columns 2t 2t+1;  c[2] c[3]: row g+8
 *
 * Source: PTX ISA, "Warp Level Matrix Instructions", m16n8k16. */
#pragma once

#include "kernels/cuda/cuda.cuh"

#ifdef ZD_EMULATE
#include "tests/cuda/emulate_mma.h"
#define ZD_MMA 1
#elif !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define ZD_MMA 1
#else
#define ZD_MMA 0 /* no tensor cores for bf16: kernels trap */
#endif

#ifndef ZD_EMULATE

#if ZD_MMA && defined(__CUDA_ARCH__)
#define MMA_ASM(...)  asm volatile(__VA_ARGS__)
#define MMA_PURE(...) asm(__VA_ARGS__)
#else
#define MMA_ASM(...)
#define MMA_PURE(...)
#endif

__device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* c += a b. Volatile, as all warp-wide instructions here: the compiler must not
 * move it into a branch, where lanes would diverge. */
#define MMA_16X8X16(E, type)                                                   \
    __device__ __forceinline__ void mma_16x8x16(                               \
            E, float(&c)[4], const uint32_t(&a)[4], uint32_t b0, uint32_t b1)  \
    {                                                                          \
        MMA_ASM("mma.sync.aligned.m16n8k16.row.col.f32." type "." type         \
                ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "          \
                "{%0, %1, %2, %3};"                                            \
                : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])               \
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0),         \
                  "r"(b1));                                                    \
    }
MMA_16X8X16(bf16, "bf16")
MMA_16X8X16(fp16, "f16")
#undef MMA_16X8X16

/* Loads four 8x8 matrices from shared memory: lane 8 i + r passes the address
 * of row r of matrix i (16 bytes, aligned); x[i] gets elements 2t, 2t+1 of its
 * row g. */
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&x)[4], const void *row)
{
    MMA_ASM("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
            : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
            : "r"(shared_address(row))
            : "memory");
}

/* The same, transposed: x[i] gets rows 2t, 2t+1 of column g. */
__device__ __forceinline__ void ldmatrix_x4_trans(
        uint32_t (&x)[4], const void *row)
{
    MMA_ASM("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
            "{%0, %1, %2, %3}, [%4];"
            : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
            : "r"(shared_address(row))
            : "memory");
}

/* Starts a copy of 16 aligned bytes from global to shared memory. If not
 * `is_there`: writes zeros and does not access `from`. */
__device__ __forceinline__ void copy_async_16(
        void *to, const void *from, bool is_there)
{
    MMA_ASM("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                    shared_address(to)),
            "l"(from), "r"(is_there ? 16 : 0)
            : "memory");
}

/* The same for 4 bytes. */
__device__ __forceinline__ void copy_async_4(
        void *to, const void *from, bool is_there)
{
    MMA_ASM("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(
                    shared_address(to)),
            "l"(from), "r"(is_there ? 4 : 0)
            : "memory");
}

/* Makes a group of this thread's copies since the last call. */
__device__ __forceinline__ void copy_async_commit(void)
{
    MMA_ASM("cp.async.commit_group;" ::: "memory");
}

/* Waits until all but the last `left` groups of this thread have arrived; after
 * a barrier the whole block sees them. */
template <int left> __device__ __forceinline__ void copy_async_wait(void)
{
    MMA_ASM("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

/* 2^x, within 2 ulp; 0 for -inf. */
__device__ __forceinline__ float fast_exp2(float x)
{
    float y = x;
    MMA_PURE("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#undef MMA_ASM
#undef MMA_PURE
#endif
