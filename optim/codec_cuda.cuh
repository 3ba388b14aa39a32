/* codec_cuda.cuh - optim/codec.h on a GPU: one element of a qblock at a time,
 * the same numbers and operations as codec_encode_plain and codec_decode_plain.
 *
 * Each element looks up a class twice, and lanes of a warp need different ones:
 * the tables are in shared memory, where such lookups are cheap. */
#pragma once

#include "kernels/cuda/cuda.cuh"

extern "C" {
#include "optim/codec.h"
}

#include "optim/codec_tables.h"

static __device__ const struct codec_numbers {
    float a[CODEC_CLASSES], b[CODEC_CLASSES], d[CODEC_CLASSES];
    float t[CODEC_CLASSES];
} codec_numbers[OPTIM_LANES] = {CODEC_ROWS};

/* Binades from 2^-31 to 1: each has at most one border of classes. */
enum { CODEC_BINADES = 32 };

struct codec_shared {
    pack<float, 2> lines[OPTIM_LANES][CODEC_CLASSES]; /* a, b: one access */
    float d[OPTIM_LANES][CODEC_CLASSES], t[OPTIM_LANES][CODEC_CLASSES];
    int first[OPTIM_LANES][CODEC_BINADES]; /* the class of a binade's begin */
};

/* By all threads of a block, at least 64. */
__device__ inline void codec_load(struct codec_shared *codec)
{
    int thread = (int)threadIdx.x;
    if (thread < OPTIM_LANES * CODEC_CLASSES) {
        int lane = thread / CODEC_CLASSES, k = thread % CODEC_CLASSES;
        codec->lines[lane][k].at[0] = codec_numbers[lane].a[k];
        codec->lines[lane][k].at[1] = codec_numbers[lane].b[k];
        codec->d[lane][k] = codec_numbers[lane].d[k];
        codec->t[lane][k] = codec_numbers[lane].t[k];
    }
    if (thread < OPTIM_LANES * CODEC_BINADES) {
        int lane = thread / CODEC_BINADES;
        int binade = thread % CODEC_BINADES, k = 0;
        float begin = float_of_bits(
                (uint32_t)(127 + binade - (CODEC_BINADES - 1)) << 23);
        for (int i = 0; i < CODEC_CLASSES - 1; i++)
            k += begin >= codec_numbers[lane].t[i];
        codec->first[lane][binade] = k;
    }
    __syncthreads();
}

__device__ inline bool codec_is_finite(float x)
{
    return (bits_of_float(x) & 0x7f800000u) != 0x7f800000u;
}

/* A power of two by which values and scale become tame. */
__device__ inline float codec_taming(float scale)
{
    if (scale < CODEC_TAME_MIN)
        return 0x1p100f;
    return scale > CODEC_TAME_MAX ? 0x1p-100f : 1.0f;
}

/* --- decode --------------------------------------------------------------- */

struct codec_decoder {
    const pack<float, 2> *lines;
    float scale;   /* tame */
    float inverse; /* of the power: dividing by it is exact but for the last
                      rounding, and so is this */
    bool is_finite;
};

template <int LANE>
__device__ inline struct codec_decoder codec_decoder_of(
        const struct codec_shared *codec, float scale)
{
    float power = codec_taming(scale);
    struct codec_decoder decoder = {
            codec->lines[LANE], scale * power, 1.0f / power,
            codec_is_finite(scale)};
    return decoder;
}

template <int LANE>
__device__ inline float codec_decode_one(
        const struct codec_decoder *decoder, int code)
{
    int rank = LANE == OPTIM_M ? code - 127 : code + 1;
    int k = 32 - __clz(rank < 0 ? -rank : rank) - (LANE == OPTIM_V);
    pack<float, 2> line = load_pack<2>(decoder->lines[k].at);
    float slope = line.at[0] * decoder->scale;
    float start = line.at[1] * decoder->scale;
    float x = fmaf(slope, (float)rank, rank < 0 ? -start : start);
    return decoder->is_finite ? x * decoder->inverse
                              : float_of_bits(0x7fc00000u);
}

/* --- encode --------------------------------------------------------------- */

/* What a lane's scale is the largest of, as integers. */
template <int LANE> __device__ inline uint32_t codec_size(float x)
{
    return bits_of_float(x) & (LANE == OPTIM_M ? 0x7fffffffu : 0xffffffffu);
}

struct codec_encoder {
    const struct codec_shared *codec;
    float power, inverse;
    bool is_plain; /* nothing, or not finite: the codes of 0 */
};

template <int LANE>
__device__ inline struct codec_encoder codec_encoder_of(
        const struct codec_shared *codec, float scale)
{
    float power = codec_taming(scale);
    struct codec_encoder encoder = {
            codec, power, 1.0f / (scale * power),
            scale == 0 || !codec_is_finite(scale)};
    return encoder;
}

/* The rank of a magnitude on its side of the map. Without a branch: class 0
 * has d = 0, and 8/9 of its unit is rank 0. */
template <int LANE>
__device__ inline int codec_rank(const struct codec_shared *codec, float y)
{
    if (LANE == OPTIM_V)
        y = fmaxf(y, CODEC_V_LEAST);
    int binade = (int)(bits_of_float(y) >> 23) - 127 + CODEC_BINADES - 1;
    binade = min(max(binade, 0), CODEC_BINADES - 1);
    int k = codec->first[LANE][binade];
    k += y >= codec->t[LANE][k];
    float f = fminf(fmaf(y, codec->d[LANE][k], CODEC_START), CODEC_LIMIT);
    int power = LANE == OPTIM_M ? k - 1 : k;
    return (int)(f * float_of_bits((uint32_t)(127 + power) << 23));
}

/* Of a qblock that is not plain. */
template <int LANE>
__device__ inline uint32_t codec_encode_one(
        const struct codec_encoder *encoder, float x)
{
    float y = x * encoder->power * encoder->inverse;
    int rank = codec_rank<LANE>(encoder->codec, fabsf(y));
    if (LANE == OPTIM_V)
        return (uint32_t)(x > 0 ? rank - 1 : 0);
    rank = min(rank, bits_of_float(y) >> 31 ? 127 : 128);
    return (uint32_t)(bits_of_float(y) >> 31 ? 127 - rank : 127 + rank);
}

template <int LANE> __device__ inline uint32_t codec_plain_code(void)
{
    return LANE == OPTIM_M ? 127 : 0;
}
