/* ministral3.c - Ministral 3, also as the text model of its multimodal files:
 * YaRN, and queries scaled by position. */
#include "base/must.h"
#include "model/families/rotary.h"

static const struct config_key keys[] = {
        CONFIG_SIZE("num_hidden_layers", layers, 34, LAYERS_MAX),
        {"rms_norm_eps", CONFIG_REAL, CONFIG_AT(norm_eps), 1e-5},
        {"attention_bias", CONFIG_FALSE},
        {"mlp_bias", CONFIG_FALSE},
        {"sliding_window"},
        ROTARY_KEYS(131072, 14336, 8, 128, 262144, 1),
        {0},
};

/* The class's default. */
static json_t *own_rope(void)
{
    return zd_must(json_pack(
            "{s:s s:f s:f s:i s:f s:f s:f s:f s:f}", "rope_type", "yarn",
            "rope_theta", 1e6, "factor", 16.0,
            "original_max_position_embeddings", 16384, "beta_fast", 32.0,
            "beta_slow", 1.0, "mscale", 1.0, "mscale_all_dim", 1.0,
            "llama_4_scaling_beta", 0.1));
}

/* Scaling of queries needs O even if the RoPE type does not. */
static enum zd_status read_beta(
        const struct config_reader *r, struct rope_set *set)
{
    ZD_TRY(config_read_real(r, "llama_4_scaling_beta", 0, &set->q_beta));
    if (set->q_beta == 0 || set->original_positions)
        return ZD_OK;
    ZD_TRY(config_read_int(
            r, "original_max_position_embeddings", 0, POSITIONS_MAX,
            &set->original_positions));
    return set->original_positions
                   ? ZD_OK
                   : config_bad(
                             r, "`llama_4_scaling_beta` needs the key "
                                "`original_max_position_embeddings`");
}

static enum zd_status settle(
        const struct config_reader *r, struct model_config *c)
{
    const char *key =
            config_get(r, "rope_scaling") ? "rope_scaling" : "rope_parameters";
    struct config_reader all = *r, inner = *r;
    json_auto_t *json = zd_must(json_copy((json_t *)r->json));
    if (!config_get(r, key))
        json_object_set_new(json, key, own_rope());
    all.json = json;
    ZD_TRY(rotary_settle(&all, c));
    inner.json = json_object_get(json, key);
    return read_beta(&inner, &c->ropes[0]);
}

const struct model_family model_ministral3 = {
        .name = "ministral3",
        .architecture = "Ministral3ForCausalLM",
        .keys = keys,
        .settle = settle,
        .layer = rotary_layer,
        ROTARY_BASE,
        .window = WINDOW_ALL,
};
