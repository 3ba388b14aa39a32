#include "optim/elements.h"

#include <assert.h>

struct optim_factors optim_factors_of(
        const struct optim_span *span, const struct optim_step *step)
{
    const struct optim_options *o = step->options;
    double rate =
            step->learning_rate * (span->rate > 0 ? (double)span->rate : 1.0);
    double decay = span->decays ? rate * o->weight_decay : 0;
    double t = (double)(step->t - span->began);
    assert(span->began >= 0 && span->began < step->t);
    return (struct optim_factors){
            .grad_scale = step->grad_scale,
            .keep = (float)(1.0 - decay),
            .beta1 = (float)o->adam_beta1,
            .gain1 = (float)(1.0 - o->adam_beta1),
            .beta2 = (float)o->adam_beta2,
            .gain2 = (float)(1.0 - o->adam_beta2),
            .root_scale = (float)(1.0 / sqrt(1.0 - pow(o->adam_beta2, t))),
            .epsilon = (float)o->adam_epsilon,
            .momentum = (float)o->momentum,
            .rate = (float)rate,
            .adam_rate = (float)(rate / (1.0 - pow(o->adam_beta1, t)))};
}
