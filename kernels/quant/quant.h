/* quant.h - weights in 4 and 8 bits: codes, scales, and back.
 *
 *   nf4, fp4  blocks of `block` elements in row-major order, the last one may
 *             be short: absmax = max |x|, code = rank of x / absmax among 16
 *             values; two codes a byte, the even element in the high half
 *   nested    absmax of 4-bit blocks: code of absmax - offset among the 256
 *             entries of the signed dynamic map, in blocks of 256
 *   int8      rows: scb = max |x|, q = round(x ((1 / scb) 127)): PyTorch's
 *             127 / scb, which differs in ties
 *   fp8       tiles of 128 x 128: scale = max |x| / 448, code = e4m3(x / scale)
 *
 * Source:  bitsandbytes 0.50, backends/default/ops.py and functional.py: codes,
 *          absmax and decoded values equal its Python's to the bit. (A full
 *          block is multiplied by the rounded reciprocal of its absmax, a short
 *          one is divided by it; a value on a threshold takes the lower code;
 *          a full block of zeros has absmax 0, a short one 1e-38.) fp8:
 *          DeepSeek-V3's weight_scale_inv.
 * Values:  finite; readers of files have checked it.
 * Memory:  the caller owns every array; nothing is allocated or kept.
 * Order:   bits do not depend on how a tensor is cut, if blocks are whole. */
#pragma once

#include "base/number/dtype.h"

#include <stdbool.h>
#include <stdint.h>

enum quant_format { QUANT_NF4, QUANT_FP4, QUANT_INT8, QUANT_FP8 };

enum {
    QUANT_BLOCK = 64,     /* when written */
    QUANT_BLOCK_MIN = 32, /* when read: powers of two in this range */
    QUANT_BLOCK_MAX = 4096,
    QUANT_NESTED_BLOCK = 256,
    QUANT_TILE = 128
};
/* 1 / 127 rounded, as in bitsandbytes. */
#define QUANT_BY_127 7.874015718698502e-3f

const char *quant_format_name(enum quant_format format); /* "nf4" */
bool quant_format_of_name(const char *name, enum quant_format *format_out);
bool quant_block_is_legal(int64_t block);

/* count / part, rounded up. */
static inline size_t quant_parts(size_t count, size_t part)
{
    return (count + part - 1) / part;
}

/* The 16 values of nf4 or fp4, by code; the 256 entries of the dynamic map. */
void quant_values(enum quant_format format, float values[16]);
void quant_dynamic_map(float values[256]);

/* --- quantizing --- */

/* Encodes `count` elements; only the last block may be short. codes: (count +
 * 1) / 2 bytes; absmax: one per block. Callers may cut a tensor only at an even
 * number of blocks. */
void quant_encode4(
        uint8_t *codes, float *absmax, const float *x, enum quant_format format,
        size_t count, size_t block);
/* The mean of all absmax, summed in double. */
float quant_nested_offset(const float *absmax, size_t count);
/* Encodes absmax to (count) codes and one scale per 256 of them. */
void quant_nest(
        uint8_t *codes, float *scales, const float *absmax, float offset,
        size_t count);
/* Encodes one row to int8; returns its scb. */
float quant_encode8(int8_t *codes, const float *x, size_t columns);
/* Encodes a tile to fp8, rows `stride` apart; returns its scale. */
float quant_encode_tile(
        uint8_t *codes, const float *x, size_t rows, size_t columns,
        size_t stride);

/* --- and back --- */

/* absmax[i] of block first + i: map[codes[i]] * scale + offset; `scales` begins
 * at block 0. */
void quant_unnest(
        float *absmax, const uint8_t *codes, const float *scales,
        const float map[256], float offset, size_t nested_block, size_t first,
        size_t count);

/* Decodes `count` codes that share one scale, from code `at` on: values[code] *
 * scale; int8: code * scale * QUANT_BY_127; fp8: e4m3 * scale. `values`: for 4
 * bits. */
void quant_decode(
        float *out, enum quant_format format, const float *values,
        const uint8_t *codes, size_t at, float scale, size_t count);
