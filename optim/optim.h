/* optim.h - optimizers over spans of elements; knows no ranks, no shards.
 *
 * AdamW as in PyTorch (Loshchilov, Hutter 2019, arXiv:1711.05101, algorithm 2,
 * with the decay first and eps outside the corrected root):
 *   p *= 1 - lr * wd
 *   m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
 *   p -= lr / (1-b1^t) * m / (sqrt(v) / sqrt(1-b2^t) + eps)
 * Powers of beta are taken in double; t counts applied steps, from 1. */
#ifndef ZD_OPTIM_OPTIM_H
#define ZD_OPTIM_OPTIM_H

#include "base/dtype.h"
#include "base/status.h"

#include <stdint.h>

enum optim_name { OPTIM_ADAMW };
enum lr_schedule { LR_LINEAR, LR_COSINE, LR_CONSTANT, LR_WSD };

struct optim_options { /* [optim] */
    enum optim_name name;
    double learning_rate;
    enum lr_schedule lr_scheduler_type;
    double min_lr_ratio;
    double warmup_steps;    /* whole steps; a fraction < 1 of max_steps */
    double wsd_decay_steps; /* whole steps, or a fraction < 1 */
    double weight_decay;
    double adam_beta1, adam_beta2, adam_epsilon;
    double max_grad_norm;   /* 0 = off */
};

struct optim_options optim_options_default(void);

/* Warm-up and decay in whole steps; a fraction is rounded up. */
int64_t optim_warmup_steps(const struct optim_options *options,
        int64_t max_steps);
int64_t optim_wsd_decay_steps(const struct optim_options *options,
        int64_t max_steps);

/* Learning rate of step i (from 0). With w = warm-up, r = (i-w)/(max_steps-w):
 * i < w: max (i+1)/w; linear max (1 - (1-min) r); cosine
 * max (min + (1-min)(1 + cos(pi r))/2); constant max; wsd max, then linearly to
 * max*min over the last decay steps. */
double optim_learning_rate(const struct optim_options *options, int64_t step,
        int64_t max_steps);

struct adamw_span {
    float *master;         /* (count) fp32 weights, updated */
    float *m, *v;          /* (count) moments, updated */
    const void *grad;      /* (count) of grad_type */
    enum dtype grad_type;
    void *param;           /* (count) of param_type: the rounded new weight;
                              NULL when the weight is the master itself */
    enum dtype param_type;
    size_t count;
    bool decays;           /* apply weight_decay here */
};

struct adamw_step {
    double learning_rate, beta1, beta2, epsilon, weight_decay;
    int64_t t;        /* applied steps including this one, from 1 */
    float grad_scale; /* the clipping factor; 1 = none */
};

/* The definition: plain loops, one thread. */
void optim_adamw_plain(const struct adamw_span *span,
        const struct adamw_step *step);
/* Vectorised and threaded; the same bits as the definition. */
void optim_adamw(const struct adamw_span *span, const struct adamw_step *step);

#endif
