/* families.h - all families. */
#pragma once

#include "model/family.h"

/* One row per family: families/NAME.c defines model_NAME. */
#define MODEL_FAMILIES(X)                                                      \
    X(gemma)                                                                   \
    X(gemma2)                                                                  \
    X(gemma3_text)                                                             \
    X(glm4) X(gpt2) X(granite) X(llama) X(ministral3) X(mistral) X(olmo2)      \
            X(phi3) X(qwen2) X(qwen3) X(smollm3)

#define DECLARE(name) extern const struct model_family model_##name;
MODEL_FAMILIES(DECLARE)
#undef DECLARE

extern const struct model_family *const model_families[]; /* NULL ends it */
