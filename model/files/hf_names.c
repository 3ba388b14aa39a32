#include "model/files/hf_names.h"

#include <string.h>

const char *hf_name_canonical(
        const struct model_config *config, const char *name)
{
    const char *prefix = config->family->file_prefix;
    size_t bytes = prefix ? strlen(prefix) : 0;
    return bytes && strncmp(name, prefix, bytes) == 0 ? name + bytes : name;
}

void hf_name_in_files(
        const struct model_config *config, const struct param *param,
        char out[HF_NAME_BYTES])
{
    const char *prefix = config->family->file_prefix;
    bool is_inside = prefix && param->role != ROLE_HEAD;
    snprintf(out, HF_NAME_BYTES, "%s%s", is_inside ? prefix : "", param->name);
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
