#include "optim/optimizers.h"

#include "optim/elements.h"

#include <assert.h>

static const struct optimizer optimizers[] = {
#define OPTIMIZER(ID, id, ...) [OPTIM_##ID] = {.name = #id, __VA_ARGS__},
#include "optim/optimizers.inc"
};

static const struct rule {
    enum optim_needs needs;
    bool has_m, has_v;
} rules[OPTIM_RULES] = {
#define OPTIM_RULE(ID, element, needs, has_m, has_v)                           \
    [OPTIM_RULE_##ID] = {OPTIM_NEEDS_##needs, has_m, has_v},
#include "optim/optimizers.inc"
};

static const struct param {
    const char *key;
    size_t offset;
} params[OPTIM_PARAMS] = {
#define OPTIM_PARAM(key, ...) {#key, offsetof(struct optim_options, key)},
#include "optim/optimizers.inc"
};

const struct optimizer *optimizer_of(enum optim_name name)
{
    return &optimizers[name];
}

enum optim_needs optimizer_needs(enum optim_name name)
{
    return rules[optimizers[name].rule].needs;
}

const char *optim_param_key(enum optim_param param)
{
    return params[param].key;
}

double *optim_param_value(struct optim_options *options, enum optim_param param)
{
    return (double *)((char *)options + params[param].offset);
}

struct optim_options optim_options_default(void)
{
    return (struct optim_options){
            .name = OPTIM_ADAMW,
            .stable_embedding = true,
            .learning_rate = 2e-5,
            .lr_scheduler_type = LR_COSINE,
            .min_lr_ratio = 0.1,
            .warmup_steps = 0.03,
            .wsd_decay_steps = 0.2,
            .weight_decay = 0.1,
#define OPTIM_PARAM(key, value, ...) .key = value,
#include "optim/optimizers.inc"
            .max_grad_norm = 1};
}

/* --- rules and lanes ------------------------------------------------------ */

static bool lacks_momentum(const struct optim_options *options)
{
    const struct optimizer *o = &optimizers[options->name];
    return rules[o->rule].has_m && !rules[o->reduced].has_m &&
           options->momentum == 0;
}

bool optimizer_has_states(const struct optim_options *options)
{
    return rules[optimizers[options->name].rule].has_m &&
           !lacks_momentum(options);
}

enum optim_rule optim_rule_of(
        const struct optim_options *options, const struct optim_layout *layout)
{
    const struct optimizer *o = &optimizers[options->name];
    const struct rule *rule = &rules[o->rule];
    bool has_all = (layout->lane[OPTIM_M] != OPTIM_NONE) == rule->has_m &&
                   (layout->lane[OPTIM_V] == OPTIM_BLOCKS) ==
                           (rule->needs == OPTIM_NEEDS_BLOCK_SUMS);
    return has_all ? o->rule : o->reduced;
}

/* Narrow states need a tensor worth it. */
static enum optim_format state_format(
        const struct optim_options *options, size_t tensor_count,
        bool is_embedding)
{
    if (options->state_type == OPTIM_STATE_FP32 ||
        tensor_count < OPTIM_8BIT_MIN ||
        (is_embedding && options->stable_embedding))
        return OPTIM_FP32;
    return options->state_type == OPTIM_STATE_BF16 ? OPTIM_BF16 : OPTIM_8BIT;
}

struct optim_layout optim_layout_of(
        const struct optim_options *options, size_t tensor_count,
        bool is_embedding, const struct tensor_blocks *blocks)
{
    enum optim_format format =
            state_format(options, tensor_count, is_embedding);
    const struct rule *rule = &rules[optimizers[options->name].rule];
    bool has_m = rule->has_m && !lacks_momentum(options);
    struct optim_layout layout = {
            {has_m ? format : OPTIM_NONE, rule->has_v ? format : OPTIM_NONE}};
    if (rule->needs == OPTIM_NEEDS_BLOCK_SUMS)
        layout.lane[OPTIM_V] =
                tensor_blocks_are_single(blocks) ? OPTIM_FP32 : OPTIM_BLOCKS;
    return layout;
}

/* --- factors -------------------------------------------------------------- */

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
