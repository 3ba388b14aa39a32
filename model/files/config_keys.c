#include "model/files/config_keys.h"

#include "base/suggest.h"

#include <stdarg.h>
#include <string.h>

enum zd_status config_fail(
        const struct config_reader *reader, const char *code,
        const char *format, ...)
{
    char what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    ZD_FAIL(reader->on_error, code, "%s", what);
    zd_fail_where("%s", reader->name);
    return reader->on_error;
}

/* The one value of a key that asks for nothing we lack; null and an absent key
 * never do. */
enum neutral {
    NEUTRAL_NULL,  /* no value at all */
    NEUTRAL_FALSE, /* false, 0, an empty list or table */
    NEUTRAL_ONE,   /* true, 1 */
    NEUTRAL_SILU,
    NEUTRAL_GELU_TANH,
    NEUTRAL_FULL_ATTENTION /* a list of that name alone */
};

enum {
    GPT2 = 1 << MODEL_GPT2,
    LLAMA = 1 << MODEL_LLAMA,
    MISTRAL = 1 << MODEL_MISTRAL,
    QWEN2 = 1 << MODEL_QWEN2,
    QWEN3 = 1 << MODEL_QWEN3,
    ROTARY = LLAMA | MISTRAL | QWEN2 | QWEN3,
    ALL = GPT2 | ROTARY
};

static const struct {
    const char *key;
    int families;
    enum neutral neutral;
} unsupported[] = {
        {"quantization_config", ALL, NEUTRAL_NULL},
        {"num_experts", ALL, NEUTRAL_FALSE},
        {"num_local_experts", ALL, NEUTRAL_FALSE},
        {"n_routed_experts", ALL, NEUTRAL_FALSE},
        {"moe_intermediate_size", ALL, NEUTRAL_FALSE},
        {"vision_config", ALL, NEUTRAL_NULL},
        {"text_config", ALL, NEUTRAL_NULL},
        {"pruned_heads", ALL, NEUTRAL_FALSE},
        {"is_encoder_decoder", ALL, NEUTRAL_FALSE},
        {"add_cross_attention", ALL, NEUTRAL_FALSE},
        {"final_logit_softcapping", ALL, NEUTRAL_NULL},
        {"attn_logit_softcapping", ALL, NEUTRAL_NULL},
        {"logit_scale", ALL, NEUTRAL_ONE},
        {"logits_scaling", ALL, NEUTRAL_ONE},
        {"embedding_multiplier", ALL, NEUTRAL_ONE},
        {"residual_multiplier", ALL, NEUTRAL_ONE},
        {"attention_multiplier", ALL, NEUTRAL_NULL},
        {"activation_function", GPT2, NEUTRAL_GELU_TANH},
        {"scale_attn_weights", GPT2, NEUTRAL_ONE},
        {"scale_attn_by_inverse_layer_idx", GPT2, NEUTRAL_FALSE},
        {"reorder_and_upcast_attn", GPT2, NEUTRAL_FALSE},
        {"hidden_act", ROTARY, NEUTRAL_SILU},
        {"partial_rotary_factor", ROTARY, NEUTRAL_ONE},
        {"clip_qkv", ROTARY, NEUTRAL_NULL},
        {"use_mrope", ROTARY, NEUTRAL_FALSE},
        {"sliding_window", LLAMA, NEUTRAL_NULL},
        {"attention_bias", MISTRAL, NEUTRAL_FALSE},
        {"mlp_bias", MISTRAL | QWEN2 | QWEN3, NEUTRAL_FALSE},
        {"layer_types", ROTARY, NEUTRAL_FULL_ATTENTION},
};
enum { UNSUPPORTED = sizeof unsupported / sizeof *unsupported };

/* Keys that are read by config.c, or that say nothing about the arithmetic. */
static const struct {
    const char *key;
    int families;
} known[] = {
        {"model_type", ALL},
        {"architectures", ALL},
        {"dtype", ALL},
        {"torch_dtype", ALL},
        {"transformers_version", ALL},
        {"use_cache", ALL},
        {"vocab_size", ALL},
        {"tie_word_embeddings", ALL},
        {"initializer_range", ALL},
        {"bos_token_id", ALL},
        {"eos_token_id", ALL},
        {"pad_token_id", ALL},
        {"n_embd", GPT2},
        {"n_inner", GPT2},
        {"n_layer", GPT2},
        {"n_head", GPT2},
        {"n_positions", GPT2},
        {"n_ctx", GPT2},
        {"layer_norm_epsilon", GPT2},
        {"resid_pdrop", GPT2},
        {"embd_pdrop", GPT2},
        {"attn_pdrop", GPT2},
        {"hidden_size", ROTARY},
        {"intermediate_size", ROTARY},
        {"num_hidden_layers", ROTARY},
        {"num_attention_heads", ROTARY},
        {"num_key_value_heads", ROTARY},
        {"head_dim", ROTARY},
        {"max_position_embeddings", ROTARY},
        {"rms_norm_eps", ROTARY},
        {"rope_theta", ROTARY},
        {"rope_scaling", ROTARY},
        {"rope_parameters", ROTARY},
        {"attention_dropout", ROTARY},
        {"attention_bias", LLAMA | QWEN3},
        {"mlp_bias", LLAMA},
        {"pretraining_tp", LLAMA},
        {"sliding_window", MISTRAL | QWEN2 | QWEN3},
        {"use_sliding_window", QWEN2 | QWEN3},
        {"max_window_layers", QWEN2 | QWEN3},
};
enum { KNOWN = sizeof known / sizeof *known };

static bool is_name(const json_t *value, const char *name)
{
    return json_is_string(value) && strcmp(json_string_value(value), name) == 0;
}

static bool is_full_attention(const json_t *value)
{
    size_t i;
    const json_t *type;
    json_array_foreach(
            value, i, type) if (!is_name(type, "full_attention")) return false;
    return json_is_array(value);
}

static bool is_neutral(const json_t *value, enum neutral neutral)
{
    if (!value || json_is_null(value))
        return true;
    switch (neutral) {
    case NEUTRAL_NULL:
        return false;
    case NEUTRAL_FALSE:
        return json_is_false(value) ||
               (json_is_number(value) && json_number_value(value) == 0) ||
               (json_is_array(value) && json_array_size(value) == 0) ||
               (json_is_object(value) && json_object_size(value) == 0);
    case NEUTRAL_ONE:
        return json_is_true(value) ||
               (json_is_number(value) && json_number_value(value) == 1);
    case NEUTRAL_SILU:
        return is_name(value, "silu");
    case NEUTRAL_GELU_TANH: /* two names of one function */
        return is_name(value, "gelu_new") ||
               is_name(value, "gelu_pytorch_tanh");
    case NEUTRAL_FULL_ATTENTION:
        return is_full_attention(value);
    }
    return false;
}

static enum zd_status refuse(
        const struct config_reader *reader, const char *key)
{
    if (strcmp(key, "quantization_config") == 0) {
        config_fail(
                reader, "E0304",
                "the model is stored in codes (`quantization_config`), and "
                "those do not train");
        zd_fail_help("[lora] with enabled = true trains adapters on it");
        return reader->on_error;
    }
    char *text = json_dumps(
            json_object_get(reader->json, key), JSON_ENCODE_ANY | JSON_COMPACT);
    config_fail(
            reader, "E0304", "`%s` = %.80s is not supported", key,
            text ? text : "?");
    free(text);
    return reader->on_error;
}

static enum zd_status check_known(
        const struct config_reader *reader, const char *key, int family)
{
    const char *nearest = NULL;
    int distance = 4; /* further away it is another word */
    for (int i = 0; i < KNOWN + UNSUPPORTED; i++) {
        bool is_known = i < KNOWN;
        const char *name = is_known ? known[i].key : unsupported[i - KNOWN].key;
        int families =
                is_known ? known[i].families : unsupported[i - KNOWN].families;
        if (!(families & family))
            continue;
        int d = edit_distance(key, name);
        if (strcmp(key, name) == 0)
            return ZD_OK;
        if (d < distance)
            distance = d, nearest = name;
    }
    config_fail(reader, "E0305", "unknown key `%.80s`", key);
    if (nearest)
        zd_fail_help("did you mean `%s`?", nearest);
    return reader->on_error;
}

enum zd_status config_keys_check(
        const struct config_reader *reader, enum model_family family)
{
    const char *key;
    json_t *value;
    for (int i = 0; i < UNSUPPORTED; i++)
        if (unsupported[i].families & 1 << family) {
            key = unsupported[i].key;
            value = json_object_get(reader->json, key);
            if (!is_neutral(value, unsupported[i].neutral))
                return refuse(reader, key);
        }
    if (reader->on_error != ZD_ERR_CONFIG)
        return ZD_OK;
    json_object_foreach((json_t *)reader->json, key, value)
            ZD_TRY(check_known(reader, key, 1 << family));
    return ZD_OK;
}

/* Mistral's class has a window of 4096 when the key is absent from a file; in a
 * job's own [model.config], which cannot write null, absent means none. */
enum zd_status config_keys_check_window(
        const struct config_reader *reader, const struct model_config *config)
{
    const json_t *window = json_object_get(reader->json, "sliding_window");
    const json_t *from = json_object_get(reader->json, "max_window_layers");
    json_int_t tokens = json_integer_value(window);
    bool in_use = window && !json_is_null(window);
    if (config->family == MODEL_MISTRAL) {
        if (!window && reader->on_error == ZD_ERR_DATA)
            in_use = true, tokens = 4096;
    } else if (config->family == MODEL_QWEN2 || config->family == MODEL_QWEN3) {
        json_int_t first = from ? json_integer_value(from) : 28;
        in_use = first < config->layers &&
                 !is_neutral(
                         json_object_get(reader->json, "use_sliding_window"),
                         NEUTRAL_FALSE);
        tokens = window && !json_is_null(window) ? tokens : 4096;
    } else {
        return ZD_OK;
    }
    if (!in_use || tokens >= config->max_positions)
        return ZD_OK;
    config_fail(
            reader, "E0304",
            "`sliding_window` = %lld, shorter than the model's %d positions, "
            "is not supported",
            (long long)tokens, config->max_positions);
    return reader->on_error;
}

enum zd_status config_keys_check_rope(const struct config_reader *reader)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)reader->json, key, value)
    {
        if (json_is_object(value)) /* one set of keys per kind of layer */
            return refuse(reader, key);
        if (strcmp(key, "partial_rotary_factor") == 0 &&
            !is_neutral(value, NEUTRAL_ONE))
            return refuse(reader, key);
    }
    return ZD_OK;
}

/* Unless the key is there: what it stands for. */
static int set_token(json_t *json, const char *key, int id)
{
    if (json_object_get(json, key))
        return 0;
    return json_object_set_new(
            json, key, id < 0 ? json_null() : json_integer(id));
}

json_t *config_keys_complete(
        const struct config_reader *reader, const struct model_config *config,
        const char *architecture)
{
    const struct model_config *c = config;
    json_t *json = json_deep_copy(reader->json);
    json_t *defaults =
            c->family == MODEL_GPT2
                    ? json_pack(
                              "{s:s s:[s] s:i s:i s:i s:i s:i s:i s:b s:f}",
                              "model_type", model_family_name(c->family),
                              "architectures", architecture, "vocab_size",
                              c->vocab_size, "n_embd", c->hidden_size,
                              "n_layer", c->layers, "n_head", c->heads,
                              "n_positions", c->max_positions, "n_inner",
                              c->intermediate_size, "tie_word_embeddings",
                              c->tied, "initializer_range",
                              c->initializer_range)
                    : json_pack(
                              "{s:s s:[s] s:i s:i s:i s:i s:i s:i s:i s:i s:b "
                              "s:f}",
                              "model_type", model_family_name(c->family),
                              "architectures", architecture, "vocab_size",
                              c->vocab_size, "hidden_size", c->hidden_size,
                              "intermediate_size", c->intermediate_size,
                              "num_hidden_layers", c->layers,
                              "num_attention_heads", c->heads,
                              "num_key_value_heads", c->kv_heads, "head_dim",
                              c->head_dim, "max_position_embeddings",
                              c->max_positions, "tie_word_embeddings", c->tied,
                              "initializer_range", c->initializer_range);
    if (!json || !defaults || json_object_update_missing(json, defaults) != 0)
        goto err_json;
    if (c->family != MODEL_GPT2 && !json_object_get(json, "rope_parameters") &&
        json_object_set_new(json, "rope_theta", json_real(c->rope_theta)) != 0)
        goto err_json;
    if (set_token(json, "bos_token_id", c->bos_token_id) != 0 ||
        set_token(json, "eos_token_id", c->eos_token_id) != 0)
        goto err_json;
    if (c->family == MODEL_MISTRAL && reader->on_error == ZD_ERR_CONFIG &&
        !json_object_get(json, "sliding_window") &&
        json_object_set_new(json, "sliding_window", json_null()) != 0)
        goto err_json;
    json_decref(defaults);
    return json;

err_json:
    json_decref(defaults);
    json_decref(json);
    return NULL;
}
