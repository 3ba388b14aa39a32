#include "optim/elements.h"

#include "base/number/rng.h"

#include <assert.h>

static void set_adam(
        struct optim_factors *f, const struct optim_options *o,
        int64_t steps, double learning_rate)
{
    double t = (double)steps;
    f->beta1 = (float)o->adam_beta1;
    f->gain1 = (float)(1.0 - o->adam_beta1);
    f->beta2 = (float)o->adam_beta2;
    f->gain2 = (float)(1.0 - o->adam_beta2);
    f->root_scale = (float)(1.0 / sqrt(1.0 - pow(o->adam_beta2, t)));
    f->epsilon = (float)o->adam_epsilon;
    f->rate = (float)(learning_rate / (1.0 - pow(o->adam_beta1, t)));
}

struct optim_factors optim_factors_of(
        const struct optim_span *span, const struct optim_step *step)
{
    const struct optim_options *o = step->options;
    double learning_rate =
            step->learning_rate * (span->rate > 0 ? (double)span->rate : 1.0);
    double decay = span->decays ? learning_rate * o->weight_decay : 0;
    struct optim_factors f = {
            .grad_scale = step->grad_scale, .keep = (float)(1.0 - decay)};
    assert(span->began >= 0 && span->began < step->t);
    set_adam(&f, o, step->t - span->began, learning_rate);
    if (o->name == OPTIM_ADAMW || o->name == OPTIM_ADAM_MINI)
        return f;
    f.rate = (float)learning_rate;
    if (o->name == OPTIM_SGD) {
        f.beta1 = (float)o->momentum;
        f.gain1 = 1;
    }
    return f;
}

void optim_draws_plain(
        uint64_t seed, uint64_t stream, int64_t t, size_t qblock,
        uint16_t draws[OPTIM_QBLOCK])
{
    uint64_t first = (uint64_t)t << 32 | (uint64_t)qblock * OPTIM_DRAW_CALLS;
    for (size_t i = 0; i < OPTIM_QBLOCK; i++) {
        uint32_t words[4];
        rng_philox(seed, stream, first + i % OPTIM_DRAW_CALLS, words);
        uint32_t word = words[i / 64];
        draws[i] = (uint16_t)((i / 32) % 2 ? word >> 16 : word);
    }
}
