/* quant_cpu.c - decoding in vectors. The bits equal quant.c's, because an
 * element is only one or two products and a rounding.
 *
 * 4 bits: the 16 products of a block are computed and rounded once, then looked
 * up. 16-bit elements: by bytes, 16 codes with one shuffle for the lower halves
 * and one for the upper. fp32: a permutation of 16 floats (AVX-512) or of two
 * times 8 (AVX2). Otherwise a loop. */
#include "kernels/cpu/fast.h"
#include "kernels/fp8/fp8_lanes.h"
#include "kernels/quant/dequantize.h"

dequantize_fn FAST(dequantize);

/* Computes a block's products as elements. */
static void fill_table(elem table[16], const float values[16], float absmax)
{
    for (int i = 0; i < 16; i += VL)
        store(table + i, vf_load(values + i) * absmax);
}

static void look_up_rest(
        elem *out, const uint8_t *codes, const elem table[16], size_t from,
        size_t count)
{
    for (size_t i = from; i < count; i++)
        out[i] = table[i % 2 ? codes[i / 2] & 15u : codes[i / 2] >> 4];
}

#if defined(__AVX2__) && KERNEL_TYPE != KERNEL_FP32

/* The products' bytes: lower halves, upper halves. */
struct table {
    __m128i low, high;
};

ALWAYS_INLINE struct table split(const elem table[16])
{
    const __m128i even = _mm_setr_epi8(
            0, 2, 4, 6, 8, 10, 12, 14, -1, -1, -1, -1, -1, -1, -1, -1);
    const __m128i odd = _mm_setr_epi8(
            1, 3, 5, 7, 9, 11, 13, 15, -1, -1, -1, -1, -1, -1, -1, -1);
    __m128i a = _mm_loadu_si128((const __m128i *)table);
    __m128i b = _mm_loadu_si128((const __m128i *)(table + 8));
    return (struct table){
            _mm_unpacklo_epi64(
                    _mm_shuffle_epi8(a, even), _mm_shuffle_epi8(b, even)),
            _mm_unpacklo_epi64(
                    _mm_shuffle_epi8(a, odd), _mm_shuffle_epi8(b, odd))};
}

/* Looks up 16 codes. */
ALWAYS_INLINE void look_up_16(elem *out, struct table table, __m128i index)
{
    __m128i low = _mm_shuffle_epi8(table.low, index);
    __m128i high = _mm_shuffle_epi8(table.high, index);
    _mm_storeu_si128((__m128i *)out, _mm_unpacklo_epi8(low, high));
    _mm_storeu_si128((__m128i *)(out + 8), _mm_unpackhi_epi8(low, high));
}

ALWAYS_INLINE void decode_block(
        elem *out, const uint8_t *codes, const elem entries[16], size_t count)
{
    const __m128i nibble = _mm_set1_epi8(15);
    struct table table = split(entries);
    size_t i = 0;
    for (; i + 32 <= count; i += 32) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(codes + i / 2));
        __m128i first = _mm_and_si128(_mm_srli_epi16(bytes, 4), nibble);
        __m128i second = _mm_and_si128(bytes, nibble);
        look_up_16(out + i, table, _mm_unpacklo_epi8(first, second));
        look_up_16(out + i + 16, table, _mm_unpackhi_epi8(first, second));
    }
    look_up_rest(out, codes, entries, i, count);
}

#elif defined(__AVX512F__)

ALWAYS_INLINE void decode_block(
        elem *out, const uint8_t *codes, const elem entries[16], size_t count)
{
    const __m512i shift =
            _mm512_set_epi32(0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4);
    __m512 table = _mm512_loadu_ps(entries);
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        __m128i bytes = _mm_loadl_epi64((const __m128i *)(codes + i / 2));
        /* the permutation uses only four bits of an index */
        __m512i index = _mm512_srlv_epi32(
                _mm512_cvtepu8_epi32(_mm_unpacklo_epi8(bytes, bytes)), shift);
        _mm512_storeu_ps(out + i, _mm512_permutexvar_ps(index, table));
    }
    look_up_rest(out, codes, entries, i, count);
}

#elif defined(__AVX2__)

ALWAYS_INLINE __m256 look_up_8(__m256 low, __m256 high, __m256i index)
{
    /* the fourth bit of an index, moved to the sign, selects the half */
    __m256 half = _mm256_castsi256_ps(_mm256_slli_epi32(index, 28));
    return _mm256_blendv_ps(
            _mm256_permutevar8x32_ps(low, index),
            _mm256_permutevar8x32_ps(high, index), half);
}

ALWAYS_INLINE void decode_block(
        elem *out, const uint8_t *codes, const elem entries[16], size_t count)
{
    const __m256i shift = _mm256_set_epi32(0, 4, 0, 4, 0, 4, 0, 4);
    __m256 low = _mm256_loadu_ps(entries), high = _mm256_loadu_ps(entries + 8);
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        __m128i bytes = _mm_loadl_epi64((const __m128i *)(codes + i / 2));
        __m128i twice = _mm_unpacklo_epi8(bytes, bytes);
        __m256i a = _mm256_srlv_epi32(_mm256_cvtepu8_epi32(twice), shift);
        __m256i b = _mm256_srlv_epi32(
                _mm256_cvtepu8_epi32(_mm_srli_si128(twice, 8)), shift);
        _mm256_storeu_ps(out + i, look_up_8(low, high, a));
        _mm256_storeu_ps(out + i + 8, look_up_8(low, high, b));
    }
    look_up_rest(out, codes, entries, i, count);
}

#else

ALWAYS_INLINE void decode_block(
        elem *out, const uint8_t *codes, const elem entries[16], size_t count)
{
    size_t pairs = count / 2;
    for (size_t i = 0; i < pairs; i++) {
        out[2 * i] = entries[codes[i] >> 4];
        out[2 * i + 1] = entries[codes[i] & 15];
    }
    look_up_rest(out, codes, entries, 2 * pairs, count);
}

#endif

/* Decodes elements [begin, end) of one block; begin is even. */
ALWAYS_INLINE void decode_part(
        elem *out, const uint8_t *codes, float absmax, const float values[16],
        size_t begin, size_t end)
{
    elem table[16];
    fill_table(table, values, absmax);
    decode_block(out, codes + begin / 2, table, end - begin);
}

ALWAYS_INLINE vf widen_int8(const int8_t *codes)
{
#if defined(__AVX512F__)
    return _mm512_cvtepi32_ps(
            _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)codes)));
#elif defined(__AVX2__)
    return _mm256_cvtepi32_ps(
            _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)codes)));
#else
    vf v;
    for (int i = 0; i < VL; i++)
        v[i] = codes[i];
    return v;
#endif
}

static void decode8(void *out, const int8_t *codes, float scb, size_t count)
{
    elem *to = out;
    size_t i = 0;
    int8_t rest[VL] = {0};
    for (; i + VL <= count; i += VL)
        store(to + i, widen_int8(codes + i) * scb * QUANT_BY_127);
    memcpy(rest, codes + i, count - i);
    if (i < count)
        store_some(
                to + i, widen_int8(rest) * scb * QUANT_BY_127,
                (int64_t)(count - i));
}

/* The bits of a code, shifted into an fp16, are its value / 256, also for
 * denormals; only NaN codes need care. Products and roundings equal the loop in
 * decode_fp8. */
#if defined(__AVX512F__)
enum { FP8_STEP = 64 };

ALWAYS_INLINE bool has_nan(const uint8_t *codes)
{
    const __m512i most = _mm512_set1_epi8(0x7f);
    __m512i all = _mm512_loadu_si512(codes);
    return _mm512_cmpeq_epi8_mask(_mm512_and_si512(all, most), most) != 0;
}

ALWAYS_INLINE void decode_fp8_32(elem *out, const uint8_t *codes, float scale)
{
    __m512i halves = _mm512_and_si512(
            _mm512_slli_epi16(
                    _mm512_cvtepi8_epi16(
                            _mm256_loadu_si256((const __m256i *)codes)),
                    7),
            _mm512_set1_epi16((short)0xbf80));
    vf a = _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
    vf b = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
    a = a * 256.0f * scale, b = b * 256.0f * scale;
#if KERNEL_TYPE == KERNEL_BF16
    const __m512i upper = _mm512_set_epi16(
            63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31,
            29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    vu x = (vu)a, y = (vu)b;
    x = x + 0x7fffu + (x >> 16 & 1u), y = y + 0x7fffu + (y >> 16 & 1u);
    _mm512_storeu_si512(
            out, _mm512_permutex2var_epi16((__m512i)x, upper, (__m512i)y));
#else
    store(out, a), store(out + VL, b);
#endif
}

ALWAYS_INLINE void decode_fp8_step(elem *out, const uint8_t *codes, float scale)
{
    decode_fp8_32(out, codes, scale);
    decode_fp8_32(out + 32, codes + 32, scale);
}

#elif defined(__AVX2__)
enum { FP8_STEP = 32 };

ALWAYS_INLINE bool has_nan(const uint8_t *codes)
{
    const __m256i most = _mm256_set1_epi8(0x7f);
    __m256i all = _mm256_loadu_si256((const __m256i *)codes);
    return _mm256_movemask_epi8(
                   _mm256_cmpeq_epi8(_mm256_and_si256(all, most), most)) != 0;
}

ALWAYS_INLINE void decode_fp8_16(elem *out, const uint8_t *codes, float scale)
{
    __m256i halves = _mm256_and_si256(
            _mm256_slli_epi16(
                    _mm256_cvtepi8_epi16(
                            _mm_loadu_si128((const __m128i *)codes)),
                    7),
            _mm256_set1_epi16((short)0xbf80));
    vf a = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
    vf b = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
    a = a * 256.0f * scale, b = b * 256.0f * scale;
#if KERNEL_TYPE == KERNEL_BF16
    vu x = (vu)a, y = (vu)b;
    x = (x + 0x7fffu + (x >> 16 & 1u)) >> 16;
    y = (y + 0x7fffu + (y >> 16 & 1u)) >> 16;
    __m256i mixed = _mm256_packus_epi32((__m256i)x, (__m256i)y);
    _mm256_storeu_si256((__m256i *)out, _mm256_permute4x64_epi64(mixed, 0xd8));
#else
    store(out, a), store(out + VL, b);
#endif
}

ALWAYS_INLINE void decode_fp8_step(elem *out, const uint8_t *codes, float scale)
{
    decode_fp8_16(out, codes, scale);
    decode_fp8_16(out + 16, codes + 16, scale);
}

#else
enum { FP8_STEP = VL };

ALWAYS_INLINE bool has_nan(const uint8_t *codes)
{
    return true;
}

ALWAYS_INLINE void decode_fp8_step(elem *out, const uint8_t *codes, float scale)
{
}
#endif

static void decode_fp8(
        void *out, const uint8_t *codes, float scale, size_t count)
{
    elem *to = out;
    size_t i = 0;
    uint8_t rest[VL] = {0};
    for (; i + FP8_STEP <= count; i += FP8_STEP) {
        if (!has_nan(codes + i)) {
            decode_fp8_step(to + i, codes + i, scale);
            continue;
        }
        for (size_t j = i; j < i + FP8_STEP; j += VL)
            store(to + j, e4m3_values(codes + j) * scale);
    }
    for (; i + VL <= count; i += VL)
        store(to + i, e4m3_values(codes + i) * scale);
    memcpy(rest, codes + i, count - i);
    if (i < count)
        store_some(to + i, e4m3_values(rest) * scale, (int64_t)(count - i));
}

/* --- parts of a matrix, and all of it ------------------------------------- */

enum {
    UNNESTED = 128,  /* blocks whose absmax are decoded at once */
    SHARE = 1 << 13, /* elements per piece of a thread's work: whole blocks */
};

/* A quantized matrix with its tables; owns nothing. */
struct codes_reader {
    const struct quant_matrix *m;
    const uint8_t *codes;
    const float *scales;
    const float *nested; /* scales of absmax; NULL: absmax is fp32 */
    const uint8_t *absmax_codes;
    float values[16], map[256];
};

static void codes_reader_init(
        struct codes_reader *r, const void *codes, const void *scales,
        const struct quant_matrix *m)
{
    *r = (struct codes_reader){.m = m, .codes = codes, .scales = scales};
    if (quant_is_4bit(m))
        quant_values(m->format, r->values);
    if (!m->nested_block)
        return;
    r->nested = r->scales + 1;
    r->absmax_codes =
            (const uint8_t
                     *)(r->nested + quant_parts(quant_scale_count(m), m->nested_block));
    quant_dynamic_map(r->map);
}

static void read_blocks(
        elem *out, const struct codes_reader *r, size_t begin, size_t end)
{
    size_t block = r->m->block, after = quant_parts(end, block);
    for (size_t at = begin; at < end;) {
        float unnested[UNNESTED];
        size_t first = at / block, count = after - first;
        const float *absmax = r->scales + first;
        count = count < UNNESTED ? count : UNNESTED;
        if (r->nested) {
            quant_unnest(
                    unnested, r->absmax_codes + first, r->nested, r->map,
                    r->scales[0], r->m->nested_block, first, count);
            absmax = unnested;
        }
        for (size_t b = 0; b < count; b++) {
            size_t stop = (first + b + 1) * block;
            stop = stop < end ? stop : end;
            decode_part(
                    out + (at - begin), r->codes, absmax[b], r->values, at,
                    stop);
            at = stop;
        }
    }
}

/* Reads columns [begin, end) of row r. */
static void read_row(
        elem *out, const struct codes_reader *reader, size_t r, size_t begin,
        size_t end)
{
    size_t columns = (size_t)reader->m->columns;
    const uint8_t *codes = reader->codes + r * columns;
    const float *of =
            reader->scales + r / QUANT_TILE * quant_parts(columns, QUANT_TILE);
    if (reader->m->format == QUANT_INT8) {
        decode8(out, (const int8_t *)codes + begin, reader->scales[r],
                end - begin);
        return;
    }
    for (size_t c = begin; c < end;) {
        size_t stop = (c / QUANT_TILE + 1) * QUANT_TILE;
        stop = stop < end ? stop : end;
        decode_fp8(out + (c - begin), codes + c, of[c / QUANT_TILE], stop - c);
        c = stop;
    }
}

/* Reads elements begin .. begin + count - 1; begin is at a block. */
static void codes_read(
        elem *out, const struct codes_reader *r, size_t begin, size_t count)
{
    size_t columns = (size_t)r->m->columns, end = begin + count;
    if (quant_is_4bit(r->m)) {
        read_blocks(out, r, begin, end);
        return;
    }
    for (size_t at = begin; at < end;) {
        size_t row = at / columns, stop = (row + 1) * columns;
        stop = stop < end ? stop : end;
        read_row(
                out + (at - begin), r, row, at - row * columns,
                stop - row * columns);
        at = stop;
    }
}

enum zd_status FAST(dequantize)(
        struct stream *stream, void *out, const void *codes, const void *scales,
        const struct quant_matrix *matrix)
{
    struct codes_reader reader;
    size_t count = quant_matrix_count(matrix);
    codes_reader_init(&reader, codes, scales, matrix);
#pragma omp parallel for schedule(static) num_threads(threads_for(count))
    for (size_t at = 0; at < count; at += SHARE)
        codes_read(
                (elem *)out + at, &reader, at,
                count - at < SHARE ? count - at : SHARE);
    return ZD_OK;
}
