/* Every rule of train/job/loss_scale.h: steps, and what becomes of the scale.
 */
#include "train/job/loss_scale.h"

#include <criterion/criterion.h>
#include <string.h>

static const struct fp16_options defaults = {
        .initial_scale_power = 16,
        .loss_scale_window = 4,
        .hysteresis = 2,
        .min_loss_scale = 1};

/* steps: 'o' overflows, '.' is good. changes, of each: kept, waited, shrank,
 * grew, spent. 0: as the defaults. */
static const struct {
    const char *rule, *steps, *changes;
    double scale; /* in the end */
    int hysteresis;
    double fixed, least;
    int power; /* -1: 0 */
} rows[] = {
        {"begins at the power", "", "", 65536},
        {"a fixed scale never changes", "ooooo....................",
         "kkkkkkkkkkkkkkkkkkkkkkkkk", 128, 0, 128},
        {"the first overflows are taken by the hysteresis", "ooo", "wws", 32768,
         3},
        {"once it shrinks each overflow halves it", "ooo...o", "wsskkks", 8192},
        {"without hysteresis the first overflow halves it", "o", "s", 32768, 1},
        {"grows with the step after each window", ".........", "kkkkgkkkg",
         262144},
        {"an overflow begins the window anew", "....o.....", "kkkkwkkkkg",
         131072},
        {"growth restores the hysteresis", "o.....o", "wkkkkgw", 131072},
        {"does not shrink below the smallest", "oo", "sp", 40000, 1, 0, 40000},
        {"at the smallest the hysteresis still waits", "oo", "wp", 1, 0, 0, 0,
         -1},
};

Test(loss_scale, each_rule_holds)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct fp16_options options = defaults;
        options.loss_scale = rows[i].fixed;
        if (rows[i].hysteresis)
            options.hysteresis = rows[i].hysteresis;
        if (rows[i].least > 0)
            options.min_loss_scale = rows[i].least;
        if (rows[i].power)
            options.initial_scale_power = 0;
        struct loss_scale state = loss_scale_start(&options);
        cr_assert_eq(strlen(rows[i].steps), strlen(rows[i].changes));
        for (size_t s = 0; rows[i].steps[s]; s++) {
            enum loss_scale_change change = loss_scale_update(
                    &state, &options, rows[i].steps[s] == 'o');
            enum loss_scale_change want =
                    rows[i].changes[s] == 'w'   ? LOSS_SCALE_WAITED
                    : rows[i].changes[s] == 's' ? LOSS_SCALE_SHRANK
                    : rows[i].changes[s] == 'g' ? LOSS_SCALE_GREW
                    : rows[i].changes[s] == 'p' ? LOSS_SCALE_SPENT
                                                : LOSS_SCALE_KEPT;
            cr_expect_eq(change, want, "%s: step %zu", rows[i].rule, s);
        }
        cr_expect_eq(state.scale, rows[i].scale, "%s", rows[i].rule);
    }
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
