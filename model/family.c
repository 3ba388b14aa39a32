#include "model/config.h"

static const char *const family_names[] = {
        [MODEL_GPT2] = "gpt2",       [MODEL_LLAMA] = "llama",
        [MODEL_MISTRAL] = "mistral", [MODEL_QWEN2] = "qwen2",
        [MODEL_QWEN3] = "qwen3",
};

const char *model_family_name(enum model_family family)
{
    return family_names[family];
}
