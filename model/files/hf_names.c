#include "model/files/hf_names.h"

#include <string.h>

const char *hf_name_canonical(
        const struct model_config *config, const char *name)
{
    size_t prefix = strlen(HF_GPT2_PREFIX);
    if (config->family == MODEL_GPT2 &&
        strncmp(name, HF_GPT2_PREFIX, prefix) == 0)
        return name + prefix;
    return name;
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
