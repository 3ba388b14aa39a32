#include "model/files/config.h"
#include "base/file/fs.h"
#include "base/log.h"
#include "base/must.h"
#include "base/suggest.h"
#include "model/config_keys.h"
#include "model/config_layers.h"
#include "model/families/families.h"
#include "model/files/text_config.h"
#include "model/files/weights_hf.h"

#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES_MAX = 16 << 20 };

/* The family whose name is nearest, and all names. */
static void help_with_families(const char *name)
{
    char names[400] = "";
    const char *nearest = NULL;
    int distance = 0;
    for (int i = 0; model_families[i]; i++) {
        size_t used = strlen(names);
        int d = name ? edit_distance(name, model_families[i]->name) : 0;
        snprintf(
                names + used, sizeof names - used, "%s%s", i ? ", " : "",
                model_families[i]->name);
        if (!nearest || d < distance)
            distance = d, nearest = model_families[i]->name;
    }
    if (name)
        zd_fail_help(
                "the nearest is %s; model_type is one of %s", nearest, names);
    else
        zd_fail_help("model_type is one of %s", names);
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
        if (name ? strcmp(name, family->name) == 0 : is_given) {
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
    help_with_families(name ? name : given);
    return r->on_error;
}

static enum zd_status read_dtype(
        const struct config_reader *r, struct model_config *config)
{
    const json_t *value = config_get(r, "dtype");
    const char *key = value ? "dtype" : "torch_dtype";
    if (!value)
        value = config_get(r, "torch_dtype");
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
        return config_wrong(r, key, "float32, bfloat16 or float16");
    return ZD_OK;
}

static enum zd_status check_head_dim(
        const struct config_reader *reader, const struct model_config *config)
{
    const char *keys = config_get(reader, "head_dim")
                               ? "`head_dim`"
                               : config->family->head_dim_keys;
    if (config->head_dim < 1 || config->head_dim > HEAD_DIM_MAX)
        return config_fail(
                reader, "E0302", "%s is %d; heads have from 1 to %d channels",
                keys, config->head_dim, HEAD_DIM_MAX);
    if (config->family->rotary && config->head_dim % 2 != 0)
        return config_fail(
                reader, "E0302",
                "%s is %d: rotary positions need an even number of channels in "
                "a head",
                keys, config->head_dim);
    return ZD_OK;
}

static enum zd_status parse_text(
        const struct config_reader *r, struct model_config *c)
{
    if (!json_is_object(r->json))
        return config_fail(
                r, "E0302", "a model configuration is a table of keys");
    ZD_TRY(read_family(r, c));
    ZD_TRY(config_keys_read(r, c));
    ZD_TRY(c->family->settle(r, c));
    ZD_TRY(read_dtype(r, c));
    ZD_TRY(check_head_dim(r, c));
    ZD_TRY(config_read_layers(r, c));
    c->json = config_keys_complete(r, c);
    if (!c->json)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for a model's keys");
    return ZD_OK;
}

/* The text half: its family, and the whole in c->json. */
static enum zd_status parse_wrapped(
        struct config_reader *r, const struct text_wrapper *wrapper,
        struct model_config *c)
{
    const json_t *whole = r->json;
    json_t *inner = text_config_inner(wrapper, whole);
    if (!inner)
        return config_wrong(r, "text_config", "a table of keys");
    r->json = inner;
    enum zd_status status = parse_text(r, c);
    r->json = whole;
    json_decref(inner);
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
    struct model_config c = {0};
    const struct text_wrapper *wrapper =
            on_error == ZD_ERR_DATA ? text_wrapper_of(json) : NULL;
    enum zd_status status =
            wrapper ? parse_wrapped(&r, wrapper, &c) : parse_text(&r, &c);
    if (status == ZD_OK)
        *config_out = c;
    else
        model_config_fini(&c);
    return status;
}

/* DIR/config.json as JSON, which the caller lets go of. */
static enum zd_status read_json(const char *dir, char path[4096], json_t **json)
{
    if (!fs_is_dir(dir)) {
        enum zd_status status = fs_exists(dir) ? ZD_ERR_DATA : ZD_ERR_NO_INPUT;
        ZD_FAIL(status, "E0303",
                status == ZD_ERR_DATA ? "the model `%s` is not a folder"
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

/* transformers ties the head of a multimodal model by default, unless the files
 * hold one; text_config may say nothing about it. */
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

enum zd_status model_config_read(
        const char *dir, struct model_config *config_out)
{
    char path[4096];
    json_t *json;
    ZD_TRY(read_json(dir, path, &json));
    enum zd_status status =
            model_config_parse(json, path, ZD_ERR_DATA, config_out);
    if (status == ZD_OK)
        settle_tied(dir, json, config_out);
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
    struct config_reader reader = {json, path, ZD_ERR_DATA, "E0302"};
    json_t *quantization =
            json_incref(json_object_get(json, "quantization_config"));
    bool is_quantized = quantization && !json_is_null(quantization);
    enum zd_status status =
            is_quantized ? check_quantization(&reader, quantization) : ZD_OK;
    json_object_del(json, "quantization_config");
    if (status == ZD_OK)
        status = model_config_parse(json, path, ZD_ERR_DATA, config_out);
    if (status == ZD_OK)
        settle_tied(dir, json, config_out);
    if (status == ZD_OK && is_quantized)
        take_format(quantization, config_out);
    json_decref(quantization);
    json_decref(json);
    return status;
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
