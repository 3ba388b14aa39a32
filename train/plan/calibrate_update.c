/* calibrate_update.c - updates of parameters, and what all gradients pass
 * before. */
#include "base/device/device_memory.h"
#include "train/plan/calibrate.h"

enum { UPDATED = BENCH_BLOCK / 4 }; /* elements, which no cache holds */

static enum zd_status update(struct bench *b)
{
    b->step.t++;
    return optim_device()->update(&b->span, &b->step);
}

static enum zd_status squares(struct bench *b)
{
    return optim_device()->add_squares(
            (struct exact_sum *)b->dw, b->w, b->type, UPDATED);
}

static enum zd_status narrow(struct bench *b)
{
    return optim_device()->convert(b->w, b->type, b->dw, DTYPE_FP32, UPDATED);
}

static enum zd_status clear_lanes(struct bench *b)
{
    for (int lane = 0; lane < OPTIM_LANES; lane++)
        ZD_TRY(optim_device()->lane_clear(
                (enum optim_lane)lane, b->span.layout.lane[lane],
                b->span.lanes.state[lane], b->span.lanes.scale[lane], UPDATED));
    return ZD_OK;
}

static enum zd_status measure_update(
        struct bench *b, enum optim_state_type states, double *rate)
{
    static const struct tensor_blocks none;
    b->options.state_type = states;
    bool has_master = b->type != DTYPE_FP32;
    b->span = (struct optim_span){
            .master = b->x,
            .master_type = DTYPE_FP32,
            .grad = b->w,
            .grad_type = b->type,
            .param = has_master ? b->w + BENCH_BLOCK : NULL,
            .param_type = b->type,
            .layout = optim_layout_of(&b->options, UPDATED, false, &none),
            .lanes =
                    {.state = {b->y, b->z},
                     .scale = {(float *)b->dw, (float *)(b->dw + BENCH_BLOCK)}},
            .count = UPDATED,
            .decays = true};
    b->step = (struct optim_step){
            .options = &b->options, .learning_rate = 1e-4, .grad_scale = 1};
    ZD_TRY(clear_lanes(b));
    return bench_rate(b, update, UPDATED, rate);
}

enum zd_status calibrate_update(struct bench *b, struct plan_rates *rates)
{
    b->options = optim_options_default();
    ZD_TRY(measure_update(b, OPTIM_STATE_FP32, &rates->update));
    ZD_TRY(measure_update(b, OPTIM_STATE_8BIT, &rates->update_8bit));
    ZD_TRY(device_clear(b->dw, sizeof(struct exact_sum)));
    ZD_TRY(bench_rate(b, squares, UPDATED, &rates->squares));
    rates->round = 0;
    return b->type == DTYPE_FP32
                   ? ZD_OK
                   : bench_rate(b, narrow, UPDATED, &rates->round);
}
