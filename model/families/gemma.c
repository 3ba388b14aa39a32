/* gemma.c - Gemma 1, with two norms per layer. */
#include "model/families/gemma.h"

#include <math.h>
#include <string.h>

static const struct config_key keys[] = {
        GEMMA_KEYS(3072, 24576, 28, 16, 16, 256000, 8192),
        {0},
};

/* The first releases say "gelu" but mean the tanh form. */
static enum zd_status settle(
        const struct config_reader *r, struct model_config *c)
{
    const json_t *act = config_get(r, "hidden_act");
    const char *name = act ? json_string_value(act) : "gelu";
    if (!(name && strcmp(name, "gelu") == 0) &&
        !config_is_neutral(act, CONFIG_GELU_TANH))
        return config_refuse(r, "hidden_act", CONFIG_GELU_TANH);
    c->embedding_scale = sqrt(c->hidden_size);
    return rotary_settle(r, c);
}

const struct model_family model_gemma = {
        .name = "gemma",
        .architecture = "GemmaForCausalLM",
        .keys = keys,
        .settle = settle,
        .layer = rotary_layer,
        GEMMA_BASE,
};
