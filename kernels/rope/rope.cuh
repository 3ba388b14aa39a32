/* rope.cuh - the rotation of rope.h on a GPU, for several kernels. */
#pragma once

#include "kernels/cuda/cuda.cuh"

extern "C" {
#include "kernels/rope/rope.h"
}

/* The two rotated halves of a pair. An explicit fma fixes which product is
 * fused with the addition, so that every kernel has the same bits. */
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

/* Rotates x, W elements of a head from channel c on; mate: their partners in
 * the other half. D/2 is a multiple of W. */
template <int W>
static __device__ inline void turn_half(
        float (&x)[W], const float (&mate)[W], const struct rope_angles &angles,
        int64_t token, int c, int D, float direction)
{
    int half = D / 2;
    bool is_high = c >= half;
    int64_t entry =
            (int64_t)angles.positions[token] * half + (is_high ? c - half : c);
    float cosine[W], sine[W];
    read_fp32<W>(cosine, angles.cosine + entry);
    read_fp32<W>(sine, angles.sine + entry);
#pragma unroll
    for (int j = 0; j < W; j++) {
        float turn = direction * sine[j];
        x[j] = is_high ? turned_high(mate[j], x[j], cosine[j], turn)
                       : turned_low(x[j], mate[j], cosine[j], turn);
    }
}

/* The channel of the partners of the elements at channel c. */
static __device__ inline int mate_of(int c, int D)
{
    return c < D / 2 ? c + D / 2 : c - D / 2;
}

/* Whether halves of heads are whole packs of W, as turn_half needs. */
static inline bool turns_in_packs(
        const struct rope_angles *angles, int D, int W)
{
    return D / 2 % W == 0 && are_aligned(angles->cosine, angles->sine) &&
           2 * rope_pairs_of(angles, D) == D && !angles->interleaved;
}
