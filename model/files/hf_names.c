#include "model/files/hf_names.h"

#include <string.h>

/* Of a text model in a multimodal one. */
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
