#include "train/job/loss_scale.h"

#include <math.h>

struct loss_scale loss_scale_start(const struct fp16_options *options)
{
    double first = ldexp(1, options->initial_scale_power);
    return (struct loss_scale){
            .scale = options->loss_scale > 0 ? options->loss_scale : first,
            .hysteresis = options->hysteresis};
}

struct loss_scale loss_scale_resume(
        const struct loss_scale *saved, const struct fp16_options *options)
{
    struct loss_scale state = *saved;
    if (options->loss_scale > 0 || !(saved->scale > 0))
        return loss_scale_start(options);
    if (state.scale < options->min_loss_scale)
        state.scale = options->min_loss_scale;
    if (state.hysteresis > options->hysteresis)
        state.hysteresis = options->hysteresis;
    return state;
}

static enum loss_scale_change overflow(
        struct loss_scale *state, const struct fp16_options *options)
{
    state->good_steps = 0;
    if (state->hysteresis > 1) {
        state->hysteresis--;
        return LOSS_SCALE_WAITED;
    }
    if (state->scale <= options->min_loss_scale)
        return LOSS_SCALE_SPENT;
    state->scale = fmax(state->scale / 2, options->min_loss_scale);
    return LOSS_SCALE_SHRANK;
}

enum loss_scale_change loss_scale_update(
        struct loss_scale *state, const struct fp16_options *options,
        bool overflowed)
{
    if (options->loss_scale > 0)
        return LOSS_SCALE_KEPT;
    if (overflowed)
        return overflow(state, options);
    int64_t before = state->good_steps++;
    if (before == 0 || before % options->loss_scale_window != 0)
        return LOSS_SCALE_KEPT;
    state->hysteresis = options->hysteresis;
    state->scale *= 2;
    return LOSS_SCALE_GREW;
}
