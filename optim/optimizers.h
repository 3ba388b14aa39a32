/* optimizers.h - the table of optimizers, made from the entries of
 * optim/optimizers.inc. */
#pragma once

#include "optim/optim.h"

/* Hyper-parameters, by their keys: OPTIM_adam_beta1 .. */
enum optim_param {
#define OPTIM_PARAM(key, ...) OPTIM_##key,
#include "optim/optimizers.inc"
    OPTIM_PARAMS
};

/* The arithmetic of an element. */
enum optim_rule {
#define OPTIM_RULE(ID, ...) OPTIM_RULE_##ID,
#include "optim/optimizers.inc"
    OPTIM_RULES
};

/* What an update needs of a tensor: only its elements, or first the gradient's
 * sums over its blocks (one v per block). */
enum optim_needs { OPTIM_NEEDS_ELEMENTS, OPTIM_NEEDS_BLOCK_SUMS };

struct optimizer {
    const char *name;
    /* `rule` applies to most tensors; `reduced` if a lane has no use: momentum
     * 0, or blocks of one element. */
    enum optim_rule rule, reduced;
    bool has_bf16, has_8bit;     /* states, besides fp32 */
    bool reads[OPTIM_PARAMS];    /* other hyper-parameters mean nothing to it */
    double values[OPTIM_PARAMS]; /* its own defaults; 0: those of all */
};

const struct optimizer *optimizer_of(enum optim_name name);
enum optim_needs optimizer_needs(enum optim_name name);
/* Has it states under these options? */
bool optimizer_has_states(const struct optim_options *options);
const char *optim_param_key(enum optim_param param);
double *optim_param_value(
        struct optim_options *options, enum optim_param param);

/* The rule of a tensor with this layout. */
enum optim_rule optim_rule_of(
        const struct optim_options *options, const struct optim_layout *layout);
