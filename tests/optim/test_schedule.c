#include "optim/optim.h"

#include <criterion/criterion.h>
#include <math.h>

static struct optim_options options(enum lr_schedule schedule, double warmup)
{
    struct optim_options o = optim_options_default();
    o.learning_rate = 2.0;
    o.min_lr_ratio = 0.1;
    o.lr_scheduler_type = schedule;
    o.warmup_steps = warmup;
    return o;
}

static void expect_near(double got, double want)
{
    cr_expect(fabs(got - want) < 1e-12, "%.15g is not %.15g", got, want);
}

Test(schedule, warm_up_rises_to_the_full_rate)
{
    for (int s = LR_LINEAR; s <= LR_WSD; s++) {
        struct optim_options o = options((enum lr_schedule)s, 4);
        expect_near(optim_learning_rate(&o, 0, 100), 0.5);
        expect_near(optim_learning_rate(&o, 2, 100), 1.5);
        expect_near(optim_learning_rate(&o, 3, 100), 2.0);
        expect_near(optim_learning_rate(&o, 4, 100), 2.0);
    }
}

Test(schedule, a_fraction_of_steps_is_rounded_up)
{
    struct optim_options o = options(LR_LINEAR, 0.03);
    cr_expect_eq(optim_warmup_steps(&o, 100), 3);
    cr_expect_eq(optim_warmup_steps(&o, 101), 4);
    cr_expect_eq(optim_warmup_steps(&o, 1), 1);
    cr_expect_eq(optim_wsd_decay_steps(&o, 12), 3);
    o.warmup_steps = 0;
    cr_expect_eq(optim_warmup_steps(&o, 100), 0);
    o.warmup_steps = 7;
    cr_expect_eq(optim_warmup_steps(&o, 100), 7);
}

Test(schedule, linear_falls_to_its_floor)
{
    struct optim_options o = options(LR_LINEAR, 10);
    expect_near(optim_learning_rate(&o, 10, 110), 2.0);
    expect_near(optim_learning_rate(&o, 60, 110), 2.0 * 0.55);
    expect_near(optim_learning_rate(&o, 109, 110), 2.0 * (1 - 0.9 * 0.99));
}

Test(schedule, cosine_is_half_way_in_the_middle)
{
    struct optim_options o = options(LR_COSINE, 0);
    expect_near(optim_learning_rate(&o, 0, 100), 2.0);
    expect_near(optim_learning_rate(&o, 50, 100), 2.0 * 0.55);
    expect_near(
            optim_learning_rate(&o, 25, 100),
            2.0 * (0.1 + 0.9 * (1 + sqrt(0.5)) / 2));
}

Test(schedule, constant_stays)
{
    struct optim_options o = options(LR_CONSTANT, 2);
    expect_near(optim_learning_rate(&o, 2, 50), 2.0);
    expect_near(optim_learning_rate(&o, 49, 50), 2.0);
}

Test(schedule, wsd_is_stable_then_falls_over_the_last_steps)
{
    struct optim_options o = options(LR_WSD, 5);
    o.wsd_decay_steps = 20;
    expect_near(optim_learning_rate(&o, 79, 100), 2.0);
    expect_near(optim_learning_rate(&o, 80, 100), 2.0);
    expect_near(optim_learning_rate(&o, 90, 100), 2.0 * 0.55);
    expect_near(optim_learning_rate(&o, 99, 100), 2.0 * (1 - 0.9 * 0.95));
    o.wsd_decay_steps = 0.2;
    expect_near(optim_learning_rate(&o, 90, 100), 2.0 * 0.55);
}

Test(schedule, a_warm_up_as_long_as_the_run_never_divides_by_nothing)
{
    for (int s = LR_LINEAR; s <= LR_WSD; s++) {
        struct optim_options o = options((enum lr_schedule)s, 10);
        expect_near(optim_learning_rate(&o, 9, 10), 2.0);
        cr_expect(isfinite(optim_learning_rate(&o, 10, 10)));
    }
}
