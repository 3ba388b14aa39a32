/* qblock_cuda.cuh - a qblock of 256 elements and the warp that has it: which
 * elements are a lane's, and how they are read and written.
 *
 * A lane has two runs of four, so that every access of the warp is whole and in
 * order, whatever the type:
 *
 *     lane        0       1          31      0         1
 *     elements    0 .. 3  4 .. 7  .. 127     128 .. 131  132 ..
 *
 * Types are looked at where memory is read and written: all threads agree on
 * them, and that costs less than a kernel for each of them would. */
#pragma once

#include "kernels/cuda/cuda.cuh"

extern "C" {
#include "optim/optim.h"
}

enum { LANE_ELEMENTS = OPTIM_QBLOCK / WARP, QUAD = 4 };

/* --- where a lane's elements are ------------------------------------------ */

/* Element `j` of a lane in the qblock. */
__device__ inline int element_of_lane(int j)
{
    return j / QUAD * (OPTIM_QBLOCK / 2) + lane_of_warp() * QUAD + j % QUAD;
}

/* A qblock's part of the span. */
struct place {
    size_t at; /* in the span */
    int count; /* at most 256 */
    bool whole;
};

__device__ inline struct place place_of(
        const struct optim_span *span, size_t qblock, bool whole)
{
    size_t at = qblock * OPTIM_QBLOCK, left = span->count - at;
    struct place place = {
            at, left < OPTIM_QBLOCK ? (int)left : OPTIM_QBLOCK, whole};
    if (whole)
        place.count = OPTIM_QBLOCK;
    return place;
}

/* --- values as stored
 * ------------------------------------------------------ */

/* A lane's eight elements: a word each, two in a word, or four. */
template <int BYTES> struct raw {
    static const int words = LANE_ELEMENTS * BYTES / 4;
    uint32_t word[words];
};

template <int BYTES> struct element_word;
template <> struct element_word<1> {
    typedef uint8_t type;
};
template <> struct element_word<2> {
    typedef uint16_t type;
};
template <> struct element_word<4> {
    typedef uint32_t type;
};

template <int BYTES>
__device__ inline uint32_t raw_at(const struct raw<BYTES> *raw, int j)
{
    const int each = 4 / BYTES;
    uint32_t word = raw->word[j / each];
    return BYTES == 4 ? word
                      : word >> (8 * BYTES * (j % each)) &
                                ((1u << (8 * (BYTES % 4))) - 1);
}

template <int BYTES>
__device__ inline void raw_put(struct raw<BYTES> *raw, int j, uint32_t value)
{
    const int each = 4 / BYTES;
    uint32_t shifted = value << (8 * BYTES * (j % each));
    if (j % each == 0)
        raw->word[j / each] = shifted;
    else
        raw->word[j / each] |= shifted;
}

/* Elements beyond a partial qblock read as zero bits. */
template <int BYTES>
__device__ inline struct raw<BYTES> raw_load(
        const void *array, const struct place *place) {
    typedef typename element_word<BYTES>::type element;
    struct raw<BYTES> raw;
    const element *from = (const element *)array + place->at;
    if (place->whole) {
#pragma unroll
        for (int quad = 0; quad < 2; quad++) {
            pack<uint32_t, BYTES> four = load_pack_once<BYTES>(
                    (const uint32_t *)(from + element_of_lane(quad * QUAD)));
#pragma unroll
            for (int i = 0; i < BYTES; i++)
                raw.word[quad * BYTES + i] = four.at[i];
        }
        return raw;
    }
#pragma unroll
    for (int j = 0; j < LANE_ELEMENTS; j++) {
        int e = element_of_lane(j);
        raw_put(&raw, j, e < place->count ? (uint32_t)from[e] : 0);
    }
    return raw;
}

template <int BYTES>
__device__ inline void raw_store(
        void *array, const struct place *place, const struct raw<BYTES> *raw)
{
    typedef typename element_word<BYTES>::type element;
    element *to = (element *)array + place->at;
    if (place->whole) {
#pragma unroll
        for (int quad = 0; quad < 2; quad++) {
            pack<uint32_t, BYTES> four;
#pragma unroll
            for (int i = 0; i < BYTES; i++)
                four.at[i] = raw->word[quad * BYTES + i];
            store_pack_once<BYTES>(
                    (uint32_t *)(to + element_of_lane(quad * QUAD)), four);
        }
        return;
    }
#pragma unroll
    for (int j = 0; j < LANE_ELEMENTS; j++) {
        int e = element_of_lane(j);
        if (e < place->count)
            to[e] = (element)raw_at(raw, j);
    }
}

/* --- arrays of a dtype ---------------------------------------------------- */

/* Read before it is decoded, so that all arrays are on their way together. */
struct fetched {
    struct raw<4> wide;
    struct raw<2> narrow;
};

__device__ inline void fetch(
        struct fetched *out, const void *array, enum dtype type,
        const struct place *place)
{
    if (type == DTYPE_FP32)
        out->wide = raw_load<4>(array, place);
    else
        out->narrow = raw_load<2>(array, place);
}

__device__ inline void decode_fetched(
        float (&out)[LANE_ELEMENTS], const struct fetched *in, enum dtype type)
{
    if (type == DTYPE_FP32) {
#pragma unroll
        for (int j = 0; j < LANE_ELEMENTS; j++)
            out[j] = float_of_bits(raw_at(&in->wide, j));
    } else if (type == DTYPE_BF16) {
#pragma unroll
        for (int j = 0; j < LANE_ELEMENTS; j++)
            out[j] = float_of_bits(raw_at(&in->narrow, j) << 16);
    } else {
#pragma unroll
        for (int j = 0; j < LANE_ELEMENTS; j++)
            out[j] = fp16_float((uint16_t)raw_at(&in->narrow, j));
    }
}

__device__ inline void store_values(
        void *array, enum dtype type, const struct place *place,
        const float (&values)[LANE_ELEMENTS])
{
    struct raw<4> wide;
    struct raw<2> narrow;
    if (type == DTYPE_FP32) {
#pragma unroll
        for (int j = 0; j < LANE_ELEMENTS; j++)
            raw_put(&wide, j, bits_of_float(values[j]));
        raw_store(array, place, &wide);
    } else if (type == DTYPE_BF16) {
#pragma unroll
        for (int j = 0; j < LANE_ELEMENTS; j += 2)
            narrow.word[j / 2] = two_elements(bf16(), values[j], values[j + 1]);
        raw_store(array, place, &narrow);
    } else {
#pragma unroll
        for (int j = 0; j < LANE_ELEMENTS; j++)
            raw_put(&narrow, j, fp16_bits(values[j]));
        raw_store(array, place, &narrow);
    }
}
