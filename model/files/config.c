#include "model/config.h"

#include "base/file/fs.h"
#include "model/files/config.h"
#include "model/files/config_keys.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* Bounds that keep every product of two of them inside 64 bits, and far above
 * any model there is. */
enum {
    VOCAB_MAX = 1 << 24,
    WIDTH_MAX = 1 << 20,
    LAYERS_MAX = 1 << 14,
    HEADS_MAX = 1 << 14,
    HEAD_DIM_MAX = 512, /* what the attention kernels hold per head */
    POSITIONS_MAX = 1 << 28,
    CONFIG_BYTES_MAX = 16 << 20
};

static enum zd_status wrong(
        const struct config_reader *r, const char *key, const char *expected)
{
    const json_t *value = json_object_get(r->json, key);
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    config_fail(
            r, "E0302", "`%s` must be %s, not %.80s", key, expected,
            text ? text : "absent");
    free(text);
    return r->on_error;
}

/* The value under `key`; NULL when it is absent or null. */
static const json_t *get(const struct config_reader *r, const char *key)
{
    const json_t *value = json_object_get(r->json, key);
    return json_is_null(value) ? NULL : value;
}

static enum zd_status read_int(
        const struct config_reader *r, const char *key, int absent, int max,
        int *out)
{
    const json_t *value = get(r, key);
    *out = absent;
    if (!value)
        return ZD_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 1 ||
        json_integer_value(value) > max) {
        char expected[64];
        snprintf(expected, sizeof expected, "an integer from 1 to %d", max);
        return wrong(r, key, expected);
    }
    *out = (int)json_integer_value(value);
    return ZD_OK;
}

static enum zd_status read_bool(
        const struct config_reader *r, const char *key, bool absent, bool *out)
{
    const json_t *value = get(r, key);
    *out = absent;
    if (!value)
        return ZD_OK;
    if (!json_is_boolean(value))
        return wrong(r, key, "true or false");
    *out = json_is_true(value);
    return ZD_OK;
}

static enum zd_status read_real(
        const struct config_reader *r, const char *key, double absent,
        double *out)
{
    const json_t *value = get(r, key);
    *out = absent;
    if (!value)
        return ZD_OK;
    if (!json_is_number(value) || !isfinite(json_number_value(value)) ||
        json_number_value(value) < 0)
        return wrong(r, key, "a number, not negative");
    *out = json_number_value(value);
    return ZD_OK;
}

/* A token id, or a list of which the first counts. The class's own id is none
 * in a vocabulary that is too small for it. */
static enum zd_status read_token(
        const struct config_reader *r, const char *key, int absent,
        int vocab_size, int *out)
{
    const json_t *value = json_object_get(r->json, key);
    *out = value || absent >= vocab_size ? -1 : absent;
    if (json_is_array(value))
        value = json_array_get(value, 0);
    if (!value || json_is_null(value))
        return ZD_OK;
    if (!json_is_integer(value) || json_integer_value(value) < -1 ||
        json_integer_value(value) > INT_MAX)
        return wrong(r, key, "a token id or a list of them");
    *out = (int)json_integer_value(value);
    return ZD_OK;
}

static const char *const architectures[] = {
        [MODEL_GPT2] = "GPT2LMHeadModel",
        [MODEL_LLAMA] = "LlamaForCausalLM",
        [MODEL_MISTRAL] = "MistralForCausalLM",
        [MODEL_QWEN2] = "Qwen2ForCausalLM",
        [MODEL_QWEN3] = "Qwen3ForCausalLM",
};
enum { FAMILIES = 5 };

static enum zd_status read_family(
        const struct config_reader *r, struct model_config *config)
{
    const json_t *type = get(r, "model_type");
    const json_t *list = get(r, "architectures");
    const json_t *architecture = json_array_get(list, 0);
    const char *name = json_string_value(type);
    for (int i = 0; i < FAMILIES; i++) {
        const char *given = json_string_value(architecture);
        if (name ? strcmp(name, model_family_name((enum model_family)i)) == 0
                 : given && strcmp(given, architectures[i]) == 0) {
            config->family = (enum model_family)i;
            if (list && (!given || strcmp(given, architectures[i]) != 0))
                return wrong(r, "architectures", architectures[i]);
            return ZD_OK;
        }
    }
    if (type || architecture)
        return wrong(
                r, type ? "model_type" : "architectures",
                "one of gpt2, llama, mistral, qwen2, qwen3");
    config_fail(r, "E0301", "`model_type` is missing");
    zd_fail_help("model_type = \"llama\" (or gpt2, mistral, qwen2, qwen3)");
    return r->on_error;
}

static enum zd_status read_dtype(
        const struct config_reader *r, struct model_config *config)
{
    const json_t *value = get(r, "dtype");
    const char *key = value ? "dtype" : "torch_dtype";
    if (!value)
        value = get(r, "torch_dtype");
    /* Random weights are stored in bf16 unless asked otherwise. */
    config->storage_dtype =
            r->on_error == ZD_ERR_CONFIG ? DTYPE_BF16 : DTYPE_FP32;
    if (!value)
        return ZD_OK;
    const char *name = json_string_value(value);
    if (name && strncmp(name, "torch.", 6) == 0)
        name += 6;
    if (name && strcmp(name, "float32") == 0)
        config->storage_dtype = DTYPE_FP32;
    else if (name && strcmp(name, "bfloat16") == 0)
        config->storage_dtype = DTYPE_BF16;
    else if (name && strcmp(name, "float16") == 0)
        config->storage_dtype = DTYPE_FP16;
    else
        return wrong(r, key, "float32, bfloat16 or float16");
    return ZD_OK;
}

static enum zd_status read_gpt2(
        const struct config_reader *r, struct model_config *c)
{
    double eps, pdrop, drop = 0.0;
    ZD_TRY(read_int(r, "vocab_size", 50257, VOCAB_MAX, &c->vocab_size));
    ZD_TRY(read_int(r, "n_embd", 768, WIDTH_MAX, &c->hidden_size));
    ZD_TRY(read_int(
            r, "n_inner", 4 * c->hidden_size, 4 * WIDTH_MAX,
            &c->intermediate_size));
    ZD_TRY(read_int(r, "n_layer", 12, LAYERS_MAX, &c->layers));
    ZD_TRY(read_int(r, "n_head", 12, HEADS_MAX, &c->heads));
    ZD_TRY(read_int(r, "n_positions", 1024, POSITIONS_MAX, &c->max_positions));
    ZD_TRY(read_real(r, "layer_norm_epsilon", 1e-5, &eps));
    ZD_TRY(read_bool(r, "tie_word_embeddings", true, &c->tied));
    ZD_TRY(read_token(
            r, "bos_token_id", 50256, c->vocab_size, &c->bos_token_id));
    ZD_TRY(read_token(r, "eos_token_id", -1, c->vocab_size, &c->eos_token_id));
    const char *const dropouts[] = {"resid_pdrop", "embd_pdrop", "attn_pdrop"};
    for (int i = 0; i < 3; i++) {
        ZD_TRY(read_real(r, dropouts[i], 0.1, &pdrop));
        drop += pdrop;
    }
    c->kv_heads = c->heads;
    c->norm_eps = (float)eps;
    c->has_dropout = drop > 0;
    c->qkv_bias = c->out_bias = c->mlp_bias = true;
    if (c->hidden_size % c->heads != 0)
        return config_fail(
                r, "E0302", "`n_embd` %d is no multiple of `n_head` %d",
                c->hidden_size, c->heads);
    c->head_dim = c->hidden_size / c->heads;
    return ZD_OK;
}

/* The `llama3` keys of rope_scaling (v4) or rope_parameters (v5). */
static enum zd_status read_rope_llama3(
        const struct config_reader *r, struct model_config *c)
{
    const char *const keys[] = {
            "factor", "low_freq_factor", "high_freq_factor",
            "original_max_position_embeddings"};
    for (int i = 0; i < 4; i++)
        if (!get(r, keys[i]))
            return config_fail(
                    r, "E0302", "rope_type \"llama3\" needs the key `%s`",
                    keys[i]);
    ZD_TRY(read_real(r, keys[0], 0, &c->rope_factor));
    ZD_TRY(read_real(r, keys[1], 0, &c->rope_low_freq_factor));
    ZD_TRY(read_real(r, keys[2], 0, &c->rope_high_freq_factor));
    ZD_TRY(read_int(r, keys[3], 0, POSITIONS_MAX, &c->rope_original_positions));
    if (c->rope_factor < 1 || c->rope_low_freq_factor <= 0 ||
        c->rope_high_freq_factor <= c->rope_low_freq_factor)
        return config_fail(
                r, "E0302",
                "rope_type \"llama3\" needs factor >= 1 and 0 < "
                "low_freq_factor < high_freq_factor, not %g, %g, %g",
                c->rope_factor, c->rope_low_freq_factor,
                c->rope_high_freq_factor);
    c->rope_llama3 = true;
    return ZD_OK;
}

/* rope_theta beside the other keys (v4) or inside rope_parameters (v5). */
static enum zd_status read_rope(
        const struct config_reader *r, struct model_config *c)
{
    const char *key =
            get(r, "rope_scaling") ? "rope_scaling" : "rope_parameters";
    const json_t *value = get(r, key);
    struct config_reader inner = *r;
    inner.json = value;
    ZD_TRY(read_real(r, "rope_theta", 10000.0, &c->rope_theta));
    if (value && !json_is_object(value))
        return wrong(r, key, "a table of keys");
    if (value)
        ZD_TRY(read_real(&inner, "rope_theta", c->rope_theta, &c->rope_theta));
    if (c->rope_theta <= 1)
        return config_fail(
                r, "E0302", "`rope_theta` must be above 1, not %g",
                c->rope_theta);
    if (!value)
        return ZD_OK;
    ZD_TRY(config_keys_check_rope(&inner));
    const json_t *type = get(&inner, "rope_type");
    if (!type)
        type = get(&inner, "type");
    const char *name = type ? json_string_value(type) : "default";
    if (name && strcmp(name, "llama3") == 0)
        return read_rope_llama3(&inner, c);
    if (!name || strcmp(name, "default") != 0)
        return config_fail(
                r, "E0304", "`rope_type` = \"%s\" is not supported",
                name ? name : "?");
    return ZD_OK;
}

/* What the classes of transformers take for a key that is absent. Theirs for
 * eos_token_id is left out: data would be cut and ended at a token that nobody
 * named, where "no end of text" is the truth. */
struct family_defaults {
    int vocab, intermediate, kv_heads, head_dim, positions, bos;
};
static const struct family_defaults llama_defaults[] = {
        [MODEL_LLAMA] = {32000, 11008, 0, 0, 2048, 1},
        [MODEL_MISTRAL] = {32000, 14336, 8, 0, 131072, 1},
        [MODEL_QWEN2] = {151936, 22016, 32, 0, 32768, -1},
        [MODEL_QWEN3] = {151936, 22016, 32, 128, 32768, -1},
};

/* The key, or the keys, that the width of a head comes from. */
static const char *head_dim_source(const struct config_reader *r)
{
    return get(r, "head_dim") ? "`head_dim`"
           : get(r, "n_embd") ? "`n_embd` / `n_head`"
                              : "`hidden_size` / `num_attention_heads`";
}

static enum zd_status read_heads(
        const struct config_reader *r, const struct family_defaults *d,
        struct model_config *c)
{
    /* An explicit null means as many as there are heads; an absent key means
     * the class's own number. */
    int kv = json_object_get(r->json, "num_key_value_heads") || !d->kv_heads
                     ? c->heads
                     : d->kv_heads;
    ZD_TRY(read_int(r, "num_key_value_heads", kv, HEADS_MAX, &c->kv_heads));
    if (c->heads % c->kv_heads != 0)
        return config_fail(
                r, "E0302",
                "`num_attention_heads` %d is no multiple of "
                "`num_key_value_heads` %d",
                c->heads, c->kv_heads);
    bool own = d->head_dim && !json_object_get(r->json, "head_dim");
    ZD_TRY(read_int(
            r, "head_dim", own ? d->head_dim : c->hidden_size / c->heads,
            HEAD_DIM_MAX, &c->head_dim));
    if (!get(r, "head_dim") && !own && c->hidden_size % c->heads != 0)
        return config_fail(
                r, "E0302",
                "`hidden_size` %d is no multiple of `num_attention_heads` %d "
                "and there is no `head_dim`",
                c->hidden_size, c->heads);
    return ZD_OK;
}

static enum zd_status read_llama(
        const struct config_reader *r, struct model_config *c)
{
    const struct family_defaults *d = &llama_defaults[c->family];
    double eps, dropout;
    bool attention_bias;
    ZD_TRY(read_int(r, "vocab_size", d->vocab, VOCAB_MAX, &c->vocab_size));
    ZD_TRY(read_int(r, "hidden_size", 4096, WIDTH_MAX, &c->hidden_size));
    ZD_TRY(read_int(
            r, "intermediate_size", d->intermediate, 4 * WIDTH_MAX,
            &c->intermediate_size));
    ZD_TRY(read_int(r, "num_hidden_layers", 32, LAYERS_MAX, &c->layers));
    ZD_TRY(read_int(r, "num_attention_heads", 32, HEADS_MAX, &c->heads));
    ZD_TRY(read_int(
            r, "max_position_embeddings", d->positions, POSITIONS_MAX,
            &c->max_positions));
    ZD_TRY(read_real(r, "rms_norm_eps", 1e-6, &eps));
    ZD_TRY(read_real(r, "attention_dropout", 0.0, &dropout));
    ZD_TRY(read_bool(r, "tie_word_embeddings", false, &c->tied));
    ZD_TRY(read_bool(r, "attention_bias", false, &attention_bias));
    ZD_TRY(read_bool(r, "mlp_bias", false, &c->mlp_bias));
    ZD_TRY(read_token(
            r, "bos_token_id", d->bos, c->vocab_size, &c->bos_token_id));
    ZD_TRY(read_token(r, "eos_token_id", -1, c->vocab_size, &c->eos_token_id));
    ZD_TRY(read_heads(r, d, c));
    ZD_TRY(read_rope(r, c));
    c->norm_eps = (float)eps;
    c->has_dropout = dropout > 0;
    c->qkv_bias = attention_bias || c->family == MODEL_QWEN2;
    c->out_bias = attention_bias && c->family != MODEL_QWEN2;
    c->qk_norm = c->family == MODEL_QWEN3;
    if (c->head_dim % 2 != 0)
        return config_fail(
                r, "E0302",
                "%s is %d: rotary positions need an even number of channels in "
                "a head",
                head_dim_source(r), c->head_dim);
    return ZD_OK;
}

enum zd_status model_config_parse(
        const json_t *json, const char *name, enum zd_status on_error,
        struct model_config *config_out)
{
    struct config_reader r = {json, name, on_error};
    struct model_config c = {0};
    if (!json_is_object(json))
        return config_fail(
                &r, "E0302", "a model configuration is a table of keys");
    ZD_TRY(read_family(&r, &c));
    ZD_TRY(config_keys_check(&r, c.family));
    ZD_TRY(c.family == MODEL_GPT2 ? read_gpt2(&r, &c) : read_llama(&r, &c));
    ZD_TRY(read_real(&r, "initializer_range", 0.02, &c.initializer_range));
    ZD_TRY(read_dtype(&r, &c));
    if (c.head_dim < 1 || c.head_dim > HEAD_DIM_MAX)
        return config_fail(
                &r, "E0302", "%s is %d; heads have from 1 to %d channels",
                head_dim_source(&r), c.head_dim, HEAD_DIM_MAX);
    ZD_TRY(config_keys_check_window(&r, &c));
    c.json = config_keys_complete(&r, &c, architectures[c.family]);
    if (!c.json)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for a model's keys");
    *config_out = c;
    return ZD_OK;
}

/* DIR/config.json as JSON, which the caller lets go of. */
static enum zd_status read_json(const char *dir, char path[4096], json_t **json)
{
    if (!fs_is_dir(dir)) {
        enum zd_status status = fs_exists(dir) ? ZD_ERR_DATA : ZD_ERR_NO_INPUT;
        ZD_FAIL(status, "E0303",
                status == ZD_ERR_DATA ? "the model `%s` is no folder"
                                      : "the model folder `%s` does not exist",
                dir);
        zd_fail_help("the folder of a Hugging Face model; for `zerod plan` its "
                     "config.json alone is enough");
        return status;
    }
    fs_join(path, 4096, dir, "adapter_config.json");
    bool is_adapter = fs_exists(path);
    fs_join(path, 4096, dir, "config.json");
    if (is_adapter && !fs_exists(path)) {
        ZD_FAIL(ZD_ERR_NO_INPUT, "E0303", "%s is an adapter, not a model", dir);
        zd_fail_help(
                "name the folder of its base model here; `zerod generate` "
                "and `zerod merge` take the adapter as --adapter %s, a "
                "job as lora.path",
                dir);
        return ZD_ERR_NO_INPUT;
    }
    return json_parse_file(path, CONFIG_BYTES_MAX, json);
}

enum zd_status model_config_read(
        const char *dir, struct model_config *config_out)
{
    char path[4096];
    json_t *json;
    ZD_TRY(read_json(dir, path, &json));
    enum zd_status status =
            model_config_parse(json, path, ZD_ERR_DATA, config_out);
    json_decref(json);
    return status;
}

/* The tensors say the rest. */
static enum zd_status check_quantization(
        const struct config_reader *r, const json_t *quantization)
{
    const json_t *blocks = json_object_get(quantization, "weight_block_size");
    const char *method =
            json_string_value(json_object_get(quantization, "quant_method"));
    if (method && strcmp(method, "bitsandbytes") == 0)
        return ZD_OK;
    if (!method || strcmp(method, "fp8") != 0)
        return config_fail(
                r, "E0304",
                "`quantization_config` is of `%.40s`; bitsandbytes and fp8 can "
                "be read",
                method ? method : "no quant_method");
    for (size_t i = 0; i < 2; i++)
        if (json_array_size(blocks) != 2 ||
            json_integer_value(json_array_get(blocks, i)) != 128)
            return config_fail(
                    r, "E0304",
                    "`quantization_config` is fp8 without `weight_block_size` "
                    "= [128, 128]");
    return ZD_OK;
}

static void take_format(const json_t *keys, struct model_config *config)
{
    const char *type =
            json_string_value(json_object_get(keys, "bnb_4bit_quant_type"));
    config->is_quantized = true;
    config->stored_nested =
            json_is_true(json_object_get(keys, "bnb_4bit_use_double_quant"));
    config->stored_format =
            json_object_get(keys, "weight_block_size")            ? QUANT_FP8
            : json_is_true(json_object_get(keys, "load_in_8bit")) ? QUANT_INT8
            : type && strcmp(type, "nf4") == 0                    ? QUANT_NF4
                                                                  : QUANT_FP4;
}

enum zd_status model_config_read_stored(
        const char *dir, struct model_config *config_out)
{
    char path[4096];
    json_t *json;
    ZD_TRY(read_json(dir, path, &json));
    struct config_reader reader = {json, path, ZD_ERR_DATA};
    json_t *quantization =
            json_incref(json_object_get(json, "quantization_config"));
    bool is_quantized = quantization && !json_is_null(quantization);
    enum zd_status status =
            is_quantized ? check_quantization(&reader, quantization) : ZD_OK;
    json_object_del(json, "quantization_config");
    if (status == ZD_OK)
        status = model_config_parse(json, path, ZD_ERR_DATA, config_out);
    if (status == ZD_OK && is_quantized)
        take_format(quantization, config_out);
    json_decref(quantization);
    json_decref(json);
    return status;
}

const char *model_config_stored_name(const struct model_config *config)
{
    return quant_format_name(config->stored_format);
}

void model_config_fini(struct model_config *config)
{
    if (!config)
        return;
    json_decref(config->json);
    memset(config, 0, sizeof *config);
}

void model_config_describe(
        const struct model_config *config, char *out, size_t out_bytes)
{
    snprintf(
            out, out_bytes, "%s, %d layers, %d wide, %d/%d heads",
            model_family_name(config->family), config->layers,
            config->hidden_size, config->heads, config->kv_heads);
}
