#include "base/number/exact_sum.h"
#include "base/number/rng.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

enum { COUNT = 2000 };

/* Shewchuk 1997, "Adaptive precision floating-point arithmetic": a list of
 * non-overlapping doubles holds the sum exactly; then one correct rounding. */
static double reference_sum(const double *terms, int count)
{
    static double parts[4096];
    int used = 0;
    for (int i = 0; i < count; i++) {
        double x = terms[i];
        int kept = 0;
        for (int k = 0; k < used; k++) {
            double y = parts[k];
            if (fabs(x) < fabs(y)) {
                double swap = x;
                x = y;
                y = swap;
            }
            double high = x + y, low = y - (high - x);
            if (low != 0)
                parts[kept++] = low;
            x = high;
        }
        parts[kept++] = x;
        used = kept;
    }
    double high = used ? parts[--used] : 0, low = 0;
    while (used > 0) {
        double x = high, y = parts[--used];
        high = x + y;
        low = y - (high - x);
        if (low != 0)
            break;
    }
    /* a tie is broken by what is below it */
    if (used > 0 && ((low < 0 && parts[used - 1] < 0) ||
                     (low > 0 && parts[used - 1] > 0))) {
        double twice = 2 * low, x = high + twice;
        if (x - high == twice)
            high = x;
    }
    return high;
}

/* Mantissas and exponents at random: magnitudes 2^-spread .. 2^spread. */
static void random_terms(double *terms, uint64_t seed, int spread)
{
    for (int i = 0; i < COUNT; i++) {
        double u = 2 * rng_uniform(seed, 0, (uint64_t)i) - 1;
        int exponent = (int)(rng_u64(seed, 1, (uint64_t)i) %
                             (uint64_t)(2 * spread + 1)) -
                       spread;
        terms[i] = ldexp(u, exponent);
    }
}

static double sum_of(const double *terms, int count)
{
    struct exact_sum sum = {0};
    for (int i = 0; i < count; i++)
        exact_sum_add(&sum, terms[i]);
    return exact_sum_value(&sum);
}

Test(exact_sum, is_correctly_rounded)
{
    static const int spreads[] = {0, 3, 30, 53, 54, 100, 500, 1000};
    double terms[COUNT];
    for (size_t s = 0; s < sizeof spreads / sizeof spreads[0]; s++)
        for (uint64_t seed = 1; seed <= 20; seed++) {
            random_terms(terms, seed, spreads[s]);
            /* take most of it away again, so that small terms decide */
            for (int i = 0; i < COUNT / 2 - 20; i++)
                terms[COUNT - 1 - i] = -terms[i];
            cr_assert_eq(sum_of(terms, COUNT), reference_sum(terms, COUNT));
            cr_assert_eq(sum_of(terms, 3), reference_sum(terms, 3));
        }
}

Test(exact_sum, ties_round_to_even_and_what_is_below_breaks_them)
{
    const double ulp = DBL_EPSILON;
    double tie[] = {1, ulp / 2};
    cr_expect_eq(sum_of(tie, 2), 1);
    double odd_tie[] = {1 + ulp, ulp / 2};
    cr_expect_eq(sum_of(odd_tie, 2), 1 + 2 * ulp);
    double above[] = {1, ulp / 2, 5e-324};
    cr_expect_eq(sum_of(above, 3), 1 + ulp);
    double below[] = {1 + ulp, ulp / 2, -5e-324};
    cr_expect_eq(sum_of(below, 3), 1 + ulp);
}

Test(exact_sum, parts_merge_to_equal_digits)
{
    double terms[COUNT];
    struct exact_sum whole = {0}, total;
    random_terms(terms, 11, 700);
    for (int i = 0; i < COUNT; i++)
        exact_sum_add(&whole, terms[i]);
    exact_sum_carry(&whole);
    for (int parts = 1; parts <= 9; parts++) {
        exact_sum_clear(&total);
        for (int p = 0; p < parts; p++) {
            struct exact_sum part = {0};
            for (int i = p; i < COUNT; i += parts)
                exact_sum_add(&part, terms[i]);
            if (p % 2) /* with and without normalizing first */
                exact_sum_carry(&part);
            exact_sum_merge(&total, &part);
        }
        exact_sum_carry(&total);
        cr_assert_arr_eq(&total, &whole, sizeof total);
    }
}

Test(exact_sum, carries_before_digits_overflow)
{
    struct exact_sum sum, other;
    exact_sum_clear(&sum);
    exact_sum_add(&sum, DBL_MAX);
    exact_sum_add(&sum, -DBL_MAX);
    /* doubling 40 times stands for 2^40 additions of both signs */
    exact_sum_add(&sum, 0x1.fffffffffffffp200);
    for (int i = 0; i < 40; i++) {
        other = sum;
        exact_sum_merge(&sum, &other);
    }
    cr_expect_eq(exact_sum_value(&sum), 0x1.fffffffffffffp240);
    exact_sum_clear(&sum);
    exact_sum_add(&sum, -0x1.fffffffffffffp200);
    for (int i = 0; i < 40; i++) {
        other = sum;
        exact_sum_merge(&sum, &other);
    }
    cr_expect_eq(exact_sum_value(&sum), -0x1.fffffffffffffp240);
    cr_expect_lt(sum.pending, (int64_t)1 << 31);
}

Test(exact_sum, ends_of_the_range)
{
    double smallest[] = {5e-324, 5e-324, 5e-324};
    cr_expect_eq(sum_of(smallest, 3), 3 * 5e-324);
    double edge[] = {DBL_MIN, -5e-324};
    cr_expect_eq(sum_of(edge, 2), DBL_MIN - 5e-324);
    double largest[] = {DBL_MAX, DBL_MAX, -DBL_MAX};
    cr_expect_eq(sum_of(largest, 3), DBL_MAX);
    double beyond[] = {DBL_MAX, DBL_MAX};
    cr_expect_eq(sum_of(beyond, 2), INFINITY);
    double below[] = {-DBL_MAX, -DBL_MAX};
    cr_expect_eq(sum_of(below, 2), -INFINITY);
    cr_expect_eq(sum_of(NULL, 0), 0);
    double nothing[] = {1e300, 1, -1e300, -1};
    cr_expect_eq(sum_of(nothing, 4), 0);
}

Test(exact_sum, a_sum_that_is_not_finite_is_reported)
{
    double with_nan[] = {1, NAN, 2};
    cr_expect(isnan(sum_of(with_nan, 3)));
    double infinities[] = {INFINITY, -INFINITY};
    cr_expect(isnan(sum_of(infinities, 2)));
    struct exact_sum bad = {0}, sum = {0};
    exact_sum_add(&bad, INFINITY);
    exact_sum_merge(&sum, &bad);
    cr_expect_eq(sum.nonfinite, 1);
}
