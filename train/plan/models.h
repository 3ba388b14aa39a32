/* models.h - models that people ask for, by what their config.json says, so
 * that a plan of them needs no file. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct plan_model {
    const char *name, *type;
    int64_t parameters;
    int hidden, layers, heads, kv_heads, head_dim, inner, vocabulary, positions;
    bool is_tied;
    int window; /* sliding_window; 0: none */
};

/* The largest first; NULL after the last. */
const struct plan_model *plan_model_at(int index);
/* As config.json has it. New reference. */
json_t *plan_model_config(const struct plan_model *model);
