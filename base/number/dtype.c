#include "base/number/dtype.h"

#include "base/number/dtype_lanes.h"

#include <assert.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

const char *dtype_name(enum dtype type)
{
    static const char *const names[] = {"fp32", "bf16", "fp16", "e4m3", "e5m2"};
    return names[type];
}

const char *dtype_safetensors_name(enum dtype type)
{
    static const char *const names[] = {
            "F32", "BF16", "F16", "F8_E4M3", "F8_E5M2"};
    return names[type];
}

const char *dtype_torch_name(enum dtype type)
{
    static const char *const names[] = {"float32", "bfloat16", "float16"};
    return names[type];
}

bool dtype_find(
        const char *(*name_of)(enum dtype type), const char *name,
        enum dtype *type_out)
{
    for (enum dtype type = DTYPE_FP32; name && type <= DTYPE_FP16; type++)
        if (strcmp(name_of(type), name) == 0) {
            *type_out = type;
            return true;
        }
    return false;
}

/* --- the definitions: branch-free, so that loops vectorize ------------- */

/* The bits of an fp16, shifted to a float's exponent and fraction, read as its
 * value times 2^-112, also when it is subnormal. A NaN is made quiet. */
static inline float widen_fp16(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000u) << 16, bits;
    uint32_t shifted = (uint32_t)(x & 0x7fffu) << 13;
    uint32_t special = shifted | 0x7f800000u;
    special |= shifted > 0x0f800000u ? 0x400000u : 0u;
    float value;
    memcpy(&value, &shifted, sizeof value);
    value *= 0x1p112f;
    memcpy(&bits, &value, sizeof bits);
    bits = sign | (shifted >= 0x0f800000u ? special : bits);
    memcpy(&value, &bits, sizeof bits);
    return value;
}

/* Below 2^-14, adding 0.5 puts the wanted bits at the end of the fraction,
 * rounded to nearest even by the addition itself. */
static inline uint16_t narrow_fp16(float f)
{
    uint32_t bits, small;
    memcpy(&bits, &f, sizeof bits);
    uint32_t sign = (bits >> 16) & 0x8000u, a = bits & 0x7fffffffu;
    float sum;
    memcpy(&sum, &a, sizeof sum);
    sum += 0.5f;
    memcpy(&small, &sum, sizeof small);
    small -= 0x3f000000u;
    uint32_t rounded = (a + 0xfffu + ((a >> 13) & 1u) - 0x38000000u) >> 13;
    uint32_t half = a < 0x38800000u ? small : rounded;
    half = a >= 0x477ff000u ? 0x7c00u : half; /* rounds to 2^16 or more */
    half = a > 0x7f800000u ? 0x7e00u | ((a >> 13) & 0x3ffu) : half; /* NaN */
    return (uint16_t)(sign | half);
}

float fp16_to_float(uint16_t x)
{
    return widen_fp16(x);
}

uint16_t float_to_fp16(float f)
{
    return narrow_fp16(f);
}

/* --- arrays on any machine ------------------------------------------------ */

static inline __attribute__((always_inline)) void widen_bf16_base(
        float *out, const uint16_t *in, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = bf16_to_float(in[i]);
}

static void narrow_bf16_base(uint16_t *out, const float *in, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &in[i], sizeof bits);
        uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
        uint32_t quiet = (bits >> 16) | 0x40u;
        uint32_t half = (bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded;
        out[i] = (uint16_t)half;
    }
}

static void widen_fp16_base(float *out, const uint16_t *in, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = widen_fp16(in[i]);
}

static void narrow_fp16_base(uint16_t *out, const float *in, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = narrow_fp16(in[i]);
}

static const struct dtype_lanes base = {
        "base", widen_bf16_base, widen_fp16_base, narrow_bf16_base,
        narrow_fp16_base};

#if defined(__x86_64__)

/* --- AVX2 and F16C: AVX-512 is no faster, as memory is the limit -----------
 */

#define AVX2 __attribute__((target("avx2,f16c")))

/* The compiler's vectors are as fast as any. */
AVX2 static void widen_bf16_avx2(float *out, const uint16_t *in, size_t count)
{
    widen_bf16_base(out, in, count);
}

AVX2 static void widen_fp16_avx2(float *out, const uint16_t *in, size_t count)
{
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m128i half = _mm_loadu_si128((const __m128i *)(in + i));
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(half));
    }
    widen_fp16_base(out + i, in + i, count - i);
}

AVX2 static inline __m256i bf16_bits_avx2(__m256 x)
{
    __m256i bits = _mm256_castps_si256(x), high = _mm256_srli_epi32(bits, 16);
    __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    __m256i sum = _mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(sum, odd), 16);
    __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, quiet, nan);
}

AVX2 static void narrow_bf16_avx2(uint16_t *out, const float *in, size_t count)
{
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        __m256i a = bf16_bits_avx2(_mm256_loadu_ps(in + i));
        __m256i b = bf16_bits_avx2(_mm256_loadu_ps(in + i + 8));
        __m256i mixed = _mm256_packus_epi32(a, b); /* a b a b by 4 elements */
        _mm256_storeu_si256(
                (__m256i *)(out + i), _mm256_permute4x64_epi64(mixed, 0xd8));
    }
    narrow_bf16_base(out + i, in + i, count - i);
}

AVX2 static void narrow_fp16_avx2(uint16_t *out, const float *in, size_t count)
{
    size_t i = 0;
    for (; i + 8 <= count; i += 8)
        _mm_storeu_si128(
                (__m128i *)(out + i),
                _mm256_cvtps_ph(
                        _mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
    narrow_fp16_base(out + i, in + i, count - i);
}

static const struct dtype_lanes avx2 = {
        "avx2", widen_bf16_avx2, widen_fp16_avx2, narrow_bf16_avx2,
        narrow_fp16_avx2};

#endif

/* --- the choice ----------------------------------------------------------- */

const struct dtype_lanes *dtype_lanes_at(const char *name)
{
#if defined(__x86_64__)
    bool has_f16c = __builtin_cpu_supports("f16c");
    if (strcmp(name, "avx2") == 0)
        return has_f16c && __builtin_cpu_supports("avx2") ? &avx2 : NULL;
#endif
    return strcmp(name, "base") == 0 ? &base : NULL;
}

static const struct dtype_lanes *widest_lanes(void)
{
    const struct dtype_lanes *wide = dtype_lanes_at("avx2");
    return wide ? wide : &base;
}

/* --- arrays of any types -------------------------------------------------- */

/* Floats at a time of a conversion through fp32: they stay in the first-level
 * cache. */
enum { BLOCK = 1024 };

static void widen(float *out, const uint16_t *in, enum dtype type, size_t count)
{
    const struct dtype_lanes *lanes = widest_lanes();
    assert(!dtype_is_fp8(type));
    (type == DTYPE_BF16 ? lanes->widen_bf16
                        : lanes->widen_fp16)(out, in, count);
}

static void narrow(
        uint16_t *out, const float *in, enum dtype type, size_t count)
{
    const struct dtype_lanes *lanes = widest_lanes();
    assert(!dtype_is_fp8(type));
    (type == DTYPE_BF16 ? lanes->narrow_bf16
                        : lanes->narrow_fp16)(out, in, count);
}

void dtype_convert(
        void *out, enum dtype out_type, const void *in, enum dtype in_type,
        size_t count)
{
    if (out_type == in_type) {
        if (out != in)
            memmove(out, in, count * dtype_bytes(out_type));
    } else if (out_type == DTYPE_FP32) {
        widen(out, in, in_type, count);
    } else if (in_type == DTYPE_FP32) {
        narrow(out, in, out_type, count);
    } else {
        float wide[BLOCK];
        for (size_t i = 0; i < count; i += BLOCK) {
            size_t n = count - i < BLOCK ? count - i : BLOCK;
            widen(wide, (const uint16_t *)in + i, in_type, n);
            narrow((uint16_t *)out + i, wide, out_type, n);
        }
    }
}

void dtype_round(float *values, enum dtype type, size_t count)
{
    uint16_t rounded[BLOCK];
    if (type == DTYPE_FP32)
        return;
    for (size_t i = 0; i < count; i += BLOCK) {
        size_t n = count - i < BLOCK ? count - i : BLOCK;
        narrow(rounded, values + i, type, n);
        widen(values + i, rounded, type, n);
    }
}

/* Element i moves to bytes 2i.., which lie before every float not yet read. */
void dtype_narrow_in_place(float *values, enum dtype type, size_t count)
{
    uint16_t rounded[BLOCK];
    if (type == DTYPE_FP32)
        return;
    for (size_t i = 0; i < count; i += BLOCK) {
        size_t n = count - i < BLOCK ? count - i : BLOCK;
        narrow(rounded, values + i, type, n);
        memcpy((char *)values + i * sizeof *rounded, rounded,
               n * sizeof *rounded);
    }
}
