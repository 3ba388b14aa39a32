/* amx.h - products by the tiles of AMX, registers of 16 rows of 64 bytes.
 *
 * One instruction adds to 16 x 16 floats the products of 16 rows of 16 words
 * (gemm_tile.h) and of 16 words of 16 columns. It sums those of a word's first
 * bf16 and of its second apart, then adds both; subnormals are 0.
 *
 * Tiles belong to a thread, from amx_begin to amx_end: as long as they are in
 * use each signal and each switch of threads saves 8 KB more. The process needs
 * the kernel's permission (kernels.c). */
#pragma once

#include "kernels/cpu/simd.h"

/* What LDTILECFG reads. */
struct amx_shapes {
    uint8_t palette, start_row, unused[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

static inline void amx_begin(void)
{
    static const struct amx_shapes all_whole = {
            .palette = 1,
            .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
            .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&all_whole);
}

static inline void amx_end(void)
{
    _tile_release();
}

/* out = a b, or with `adds` out += a b, for 32 x 32 floats, by K words, a
 * multiple of 16: a(i, k) at a[i * a_row + k / 16 * a_step + k % 16] and b(k,
 * j) at b[k * b_row + j]. */
ALWAYS_INLINE void amx_multiply(
        float *out, int64_t out_row, bool adds, const float *a, int64_t a_row,
        int64_t a_step, const float *b, int64_t b_row, int K)
{
    int64_t out_bytes = out_row * 4, a_bytes = a_row * 4, b_bytes = b_row * 4;
    float *below = out + 16 * out_row;
    __asm__ volatile("" ::: "memory"); /* GCC's loads do not say they read it */
    if (adds) {
        _tile_loadd(0, out, out_bytes);
        _tile_loadd(1, out + 16, out_bytes);
        _tile_loadd(2, below, out_bytes);
        _tile_loadd(3, below + 16, out_bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int k = 0; k < K; k += 16) {
        _tile_loadd(4, a, a_bytes);
        _tile_loadd(6, b, b_bytes);
        _tile_loadd(7, b + 16, b_bytes);
        _tile_loadd(5, a + 16 * a_row, a_bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        a += a_step;
        b += 16 * b_row;
    }
    _tile_stored(0, out, out_bytes);
    _tile_stored(1, out + 16, out_bytes);
    _tile_stored(2, below, out_bytes);
    _tile_stored(3, below + 16, out_bytes);
}
