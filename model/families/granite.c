/* granite.c - Granite 3: Llama with four multipliers. */
#include "model/families/rotary.h"

static const struct config_key keys[] = {
        ROTARY_KEYS(32000, 11008, 0, 0, 2048, 1),
        {"attention_bias", CONFIG_BOOL, CONFIG_AT(qkv_bias)},
        {"mlp_bias", CONFIG_BOOL, CONFIG_AT(mlp_bias)},
        {"embedding_multiplier", CONFIG_REAL, CONFIG_AT(embedding_scale), 1},
        {"residual_multiplier", CONFIG_REAL, CONFIG_AT(residual_scale), 1},
        {"attention_multiplier", CONFIG_REAL, CONFIG_AT(attention_scale), 1},
        {"logits_scaling", CONFIG_REAL, CONFIG_AT(logits_scale), 1},
        {0},
};

static enum zd_status settle(
        const struct config_reader *r, struct model_config *c)
{
    const char *const names[] = {
            "embedding_multiplier", "residual_multiplier",
            "attention_multiplier", "logits_scaling"};
    const double values[] = {
            c->embedding_scale, c->residual_scale, c->attention_scale,
            c->logits_scale};
    for (int i = 0; i < 4; i++)
        if (values[i] == 0)
            return config_wrong(r, names[i], "a number above 0");
    c->logits_scale = 1 / c->logits_scale; /* the file divides by it */
    return rotary_settle(r, c);
}

const struct model_family model_granite = {
        .name = "granite",
        .architecture = "GraniteForCausalLM",
        .keys = keys,
        .settle = settle,
        .layer = rotary_layer,
        ROTARY_BASE,
};
