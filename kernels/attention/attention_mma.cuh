/* attention_mma.cuh - attention on tensor cores for bf16 and fp16, instantiated
 * in attention_mma_*.cu: the tiles for each head size, and the launches.
 *
 * Tiles were chosen by the registers and spills that nvcc reports
 * (bench/kernels_static.py) and by the shared memory that a matmul reads
 * (attention_mma_tiles.cuh). */
#pragma once

#include "kernels/attention/attention_mma_dkv.cuh"
#include "kernels/attention/attention_mma_dq.cuh"
#include "kernels/attention/attention_mma_forward.cuh"

/* attention_cuda.cu does not launch these on a GPU without tensor cores. A
 * newer GPU may still run code compiled only for an old architecture: then
 * trap. */
#if ZD_MMA
#define MMA_BODY(...) __VA_ARGS__
#else
#define MMA_BODY(...) __trap()
#endif

template <typename S>
__global__ void __launch_bounds__(S::THREADS)
        mma_forward_kernel(const attention_pass<typename S::E> p)
{
    MMA_BODY(mma_forward<S>(p));
}

template <typename S>
__global__ void __launch_bounds__(S::THREADS)
        mma_dq_kernel(const attention_pass<typename S::E> p)
{
    MMA_BODY(mma_dq<S>(p));
}

template <typename S, bool DK, bool DV>
__global__ void __launch_bounds__(S::THREADS)
        mma_dkv_kernel(const attention_pass<typename S::E> p)
{
    MMA_BODY(mma_dkv<S, DK, DV>(p));
}

#undef MMA_BODY

template <typename S> static constexpr size_t forward_bytes(void)
{
    return (S::OWN_TILE + 2 * S::OTHER_TILE) * sizeof(typename S::E);
}

template <typename S> static constexpr size_t dq_bytes(void)
{
    return 2 * (S::OWN_TILE + S::OTHER_TILE) * sizeof(typename S::E);
}

template <typename S, bool DK> static constexpr size_t dkv_bytes(void)
{
    return ((DK ? 2 : 1) * S::OWN_TILE + 2 * S::OTHER_TILE) *
           sizeof(typename S::E);
}

template <typename S>
static enum zd_status mma_forward_with(
        cudaStream_t stream, const attention_pass<typename S::E> &p)
{
    size_t bytes = forward_bytes<S>();
    dim3 grid((unsigned)ceil_div(p.Q, S::OWN), p.H, p.B);
    ZD_TRY(attention_allow_shared((const void *)mma_forward_kernel<S>, bytes));
    ZD_LAUNCH((mma_forward_kernel<S>), grid, S::THREADS, bytes, stream, p);
    return ZD_OK;
}

template <typename S>
static enum zd_status mma_dq_with(
        cudaStream_t stream, const attention_pass<typename S::E> &p)
{
    size_t bytes = dq_bytes<S>();
    dim3 grid((unsigned)ceil_div(p.Q, S::OWN), p.H, p.B);
    ZD_TRY(attention_allow_shared((const void *)mma_dq_kernel<S>, bytes));
    ZD_LAUNCH((mma_dq_kernel<S>), grid, S::THREADS, bytes, stream, p);
    return ZD_OK;
}

template <typename S, bool DK, bool DV>
static enum zd_status mma_dkv_with(
        cudaStream_t stream, const attention_pass<typename S::E> &p)
{
    size_t bytes = dkv_bytes<S, DK>();
    dim3 grid((unsigned)ceil_div(p.T, S::OWN), p.KV, p.B);
    ZD_TRY(attention_allow_shared(
            (const void *)mma_dkv_kernel<S, DK, DV>, bytes));
    ZD_LAUNCH((mma_dkv_kernel<S, DK, DV>), grid, S::THREADS, bytes, stream, p);
    return ZD_OK;
}

/* Launches S, or EIGHT where attention_takes_eight_warps. */
template <typename S, typename EIGHT>
static enum zd_status mma_forward_of(
        cudaStream_t stream, const attention_pass<typename S::E> &p)
{
    if (attention_takes_eight_warps(
                forward_bytes<S>(), attention_shared_bytes()))
        return mma_forward_with<EIGHT>(stream, p);
    return mma_forward_with<S>(stream, p);
}

template <typename S, typename EIGHT>
static enum zd_status mma_dq_of(
        cudaStream_t stream, const attention_pass<typename S::E> &p)
{
    if (attention_takes_eight_warps(dq_bytes<S>(), attention_shared_bytes()))
        return mma_dq_with<EIGHT>(stream, p);
    return mma_dq_with<S>(stream, p);
}

template <typename S, typename EIGHT>
static enum zd_status mma_dkv_of(
        cudaStream_t stream, const attention_pass<typename S::E> &p)
{
    if (attention_takes_eight_warps(
                dkv_bytes<S, true>(), attention_shared_bytes()))
        return mma_dkv_with<EIGHT, true, true>(stream, p);
    return mma_dkv_with<S, true, true>(stream, p);
}

/* Head sizes up to 256; D is rounded up to the next size that has a kernel. No
 * block uses more than the 99 KiB of shared memory that consumer GPUs allow. */
template <typename E>
enum zd_status mma_forward(cudaStream_t stream, const attention_pass<E> &p)
{
    if (p.D <= 64)
        return mma_forward_with<mma_shape<E, 64, 2, 64>>(stream, p);
    if (p.D <= 96)
        return mma_forward_of<
                mma_shape<E, 96, 2, 64>, mma_shape<E, 96, 1, 64, 8>>(stream, p);
    if (p.D <= 128)
        return mma_forward_of<
                mma_shape<E, 128, 2, 64>, mma_shape<E, 128, 1, 64, 8>>(
                stream, p);
    if (p.D <= 192)
        return mma_forward_with<mma_shape<E, 192, 1, 64>>(stream, p);
    return mma_forward_with<mma_shape<E, 256, 1, 64>>(stream, p);
}

/* dk and dv in two passes, at the cost of one more matmul. */
template <typename S>
static enum zd_status mma_wide_backward(
        cudaStream_t stream, const attention_pass<typename S::E> &p)
{
    ZD_TRY((mma_dq_with<S>(stream, p)));
    ZD_TRY((mma_dkv_with<S, false, true>(stream, p)));
    return mma_dkv_with<S, true, false>(stream, p);
}

template <typename E>
enum zd_status mma_backward(cudaStream_t stream, const attention_pass<E> &p)
{
    ZD_TRY(row_deltas(stream, p));
    if (p.D <= 64) {
        ZD_TRY((mma_dq_of<mma_shape<E, 64, 2, 64>, mma_shape<E, 64, 1, 64, 8>>(
                stream, p)));
        return mma_dkv_with<mma_shape<E, 64, 2, 32>, true, true>(stream, p);
    }
    if (p.D <= 96) {
        ZD_TRY((mma_dq_of<mma_shape<E, 96, 2, 32>, mma_shape<E, 96, 1, 32, 8>>(
                stream, p)));
        return mma_dkv_of<mma_shape<E, 96, 1, 64>, mma_shape<E, 96, 1, 32, 8>>(
                stream, p);
    }
    if (p.D <= 128) {
        ZD_TRY((mma_dq_of<
                mma_shape<E, 128, 2, 32>, mma_shape<E, 128, 1, 32, 8>>(
                stream, p)));
        return mma_dkv_of<
                mma_shape<E, 128, 1, 64>, mma_shape<E, 128, 1, 32, 8>>(
                stream, p);
    }
    if (p.D <= 192)
        return mma_wide_backward<mma_shape<E, 192, 1, 32>>(stream, p);
    return mma_wide_backward<mma_shape<E, 256, 1, 32>>(stream, p);
}
