#include "optim/optim.h"

#include <math.h>

/* A number of steps, or a fraction below 1 of all steps, rounded up (the rule
 * of transformers v5). */
static int64_t whole_steps(double value, int64_t max_steps)
{
    if (value < 1.0)
        return (int64_t)ceil(value * (double)max_steps);
    return (int64_t)value;
}

int64_t optim_warmup_steps(
        const struct optim_options *options, int64_t max_steps)
{
    return whole_steps(options->warmup_steps, max_steps);
}

int64_t optim_wsd_decay_steps(
        const struct optim_options *options, int64_t max_steps)
{
    return whole_steps(options->wsd_decay_steps, max_steps);
}

/* How far step i is on the way from `first` to `end`, within 0..1. */
static double progress(int64_t step, int64_t first, int64_t end)
{
    if (end <= first || step >= end)
        return 1.0;
    return step <= first ? 0.0 : (double)(step - first) / (double)(end - first);
}

double optim_learning_rate(
        const struct optim_options *options, int64_t step, int64_t max_steps)
{
    double max = options->learning_rate;
    double min_ratio = options->min_lr_ratio;
    int64_t warmup = optim_warmup_steps(options, max_steps);
    if (step < warmup)
        return max * ((double)(step + 1) / (double)warmup);

    double r = progress(step, warmup, max_steps);
    switch (options->lr_scheduler_type) {
    case LR_LINEAR:
        return max * (1.0 - (1.0 - min_ratio) * r);
    case LR_COSINE:
        return max *
               (min_ratio + (1.0 - min_ratio) * (1.0 + cos(M_PI * r)) / 2);
    case LR_CONSTANT:
        return max;
    case LR_WSD:
        break;
    }
    /* warm-up, stable, decay: the decay gives way to a long warm-up */
    int64_t decay = max_steps - optim_wsd_decay_steps(options, max_steps);
    if (decay < warmup)
        decay = warmup;
    if (step < decay)
        return max;
    return max * (1.0 - (1.0 - min_ratio) * progress(step, decay, max_steps));
}
