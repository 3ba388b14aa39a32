#include "train/trainer/rank_report.h"

#include <criterion/criterion.h>

static double median_of(const double *busy, int size)
{
    double sorted[8];
    return stragglers_median(busy, size, sorted);
}

Test(stragglers, the_median_is_the_lower_one_of_two)
{
    cr_expect_eq(median_of((double[]){3}, 1), 3);
    cr_expect_eq(median_of((double[]){4, 2}, 2), 2);
    cr_expect_eq(median_of((double[]){9, 1, 4}, 3), 4);
    cr_expect_eq(median_of((double[]){5, 1, 3, 2}, 4), 2);
}

Test(stragglers, a_rank_half_as_fast_is_one_and_one_a_third_slower_is_none)
{
    cr_expect(stragglers_is_one(2.0, 1.0));
    cr_expect(stragglers_is_one(1.51, 1.0));
    cr_expect_not(stragglers_is_one(1.33, 1.0));
    cr_expect_not(stragglers_is_one(1.0, 1.0));
}

/* Fifty steps of a fraction of a millisecond: nobody waits long for that. */
Test(stragglers, less_than_a_millisecond_a_step_is_not_told)
{
    cr_expect_not(stragglers_is_one(0.06, 0.02));
    cr_expect(stragglers_is_one(0.08, 0.02));
}
