#include "model/files/hf_names.h"

#include "base/must.h"

#include <string.h>

/* Prefixes of a text model inside a multimodal one. */
#define OUTER "language_model."
#define INNER "model."

static bool begins(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

void hf_name_canonical(
        const struct model_config *config, const char *name,
        char out[HF_NAME_BYTES])
{
    const char *prefix = config->wrapper ? OUTER : config->family->file_prefix;
    bool is_inside = config->wrapper && begins(name, INNER OUTER);
    if (is_inside)
        name += strlen(INNER OUTER);
    else if (prefix && begins(name, prefix))
        name += strlen(prefix);
    snprintf(out, HF_NAME_BYTES, "%s%s", is_inside ? INNER : "", name);
}

void hf_name_in_files(
        const struct model_config *config, const char *name, bool prefixed,
        char out[HF_NAME_BYTES])
{
    const char *prefix = config->family->file_prefix;
    bool is_head = strcmp(name, "lm_head.weight") == 0;
    if (config->wrapper && !prefixed && begins(name, INNER))
        snprintf(out, HF_NAME_BYTES, INNER OUTER "%s", name + strlen(INNER));
    else if (config->wrapper)
        snprintf(out, HF_NAME_BYTES, "%s%s", prefixed ? OUTER : "", name);
    else
        snprintf(
                out, HF_NAME_BYTES, "%s%s",
                prefix && prefixed && !is_head ? prefix : "", name);
}

void hf_name_of_module(
        const struct model_config *config, const char *name,
        char out[HF_NAME_BYTES])
{
    hf_name_in_files(config, name, !config->wrapper, out);
}

static bool ends_with(const char *name, const char *end)
{
    size_t bytes = strlen(name), end_bytes = strlen(end);
    return bytes >= end_bytes && strcmp(name + bytes - end_bytes, end) == 0;
}

bool hf_name_is_buffer(const char *name)
{
    return ends_with(name, ".rotary_emb.inv_freq") ||
           ends_with(name, ".attn.bias") ||
           ends_with(name, ".attn.masked_bias");
}

/* --- a text model inside a multimodal one -------------------------------- */

const struct text_wrapper text_wrappers[] = {
        {"gemma3", "Gemma3ForConditionalGeneration", "gemma3_text"},
        {"mistral3", "Mistral3ForConditionalGeneration", "mistral"},
        {0}};

const struct text_wrapper *text_wrapper_of(const json_t *json)
{
    const char *type = json_string_at(json, "model_type");
    const char *given = json_string_value(
            json_array_get(json_object_get(json, "architectures"), 0));
    const struct text_wrapper *w = text_wrappers;
    for (; w->name; w++)
        if (type ? strcmp(type, w->name) == 0
                 : given && strcmp(given, w->architecture) == 0)
            return w;
    return NULL;
}

json_t *text_config_inner(
        const struct text_wrapper *wrapper, const json_t *json)
{
    static const char *const outside[] = {
            "dtype",        "torch_dtype",  "bos_token_id",
            "eos_token_id", "pad_token_id", "quantization_config"};
    const json_t *text = json_object_get(json, "text_config");
    json_t *tied = json_object_get(json, "tie_word_embeddings");
    if (!json_is_object(text))
        return NULL;
    json_t *inner = zd_must(json_deep_copy(text));
    if (!json_object_get(inner, "model_type"))
        json_object_set_new(
                inner, "model_type", json_string(wrapper->text_type));
    json_object_del(inner, "architectures"); /* only for a separate model */
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        json_t *value = json_object_get(json, outside[i]);
        if (value && !json_object_get(inner, outside[i]))
            json_object_set(inner, outside[i], value);
    }
    if (tied)
        json_object_set(inner, "tie_word_embeddings", tied);
    return inner;
}

json_t *text_config_of(json_t *json, const struct model_config *config)
{
    return config->wrapper ? json_object_get(json, "text_config") : json;
}

bool text_config_passes(const struct model_config *config, const char *name)
{
    return config->wrapper && !begins(name, OUTER) &&
           !begins(name, INNER OUTER) && !begins(name, "lm_head.");
}
