/* rope.cuh - the rotation of rope.h on a GPU, for the kernels that do it. */
#ifndef ZD_KERNELS_ROPE_CUH
#define ZD_KERNELS_ROPE_CUH

#include "kernels/cuda.cuh"

/* Both halves of a pair, turned. The multiplication that is fused with the
 * addition is named, so that every kernel gives the same bits. */
static __device__ inline float turned_low(
        float low, float high, float cosine, float sine)
{
    return fmaf(low, cosine, -(high * sine));
}

static __device__ inline float turned_high(
        float low, float high, float cosine, float sine)
{
    return fmaf(low, sine, high * cosine);
}

#endif
