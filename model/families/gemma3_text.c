/* gemma3_text.c - the text model of Gemma 3: Gemma 2 without soft caps, with
 * norms of the heads of q and k; sliding layers have their own RoPE base. */
#include "base/must.h"
#include "model/config_keys.h"
#include "model/families/gemma.h"

static const struct config_key keys[] = {
        GEMMA_KEYS(2304, 9216, 26, 8, 4, 262208, 131072),
        GEMMA2_KEYS(0, 0),
        {"sliding_window_pattern"},
        {"_sliding_window_pattern"}, /* in some files; no class reads it */
        {"rope_local_base_freq"},
        {0},
};

/* rope_scaling (v4) applies to the layers without a window, like
 * rope_parameters.full_attention (v5), and is added to it. */
static enum zd_status read_sets(
        const struct config_reader *r, const json_t *full_v5,
        const json_t *sliding, struct model_config *c)
{
    double theta, local;
    json_t *scaling = json_object_get(r->json, "rope_scaling");
    ZD_TRY(config_read_real(r, "rope_theta", 1e6, &theta));
    ZD_TRY(config_read_real(r, "rope_local_base_freq", 1e4, &local));
    json_auto_t *full =
            zd_must(full_v5 ? json_deep_copy(full_v5) : json_object());
    if (json_is_object(scaling))
        zd_must(json_object_update(full, scaling) == 0 ? full : NULL);
    ZD_TRY(config_read_rope(
            r, "rope_parameters.full_attention", full, theta, 1, c,
            &c->ropes[0]));
    c->rope_count = 1; /* model_config_fini frees this one */
    ZD_TRY(config_read_rope(
            r, "rope_parameters.sliding_attention", sliding, local, 1, c,
            &c->ropes[1]));
    c->rope_count = 2;
    return ZD_OK;
}

static enum zd_status settle(
        const struct config_reader *r, struct model_config *c)
{
    const json_t *scaling = config_get(r, "rope_scaling");
    const json_t *v5 = config_get(r, "rope_parameters");
    const json_t *full = json_object_get(v5, "full_attention");
    const json_t *sliding = json_object_get(v5, "sliding_attention");
    if (v5 && !full && !sliding)
        return config_wrong(
                r, "rope_parameters",
                "a table of full_attention and sliding_attention");
    if (scaling && !json_is_object(scaling))
        return config_wrong(r, "rope_scaling", "a table of keys");
    ZD_TRY(gemma2_settle(r, c));
    return read_sets(
            r, json_is_null(full) ? NULL : full,
            json_is_null(sliding) ? NULL : sliding, c);
}

const struct model_family model_gemma3_text = {
        .name = "gemma3_text",
        .architecture = "Gemma3ForCausalLM",
        .keys = keys,
        .settle = settle,
        .qk_norm = true,
        .window = WINDOW_PATTERN,
        .window_tokens = 4096,
        .window_pattern = 6,
        .layer_types = true,
        .layer = gemma2_layer,
        GEMMA_BASE,
};
