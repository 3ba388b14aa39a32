/* models.h - well-known models with the shapes of their config.json, so that
 * planning them needs no files. */
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
/* As in config.json. New reference. */
json_t *plan_model_config(const struct plan_model *model);
