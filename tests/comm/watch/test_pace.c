#include "comm/watch/pace.h"

#include <criterion/criterion.h>

static void add(struct pace *pace, double seconds, int times)
{
    for (int i = 0; i < times; i++)
        pace_add(pace, seconds);
}

static void expect(const struct pace *pace, double seconds)
{
    double limit = pace_limit(pace);
    cr_expect(
            limit > seconds - 1e-9 && limit < seconds + 1e-9, "%g, not %g",
            limit, seconds);
}

Test(pace, ten_times_as_long_until_two_steps_were_made)
{
    struct pace pace = {0};
    expect(&pace, 100);
    add(&pace, 4, 1);
    expect(&pace, 200);
    add(&pace, 4, 1);
    expect(&pace, 20);
}

Test(pace, ten_predicted_steps_until_two_were_made)
{
    struct pace pace = {.predicted = 60};
    expect(&pace, 600);
    add(&pace, 4, 1);
    expect(&pace, 600);
    add(&pace, 4, 1);
    expect(&pace, 20);
    pace = (struct pace){.predicted = 0.1};
    expect(&pace, 100);
}

Test(pace, five_times_the_longest_and_no_less_than_ten_seconds)
{
    struct pace pace = {0};
    add(&pace, 0.1, 10);
    expect(&pace, 10);
    add(&pace, 3, 10);
    add(&pace, 4, 1);
    expect(&pace, 20);
}

Test(pace, a_step_over_three_medians_is_no_measure)
{
    struct pace pace = {0};
    add(&pace, 60, 1); /* the first opens libraries */
    add(&pace, 3, 5);
    expect(&pace, 15);
    add(&pace, 9, 1);
    expect(&pace, 45);
    add(&pace, 9.1, 1);
    expect(&pace, 45);
}

Test(pace, steps_of_long_ago_do_not_count)
{
    struct pace pace = {0};
    add(&pace, 8, 40);
    expect(&pace, 40);
    add(&pace, 4, PACE_STEPS);
    expect(&pace, 20);
}
