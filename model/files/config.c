#include "model/files/config.h"
#include "base/file/fs.h"
#include "base/log.h"
#include "base/must.h"
#include "base/suggest.h"
#include "base/text_buffer.h"
#include "model/config_keys.h"
#include "model/families/families.h"
#include "model/files/hf_names.h"
#include "model/files/hub.h"
#include "model/files/weights_hf.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES_MAX = 16 << 20 };
static const char ORIGINAL[] = "original_max_position_embeddings";

/* Suggests the family with the nearest name, and lists all. */
static enum zd_status help_with_families(const json_t *json, const char *name)
{
    char names[400] = "";
    struct text_buffer list = {.out = names, .bytes = sizeof names};
    const struct model_family *const *family = model_families;
    const struct text_wrapper *wrapper = text_wrappers;
    const char *nearest = NULL;
    int distance = 0;
    for (int i = 0; *family || wrapper->name; i++) {
        const char *known = *family ? (*family++)->name : (wrapper++)->name;
        int d = name ? edit_distance(name, known) : 0;
        text_buffer_add(&list, "%s%s", i ? ", " : "", known);
        if (!nearest || d < distance)
            distance = d, nearest = known;
    }
    if (json_integer_at(json, "num_experts") > 0 ||
        json_integer_at(json, "num_local_experts") > 0 ||
        json_integer_at(json, "n_routed_experts") > 0)
        return zd_fail_help(
                "models of experts are not supported; model_type is one of %s",
                names);
    return name ? zd_fail_help(
                          "the nearest is %s; model_type is one of %s", nearest,
                          names)
                : zd_fail_help("model_type is one of %s", names);
}

static enum zd_status read_family(
        const struct config_reader *r, struct model_config *config)
{
    const json_t *type = config_get(r, "model_type");
    const json_t *list = config_get(r, "architectures");
    const char *name = json_string_value(type);
    const char *given = json_string_value(json_array_get(list, 0));
    for (int i = 0; model_families[i]; i++) {
        const struct model_family *family = model_families[i];
        bool is_given = given && strcmp(given, family->architecture) == 0;
        if (type ? name && strcmp(name, family->name) == 0 : is_given) {
            config->family = family;
            return !list || is_given
                           ? ZD_OK
                           : config_wrong(
                                     r, "architectures", family->architecture);
        }
    }
    if (type || json_array_size(list))
        config_wrong(
                r, type ? "model_type" : "architectures",
                "of a supported family");
    else
        config_fail(r, "E0301", "`model_type` is missing");
    return help_with_families(r->json, name ? name : given);
}

static enum zd_status read_dtype(
        const struct config_reader *r, struct model_config *config)
{
    const char *key = config_get(r, "dtype") ? "dtype" : "torch_dtype";
    const json_t *value = config_get(r, key);
    /* Random weights are exported in bf16 by default. */
    config->storage_dtype =
            r->on_error == ZD_ERR_CONFIG ? DTYPE_BF16 : DTYPE_FP32;
    if (!value)
        return ZD_OK;
    const char *name = json_string_value(value);
    if (name && strncmp(name, "torch.", 6) == 0)
        name += 6;
    return dtype_find(dtype_torch_name, name, &config->storage_dtype)
                   ? ZD_OK
                   : config_wrong(r, key, "float32, bfloat16 or float16");
}

static enum zd_status check_head_dim(
        const struct config_reader *reader, const struct model_config *config)
{
    const char *keys = config_get(reader, "head_dim")
                               ? "`head_dim`"
                               : config->family->head_dim_keys;
    if (config->head_dim < 1 || config->head_dim > HEAD_DIM_MAX)
        return config_bad(
                reader, "%s is %d; heads have from 1 to %d channels", keys,
                config->head_dim, HEAD_DIM_MAX);
    if (config->family->rotary && config->head_dim % 2 != 0)
        return config_bad(
                reader,
                "%s is %d: rotary positions need an even number of channels in "
                "a head",
                keys, config->head_dim);
    return ZD_OK;
}

static enum zd_status parse_text(
        const struct config_reader *r, struct model_config *c)
{
    if (!json_is_object(r->json))
        return config_bad(r, "a model configuration is a table of keys");
    ZD_TRY(read_family(r, c));
    ZD_TRY(config_keys_read(r, c));
    ZD_TRY(c->family->settle(r, c));
    ZD_TRY(read_dtype(r, c));
    ZD_TRY(check_head_dim(r, c));
    ZD_TRY(config_read_layers(r, c));
    c->json = config_keys_complete(r, c);
    return ZD_OK;
}

/* Parses the text part; c->json keeps the whole. */
static enum zd_status parse_wrapped(
        struct config_reader *r, const struct text_wrapper *wrapper,
        struct model_config *c)
{
    const json_t *whole = r->json;
    json_auto_t *inner = text_config_inner(wrapper, whole);
    if (!inner)
        return config_wrong(r, "text_config", "a table of keys");
    r->json = inner;
    enum zd_status status = parse_text(r, c);
    r->json = whole;
    ZD_TRY(status);
    json_t *json = zd_must(json_deep_copy(whole));
    json_object_set_new(json, "text_config", c->json);
    c->json = json;
    c->wrapper = wrapper;
    return ZD_OK;
}

enum zd_status model_config_parse(
        const json_t *json, const char *name, enum zd_status on_error,
        struct model_config *config_out)
{
    struct config_reader r = {json, name, on_error, "E0302"};
    ZD_SCOPED(model_config_fini) struct model_config c = {0};
    const struct text_wrapper *wrapper =
            on_error == ZD_ERR_DATA ? text_wrapper_of(json) : NULL;
    ZD_TRY(wrapper ? parse_wrapped(&r, wrapper, &c) : parse_text(&r, &c));
    *config_out = ZD_TAKE(c);
    return ZD_OK;
}

/* DIR/config.json as a new reference. */
static enum zd_status read_json(
        const char *dir, const char *path, json_t **json)
{
    char help[HUB_HELP_BYTES];
    if (!fs_is_dir(dir)) {
        enum zd_status status = fs_exists(dir) ? ZD_ERR_DATA : ZD_ERR_NO_INPUT;
        ZD_FAIL(status, "E0303",
                status == ZD_ERR_DATA ? "the model `%s` is not a folder"
                                      : "the model folder `%s` does not exist",
                dir);
        zd_fail_help(
                "%s", hub_help(dir, help)
                              ? help
                              : "the folder of a Hugging Face model; for "
                                "`zerod plan` its config.json alone is enough");
        return status;
    }
    if (fs_exists(fs_in(dir, "adapter_config.json").text) && !fs_exists(path)) {
        ZD_FAIL(ZD_ERR_NO_INPUT, "E0303", "%s is an adapter, not a model", dir);
        return zd_fail_help(
                "name the folder of its base model here; `zerod generate` "
                "and `zerod merge` take the adapter as --adapter %s, a "
                "job as lora.path",
                dir);
    }
    enum zd_status status = json_parse_file(path, CONFIG_BYTES_MAX, json);
    if (status != ZD_ERR_NO_INPUT)
        return status;
    /* a run's output folder holds the model in hf/ */
    if (fs_exists(fs_in(dir, "hf/config.json").text))
        zd_fail_help("the model of this run is %s/hf", dir);
    else if (hub_help(dir, help))
        zd_fail_help("%s", help);
    return status;
}

/* By default transformers ties the head of a multimodal model unless its files
 * have one; text_config may lack the key. */
static void settle_tied(
        const char *dir, const json_t *json, struct model_config *config)
{
    const char *key = "tie_word_embeddings";
    const json_t *text = json_object_get(json, "text_config");
    if (!config->wrapper || json_object_get(json, key) ||
        json_object_get(text, key))
        return;
    config->tied = !weights_hf_has(dir, "language_model.lm_head.weight") &&
                   !weights_hf_has(dir, "lm_head.weight");
    json_object_set_new(config->json, key, json_boolean(config->tied));
}

/* The tensors determine the rest. */
static enum zd_status check_quantization(
        const struct config_reader *r, const json_t *quantization)
{
    const json_t *blocks = json_object_get(quantization, "weight_block_size");
    const char *method = json_string_at(quantization, "quant_method");
    if (method && strcmp(method, "bitsandbytes") == 0)
        return ZD_OK;
    if (!method || strcmp(method, "fp8") != 0)
        return config_lacks(
                r,
                "`quantization_config` is of `%.40s`; bitsandbytes and fp8 can "
                "be read",
                method ? method : "no quant_method");
    for (size_t i = 0; i < 2; i++)
        if (json_array_size(blocks) != 2 ||
            json_integer_value(json_array_get(blocks, i)) != 128)
            return config_lacks(
                    r,
                    "`quantization_config` is fp8 without `weight_block_size` "
                    "= [128, 128]");
    return ZD_OK;
}

enum zd_status model_config_read(
        const char *dir, bool may_be_quantized, struct model_config *config_out)
{
    const struct fs_path path = fs_in(dir, "config.json");
    json_auto_t *json = NULL;
    ZD_TRY(read_json(dir, path.text, &json));
    struct config_reader reader = {json, path.text, ZD_ERR_DATA, "E0302"};
    json_auto_t *keys =
            json_incref(json_object_get(json, "quantization_config"));
    const char *type = json_string_at(keys, "bnb_4bit_quant_type");
    bool is_quantized = may_be_quantized && keys && !json_is_null(keys);
    if (is_quantized)
        ZD_TRY(check_quantization(&reader, keys));
    if (may_be_quantized)
        json_object_del(json, "quantization_config");
    ZD_TRY(model_config_parse(json, path.text, ZD_ERR_DATA, config_out));
    settle_tied(dir, json, config_out);
    if (!is_quantized)
        return ZD_OK;
    config_out->is_quantized = true;
    config_out->stored_nested =
            json_is_true(json_object_get(keys, "bnb_4bit_use_double_quant"));
    config_out->stored_format =
            json_object_get(keys, "weight_block_size")            ? QUANT_FP8
            : json_is_true(json_object_get(keys, "load_in_8bit")) ? QUANT_INT8
            : type && strcmp(type, "nf4") == 0                    ? QUANT_NF4
                                                                  : QUANT_FP4;
    return ZD_OK;
}

/* The table that replaces the one in `keys`: with that table's keys other than
 * scaling, and with what transformers would derive from the file's
 * max_position_embeddings. */
static json_t *new_scaling(
        const json_t *scaling, const json_t *keys, int positions)
{
    static const char *const kept[] = {
            "rope_theta", "partial_rotary_factor", "llama_4_scaling_beta"};
    json_t *out = zd_must(json_deep_copy(scaling));
    const char *type = json_string_at(out, "rope_type");
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        if (!json_object_get(out, kept[i]) && json_object_get(keys, kept[i]))
            json_object_set(out, kept[i], json_object_get(keys, kept[i]));
    if (type && strcmp(type, "yarn") == 0 && !json_object_get(out, ORIGINAL))
        json_object_set_new(out, ORIGINAL, json_integer(positions));
    return out;
}

json_t *model_config_rope(const struct model_config *config)
{
    json_t *keys = text_config_of(config->json, config);
    json_t *parts = json_object_get(keys, "rope_parameters");
    json_t *full = json_object_get(parts, "full_attention");
    if (config->rope_scaling)
        return config->rope_scaling;
    return full ? full : parts ? parts : json_object_get(keys, "rope_scaling");
}

void model_config_write_rope(json_t *json, const struct model_config *config)
{
    if (!config->rope_scaling)
        return;
    json_t *keys = text_config_of(json, config);
    json_t *parts = json_object_get(keys, "rope_parameters");
    bool has_types = json_object_get(parts, "full_attention");
    if (parts)
        json_object_del(keys, "rope_scaling");
    json_object_set(
            has_types ? parts : keys,
            has_types ? "full_attention"
            : parts   ? "rope_parameters"
                      : "rope_scaling",
            config->rope_scaling);
    json_object_set_new(
            keys, "max_position_embeddings",
            json_integer(config->max_positions));
}

enum zd_status model_config_scale_rope(
        const json_t *scaling, const char *name, enum zd_status on_error,
        struct model_config *c)
{
    struct config_reader r = {scaling, name, on_error, "E0302"};
    struct rope_set set, old_set = c->ropes[0];
    const json_t *old =
            json_object_get(text_config_of(c->json, c), "rope_parameters");
    const json_t *full = json_object_get(old, "full_attention");
    int original = c->max_positions;
    double partial = (double)old_set.dims / c->head_dim;
    if (!c->family->rotary)
        return config_lacks(
                &r, "the positions of a %s model do not turn", c->family->name);
    json_t *table = new_scaling(scaling, full ? full : old, original);
    enum zd_status status = config_read_rope(
            &r, "rope_scaling", table, old_set.theta, partial, c, &set);
    double reach = set.factor *
                   (set.original_positions ? set.original_positions : original);
    if (status == ZD_OK && reach > POSITIONS_MAX)
        status = config_wrong(&r, "factor", "less: positions are too many");
    if (status == ZD_OK && set.type != ROPE_DYNAMIC && reach > original)
        c->max_positions = set.positions = (int)reach;
    free(old_set.factors);
    set.q_beta = old_set.q_beta;
    c->ropes[0] = set;
    c->rope_scaling = table;
    return status;
}

void model_config_resize_vocab(struct model_config *config, int rows)
{
    if (!config->stored_rows)
        config->stored_rows = config->vocab_size;
    config->vocab_size = rows;
    json_object_set_new(
            text_config_of(config->json, config), "vocab_size",
            zd_must(json_integer(rows)));
}

void model_config_warn(const struct model_config *config)
{
    if (config->unknown[0])
        zd_log_warning(
                "config.json has keys that a %s model does not have in "
                "transformers; they are ignored: %s",
                config->family->name, config->unknown);
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
    json_decref(config->rope_scaling);
    free(config->layer_attention);
    for (int i = 0; i < ROPE_SETS; i++)
        free(config->ropes[i].factors);
    memset(config, 0, sizeof *config);
}

void model_config_describe(
        const struct model_config *config, char *out, size_t out_bytes)
{
    snprintf(
            out, out_bytes, "%s, %d layers, %d wide, %d/%d heads",
            config->family->name, config->layers, config->hidden_size,
            config->heads, config->kv_heads);
}
