#include "base/must.h"
#include "base/number/philox.h"
#include "base/number/rng.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

/* philox4x32 10 of the Random123 distribution's known answers:
 * counter words, key words, result. Ours: index = counter 0 and 1, stream =
 * counter 2 and 3, seed = key. */
Test(rng, philox_known_answers)
{
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } rows[] = {
            {{0, 0, 0, 0},
             {0, 0},
             {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
            {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
             {0xffffffff, 0xffffffff},
             {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
            {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
             {0xa4093822, 0x299f31d0},
             {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const uint32_t *c = rows[i].counter, *k = rows[i].key;
        uint32_t out[4];
        philox((uint64_t)k[1] << 32 | k[0], (uint64_t)c[3] << 32 | c[2],
               (uint64_t)c[1] << 32 | c[0], out);
        cr_expect_arr_eq(out, rows[i].want, sizeof out, "row %zu", i);
    }
}

Test(rng, streams_have_names)
{
    /* FNV-1a 64 of the empty string and of "a" */
    cr_expect_eq(rng_stream(""), 0xcbf29ce484222325u);
    cr_expect_eq(rng_stream("a"), 0xaf63dc4c8601ec8cu);
    cr_expect_neq(
            rng_u64(1, rng_stream("a"), 0), rng_u64(1, rng_stream("b"), 0));
}

Test(rng, uniform_stays_in_range_with_the_right_mean)
{
    double sum = 0;
    enum { COUNT = 100000 };
    for (uint64_t i = 0; i < COUNT; i++) {
        double u = rng_uniform(5, 6, i);
        cr_assert(u >= 0 && u < 1);
        sum += u;
    }
    cr_expect_float_eq(sum / COUNT, 0.5, 5 * sqrt(1.0 / 12 / COUNT));
}

static double upper_53(const uint32_t words[2])
{
    return (double)(((uint64_t)words[1] << 32 | words[0]) >> 11);
}

Test(rng, normal_is_box_muller_by_the_library)
{
    enum { COUNT = 200000 };
    const double two_pi = 6.283185307179586476925286766559;
    ZD_FREED float *x = malloc(COUNT * sizeof *x);
    rng_normal(3, 4, 0, COUNT, x);
    for (int i = 0; i < COUNT; i++) {
        uint32_t words[4];
        philox(3, 4, (uint64_t)i / 2, words);
        double u = (upper_53(words) + 1) * 0x1p-53;
        double angle = two_pi * (upper_53(words + 2) * 0x1p-53);
        double expected = sqrt(-2 * log(u)) * (i % 2 ? sin(angle) : cos(angle));
        /* half a unit of fp32's last place, and a little of doubles' */
        cr_assert_float_eq(
                x[i], expected, fabs(expected) * (0x1p-24 + 0x1p-48) + 0x1p-46,
                "element %d: %a, %a", i, x[i], expected);
    }
}

Test(rng, normal_depends_on_the_element_alone)
{
    float whole[101], part[101];
    rng_normal(9, 8, 0, 101, whole);
    for (size_t begin = 0; begin < 101; begin += 7)
        for (size_t count = 0; begin + count <= 101; count += 5) {
            rng_normal(9, 8, begin, count, part);
            cr_assert_arr_eq(part, whole + begin, count * sizeof *part);
        }
}

Test(rng, permutation_is_a_bijection)
{
    static const uint64_t counts[] = {1,   2,   3,   4,   5,    7,     16,   17,
                                      100, 255, 256, 257, 1000, 65536, 65537};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        ZD_FREED unsigned char *seen = calloc(counts[c], 1);
        for (uint64_t i = 0; i < counts[c]; i++) {
            uint64_t at = rng_permute(42, c, i, counts[c]);
            cr_assert_lt(at, counts[c]);
            cr_assert_not(seen[at], "%lu is hit twice of %lu", at, counts[c]);
            seen[at] = 1;
        }
    }
}

Test(rng, every_order_of_three_appears_equally_often)
{
    int counts[27] = {0};
    for (uint64_t seed = 0; seed < 6000; seed++) {
        int key = 0;
        for (uint64_t i = 0; i < 3; i++)
            key = key * 3 + (int)rng_permute(seed, 0, i, 3);
        counts[key]++;
    }
    /* 6 orders of 1000 each, give or take 6 deviations */
    for (int key = 0; key < 27; key++)
        cr_expect(
                counts[key] == 0 || abs(counts[key] - 1000) < 175, "%d: %d",
                key, counts[key]);
}

Test(rng, permutes_more_than_memory_holds)
{
    uint64_t count = ((uint64_t)1 << 62) + 12345;
    for (uint64_t i = 0; i < 100; i++)
        cr_assert_lt(rng_permute(3, 4, count - 1 - i, count), count);
    cr_expect_neq(rng_permute(3, 4, 0, count), rng_permute(3, 4, 1, count));
}
