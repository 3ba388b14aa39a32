/* amx_software.h - the tiles of AMX as arrays, for machines that have none: for
 * kernels/cpu/amx.h, included before all else. Sums are made as the
 * instruction makes them, but subnormals are kept. */
#pragma once

#include <assert.h>
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define AMX_IN_SOFTWARE 1

static _Thread_local bool amx_is_open;
static _Thread_local float amx_tiles[8][16][16];

/* `shapes` is what LDTILECFG reads. */
static inline void amx_software_open(const void *shapes)
{
    const uint8_t *bytes = shapes;
    bool is_whole = bytes[0] == 1 && bytes[1] == 0;
    for (int i = 0; i < 8; i++)
        is_whole = is_whole && bytes[16 + 2 * i] == 64 &&
                   bytes[17 + 2 * i] == 0 && bytes[48 + i] == 16;
    assert(is_whole && !amx_is_open);
    amx_is_open = true;
}

static inline void amx_software_close(void)
{
    assert(amx_is_open);
    amx_is_open = false;
}

static inline void amx_software_zero(int tile)
{
    assert(amx_is_open);
    memset(amx_tiles[tile], 0, sizeof amx_tiles[tile]);
}

static inline void amx_software_load(int tile, const void *from, int64_t stride)
{
    assert(amx_is_open);
    for (int i = 0; i < 16; i++)
        memcpy(amx_tiles[tile][i], (const char *)from + i * stride, 64);
}

static inline void amx_software_store(int tile, void *to, int64_t stride)
{
    assert(amx_is_open);
    for (int i = 0; i < 16; i++)
        memcpy((char *)to + i * stride, amx_tiles[tile][i], 64);
}

/* The first bf16 of each word, or the second, as floats. */
static inline __m512 amx_software_half(__m512i words, bool second)
{
    const __m512i high = _mm512_set1_epi32((int)0xffff0000u);
    return _mm512_castsi512_ps(
            second ? _mm512_and_si512(words, high)
                   : _mm512_slli_epi32(words, 16));
}

static inline void amx_software_dot(int to, int a, int b)
{
    assert(amx_is_open);
    for (int i = 0; i < 16; i++) {
        __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
        for (int k = 0; k < 16; k++)
            for (int half = 0; half < 2; half++) {
                __m512i x =
                        _mm512_castps_si512(_mm512_set1_ps(amx_tiles[a][i][k]));
                __m512i y = _mm512_loadu_si512(amx_tiles[b][k]);
                sum[half] = _mm512_fmadd_ps(
                        amx_software_half(x, half), amx_software_half(y, half),
                        sum[half]);
            }
        __m512 c = _mm512_loadu_ps(amx_tiles[to][i]);
        c = _mm512_add_ps(c, _mm512_add_ps(sum[0], sum[1]));
        _mm512_storeu_ps(amx_tiles[to][i], c);
    }
}

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig(shapes)        amx_software_open(shapes)
#define _tile_release()                 amx_software_close()
#define _tile_zero(tile)                amx_software_zero(tile)
#define _tile_loadd(tile, from, stride) amx_software_load(tile, from, stride)
#define _tile_stored(tile, to, stride)  amx_software_store(tile, to, stride)
#define _tile_dpbf16ps(to, a, b)        amx_software_dot(to, a, b)
