/* Every rule of train/job/loss_scale.h. */
#include "train/job/loss_scale.h"

#include <criterion/criterion.h>

static const struct fp16_options defaults = {
        .initial_scale_power = 16,
        .loss_scale_window = 4,
        .hysteresis = 2,
        .min_loss_scale = 1};

static enum loss_scale_change good(
        struct loss_scale *state, const struct fp16_options *options, int steps)
{
    enum loss_scale_change change = LOSS_SCALE_KEPT;
    for (int i = 0; i < steps; i++)
        change = loss_scale_update(state, options, false);
    return change;
}

static enum loss_scale_change overflow(
        struct loss_scale *state, const struct fp16_options *options)
{
    return loss_scale_update(state, options, true);
}

Test(loss_scale, begins_at_the_power_or_at_the_fixed_scale)
{
    struct fp16_options fixed = defaults;
    fixed.loss_scale = 300;
    cr_expect_eq(loss_scale_start(&defaults).scale, 65536);
    cr_expect_eq(loss_scale_start(&defaults).hysteresis, 2);
    cr_expect_eq(loss_scale_start(&fixed).scale, 300);
}

Test(loss_scale, the_first_overflows_are_taken_by_the_hysteresis)
{
    struct fp16_options options = defaults;
    options.hysteresis = 3;
    struct loss_scale state = loss_scale_start(&options);
    cr_expect_eq(overflow(&state, &options), LOSS_SCALE_WAITED);
    cr_expect_eq(overflow(&state, &options), LOSS_SCALE_WAITED);
    cr_expect_eq(state.scale, 65536);
    cr_expect_eq(overflow(&state, &options), LOSS_SCALE_SHRANK);
    cr_expect_eq(state.scale, 32768);
}

Test(loss_scale, once_it_shrinks_each_overflow_halves_it)
{
    struct loss_scale state = loss_scale_start(&defaults);
    overflow(&state, &defaults);
    overflow(&state, &defaults);
    cr_expect_eq(overflow(&state, &defaults), LOSS_SCALE_SHRANK);
    good(&state, &defaults, 3); /* short of a window: no hysteresis again */
    cr_expect_eq(overflow(&state, &defaults), LOSS_SCALE_SHRANK);
    cr_expect_eq(state.scale, 8192);
}

Test(loss_scale, without_hysteresis_the_first_overflow_halves_it)
{
    struct fp16_options options = defaults;
    options.hysteresis = 1;
    struct loss_scale state = loss_scale_start(&options);
    cr_expect_eq(overflow(&state, &options), LOSS_SCALE_SHRANK);
    cr_expect_eq(state.scale, 32768);
}

Test(loss_scale, grows_with_the_step_after_each_window)
{
    struct loss_scale state = loss_scale_start(&defaults);
    cr_expect_eq(good(&state, &defaults, 4), LOSS_SCALE_KEPT);
    cr_expect_eq(state.scale, 65536);
    cr_expect_eq(good(&state, &defaults, 1), LOSS_SCALE_GREW);
    cr_expect_eq(state.scale, 131072);
    cr_expect_eq(good(&state, &defaults, 3), LOSS_SCALE_KEPT);
    cr_expect_eq(good(&state, &defaults, 1), LOSS_SCALE_GREW);
    cr_expect_eq(state.scale, 262144);
}

Test(loss_scale, an_overflow_begins_the_window_anew)
{
    struct loss_scale state = loss_scale_start(&defaults);
    good(&state, &defaults, 4);
    cr_expect_eq(overflow(&state, &defaults), LOSS_SCALE_WAITED);
    cr_expect_eq(good(&state, &defaults, 4), LOSS_SCALE_KEPT);
    cr_expect_eq(good(&state, &defaults, 1), LOSS_SCALE_GREW);
}

Test(loss_scale, growth_restores_the_hysteresis)
{
    struct loss_scale state = loss_scale_start(&defaults);
    overflow(&state, &defaults);
    cr_expect_eq(state.hysteresis, 1);
    good(&state, &defaults, 5);
    cr_expect_eq(state.hysteresis, 2);
    cr_expect_eq(overflow(&state, &defaults), LOSS_SCALE_WAITED);
}

Test(loss_scale, does_not_shrink_below_the_smallest)
{
    struct fp16_options options = defaults;
    options.hysteresis = 1;
    options.min_loss_scale = 40000;
    struct loss_scale state = loss_scale_start(&options);
    cr_expect_eq(overflow(&state, &options), LOSS_SCALE_SHRANK);
    cr_expect_eq(state.scale, 40000);
    cr_expect_eq(overflow(&state, &options), LOSS_SCALE_SPENT);
    cr_expect_eq(state.scale, 40000);
}

Test(loss_scale, at_the_smallest_the_hysteresis_still_waits)
{
    struct fp16_options options = defaults;
    options.initial_scale_power = 0;
    struct loss_scale state = loss_scale_start(&options);
    cr_expect_eq(overflow(&state, &options), LOSS_SCALE_WAITED);
    cr_expect_eq(overflow(&state, &options), LOSS_SCALE_SPENT);
}

Test(loss_scale, a_fixed_scale_never_changes)
{
    struct fp16_options options = defaults;
    options.loss_scale = 128;
    struct loss_scale state = loss_scale_start(&options);
    for (int i = 0; i < 5; i++)
        cr_expect_eq(overflow(&state, &options), LOSS_SCALE_KEPT);
    cr_expect_eq(good(&state, &options, 20), LOSS_SCALE_KEPT);
    cr_expect_eq(state.scale, 128);
}

Test(loss_scale, a_saved_state_goes_on_as_if_it_had_not_been_saved)
{
    struct loss_scale whole = loss_scale_start(&defaults);
    struct loss_scale cut = whole;
    for (int step = 0; step < 40; step++) {
        bool overflowed = step % 11 > 8;
        struct loss_scale saved = cut;
        cut = loss_scale_resume(&saved, &defaults);
        cr_expect_eq(
                loss_scale_update(&cut, &defaults, overflowed),
                loss_scale_update(&whole, &defaults, overflowed));
        cr_expect_eq(cut.scale, whole.scale);
    }
}

Test(loss_scale, resuming_obeys_the_options_of_now)
{
    struct loss_scale none = {0},
                      saved = {.scale = 64, .good_steps = 3, .hysteresis = 2};
    struct fp16_options options = defaults;
    cr_expect_eq(loss_scale_resume(&none, &options).scale, 65536);
    options.min_loss_scale = 128;
    options.hysteresis = 1;
    cr_expect_eq(loss_scale_resume(&saved, &options).scale, 128);
    cr_expect_eq(loss_scale_resume(&saved, &options).hysteresis, 1);
    cr_expect_eq(loss_scale_resume(&saved, &options).good_steps, 3);
    options.loss_scale = 7;
    cr_expect_eq(loss_scale_resume(&saved, &options).scale, 7);
}
