/* loss_scale.h - the factor that keeps fp16 gradients from vanishing.
 *
 * The gradient of the loss is multiplied by `scale` before the backward pass
 * and the update divides by it, so what fp16 would round to 0 survives. A
 * gradient that becomes infinite instead (an overflow) costs its step:
 *
 *   overflow  while hysteresis > 1 it is counted down; then the scale is
 *             halved, not below the smallest one. At the smallest one the run
 *             has diverged.
 *   growth    a good step that follows a whole number of windows of good steps
 *             (since the start or the last overflow) doubles the scale and
 *             restores the hysteresis.
 *
 * A fixed scale (fp16_options.loss_scale > 0) never changes. All ranks have the
 * same state, because they agree on the norm, which shows an overflow.
 *
 * Source: Micikevicius et al. 2018, arXiv:1710.03740, section 3.2; the rules
 * and defaults are those of DeepSpeed's dynamic loss scaler. */
#pragma once

#include "train/job/options.h"

struct loss_scale {
    double scale;       /* 0: the job does not compute in fp16 */
    int64_t good_steps; /* since the start or the last overflow */
    int hysteresis;     /* overflows until the scale shrinks */
};

enum loss_scale_change {
    LOSS_SCALE_KEPT,
    LOSS_SCALE_WAITED, /* an overflow, absorbed by the hysteresis */
    LOSS_SCALE_SHRANK,
    LOSS_SCALE_GREW,
    LOSS_SCALE_SPENT /* an overflow at the smallest scale */
};

struct loss_scale loss_scale_start(const struct fp16_options *options);
/* The checkpoint's state with this job's options: the job determines a fixed
 * scale and the smallest scale. */
struct loss_scale loss_scale_resume(
        const struct loss_scale *saved, const struct fp16_options *options);
/* Call after each step with a finite loss; `overflow`: the gradient overflowed.
 */
enum loss_scale_change loss_scale_update(
        struct loss_scale *state, const struct fp16_options *options,
        bool overflowed);
