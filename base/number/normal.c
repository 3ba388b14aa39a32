/* rng_normal, using only IEEE 754's add, multiply, divide and square root, in
 * loops that compilers vectorize: the same bits on every machine, independent
 * of its math library. */
#include "base/number/philox.h"
#include "base/number/rng.h"

#include <math.h>
#include <string.h>

enum { PAIRS = 64 }; /* that are made at a time */

static inline uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double double_of(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ln u of a normal number u > 0, within 2^-52 of it: u = 2^e m, m from
 * sqrt(1/2) to sqrt(2); ln m = 2 artanh((m - 1) / (m + 1)) by its series. */
static inline double log_of(double u)
{
    const uint64_t one = 0x3ff0000000000000, root_half = 0x3fe6a09e667f3bcd;
    const double ln2_high = 0x1.62e42fefa38p-1, ln2_low = 0x1.ef35793c7673p-45;
    /* a mantissa of sqrt(2) or more carries into the exponent */
    uint64_t biased = (bits_of(u) + (one - root_half)) >> 52;
    double m = double_of(bits_of(u) + one - (biased << 52));
    double e = double_of(biased | bits_of(0x1p52)) - (0x1p52 + 1023);
    double s = (m - 1) / (m + 1), z = s * s;
    double sum = 1.0 / 21;
    sum = sum * z + 1.0 / 19;
    sum = sum * z + 1.0 / 17;
    sum = sum * z + 1.0 / 15;
    sum = sum * z + 1.0 / 13;
    sum = sum * z + 1.0 / 11;
    sum = sum * z + 1.0 / 9;
    sum = sum * z + 1.0 / 7;
    sum = sum * z + 1.0 / 5;
    sum = sum * z + 1.0 / 3;
    return e * ln2_high + (e * ln2_low + 2 * (s + s * z * sum));
}

/* Cosine and sine of `turns` whole turns, [0, 1), within 2^-52: the series for
 * the angle to the nearest quarter turn, then swapped and negated for the
 * quarter. */
static inline void turn(double turns, double *cos_out, double *sin_out)
{
    const double two_pi = 6.283185307179586476925286766559;
    const double integers = 0x1.8p52; /* here doubles are 1 apart */
    double nearest = 4 * turns + integers;
    uint64_t quarter = bits_of(nearest); /* its low bits: 0 .. 4 */
    double x = two_pi * (turns - 0.25 * (nearest - integers)), z = x * x;
    double s = -1.0 / 1307674368000; /* 1 / 15! */
    s = s * z + 1.0 / 6227020800;
    s = s * z - 1.0 / 39916800;
    s = s * z + 1.0 / 362880;
    s = s * z - 1.0 / 5040;
    s = s * z + 1.0 / 120;
    s = s * z - 1.0 / 6;
    s = x + x * z * s;
    double c = 1.0 / 20922789888000; /* 1 / 16! */
    c = c * z - 1.0 / 87178291200;
    c = c * z + 1.0 / 479001600;
    c = c * z - 1.0 / 3628800;
    c = c * z + 1.0 / 40320;
    c = c * z - 1.0 / 720;
    c = c * z + 1.0 / 24;
    c = 1 - 0.5 * z + z * z * c;
    uint64_t swap = -(quarter & 1) & (bits_of(s) ^ bits_of(c));
    *cos_out = double_of(bits_of(c) ^ swap ^ ((quarter + 1) & 2) << 62);
    *sin_out = double_of(bits_of(s) ^ swap ^ (quarter & 2) << 62);
}

/* The upper 53 of 64 bits. */
static inline double high_bits(uint32_t low, uint32_t high)
{
    return (double)(int64_t)(((uint64_t)high << 32 | low) >> 11);
}

/* Elements 2 first .. 2 (first + PAIRS) - 1. */
static void normal_pairs(
        uint64_t seed, uint64_t stream, uint64_t first, float out[2 * PAIRS])
{
    uint32_t words[4][PAIRS];
    double uniform[PAIRS], turns[PAIRS];
    for (int i = 0; i < PAIRS; i++) {
        uint32_t counter[4];
        philox(seed, stream, first + (uint64_t)i, counter);
        for (int w = 0; w < 4; w++)
            words[w][i] = counter[w];
    }
    for (int i = 0; i < PAIRS; i++) {
        /* (0, 1], so that the logarithm is finite */
        uniform[i] = (high_bits(words[0][i], words[1][i]) + 1) * 0x1p-53;
        turns[i] = high_bits(words[2][i], words[3][i]) * 0x1p-53;
    }
    for (int i = 0; i < PAIRS; i++) {
        double radius = sqrt(-2 * log_of(uniform[i])), cosine, sine;
        turn(turns[i], &cosine, &sine);
        out[2 * i] = (float)(radius * cosine);
        out[2 * i + 1] = (float)(radius * sine);
    }
}

void rng_normal(
        uint64_t seed, uint64_t stream, uint64_t begin, size_t count,
        float *out)
{
    while (count) {
        float made[2 * PAIRS];
        size_t skip = begin % (2 * PAIRS), take = 2 * PAIRS - skip;
        if (take > count)
            take = count;
        normal_pairs(seed, stream, (begin - skip) / 2, made);
        memcpy(out, made + skip, take * sizeof *out);
        begin += take;
        count -= take;
        out += take;
    }
}
