/* peft_modules.c - which modules an adapter's keys name. */
#include "model/adapters/pattern.h"
#include "model/adapters/peft_config.h"
#include "model/files/hf_names.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* NULL when it is absent or null. */
static const json_t *value_of(const struct peft_config *config, const char *key)
{
    const json_t *value = json_object_get(config->json, key);
    return json_is_null(value) ? NULL : value;
}

bool peft_module_is(const char *module, const char *name)
{
    size_t bytes = strlen(module), end = strlen(name);
    return strcmp(module, name) == 0 ||
           (bytes > end && module[bytes - end - 1] == '.' &&
            strcmp(module + bytes - end, name) == 0);
}

static bool names_have(const json_t *names, const char *module)
{
    for (size_t i = 0; i < json_array_size(names); i++)
        if (peft_module_is(module, json_string_value(json_array_get(names, i))))
            return true;
    return false;
}

static bool names_or_pattern_have(const json_t *value, const char *module)
{
    return json_is_string(value)
                   ? pattern_matches_all(json_string_value(value), module)
                   : names_have(value, module);
}

static bool has_layer(const json_t *layers, long layer)
{
    if (json_is_integer(layers))
        return json_integer_value(layers) == layer;
    for (size_t i = 0; i < json_array_size(layers); i++)
        if (json_integer_value(json_array_get(layers, i)) == layer)
            return true;
    return false;
}

/* The layer that a module's name says: the first number with a part of a name
 * after it and two before; -1: none. */
static long layer_of(const char *module)
{
    for (const char *dot = strchr(module, '.'); dot;
         dot = strchr(dot + 1, '.')) {
        size_t digits = strspn(dot + 1, "0123456789");
        if (digits && dot[1 + digits] == '.' &&
            memchr(module, '.', (size_t)(dot - module)))
            return strtol(dot + 1, NULL, 10);
    }
    return -1;
}

static bool is_in_layers(const struct peft_config *config, const char *module)
{
    const json_t *layers = value_of(config, "layers_to_transform");
    return !layers || (json_is_array(layers) && !json_array_size(layers)) ||
           has_layer(layers, layer_of(module));
}

bool peft_config_saves(const struct peft_config *config, const char *module)
{
    const json_t *names = value_of(config, "modules_to_save");
    size_t bytes = strlen(module);
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        size_t end = strlen(name);
        if (bytes >= end && strcmp(module + bytes - end, name) == 0)
            return true;
    }
    return false;
}

/* A module that is kept whole, or lies in one that is. */
static bool is_in_saved(const struct peft_config *config, const char *module)
{
    char part[MODULE_BYTES];
    snprintf(part, sizeof part, "%s", module);
    for (;;) {
        const json_t *names = value_of(config, "modules_to_save");
        for (size_t i = 0; i < json_array_size(names); i++)
            if (pattern_matches_end(
                        json_string_value(json_array_get(names, i)), part))
                return true;
        char *dot = strrchr(part, '.');
        if (!dot)
            return false;
        *dot = '\0';
    }
}

bool peft_config_targets(const struct peft_config *config, const char *module)
{
    const json_t *targets = value_of(config, "target_modules");
    const json_t *excluded = value_of(config, "exclude_modules");
    if ((excluded && names_or_pattern_have(excluded, module)) ||
        is_in_saved(config, module))
        return false;
    if (json_is_string(targets)) {
        const char *pattern = json_string_value(targets);
        if (strcmp(pattern, "all-linear") != 0)
            return pattern_matches_all(pattern, module);
        return strcmp(module, "lm_head") != 0 && is_in_layers(config, module);
    }
    /* a whole name is taken in any layer */
    for (size_t i = 0; i < json_array_size(targets); i++)
        if (strcmp(module, json_string_value(json_array_get(targets, i))) == 0)
            return true;
    return names_have(targets, module) && is_in_layers(config, module);
}

/* The first of a table that matches. */
static const json_t *of_pattern(
        const struct peft_config *config, const char *table, const char *module)
{
    const char *pattern;
    json_t *value;
    json_object_foreach(json_object_get(config->json, table), pattern, value)
    {
        if (pattern_matches_end(pattern, module))
            return value;
    }
    return NULL;
}

int peft_config_rank(const struct peft_config *config, const char *module)
{
    const json_t *rank = of_pattern(config, "rank_pattern", module);
    return rank ? (int)json_integer_value(rank) : config->r;
}

double peft_config_alpha(const struct peft_config *config, const char *module)
{
    const json_t *alpha = of_pattern(config, "alpha_pattern", module);
    return alpha ? json_number_value(alpha) : config->lora_alpha;
}

double peft_config_scale(const struct peft_config *config, const char *module)
{
    double r = peft_config_rank(config, module);
    return peft_config_alpha(config, module) /
           (config->use_rslora ? sqrt(r) : r);
}

struct module peft_module(
        const struct model_config *config, const struct param_table *table,
        int id)
{
    struct module module;
    hf_name_of_module(config, table->params[id].name, module.name);
    char *dot = strrchr(module.name, '.');
    if (dot)
        *dot = '\0';
    return module;
}

bool peft_adapts(const struct peft_view *view, int id)
{
    return param_is_linear(&view->table->params[id]) &&
           peft_config_targets(view->adapter, peft_view_module(view, id).name);
}

struct peft_factors peft_factors(const struct peft_view *view, int id)
{
    struct module module = peft_view_module(view, id);
    if (!peft_adapts(view, id))
        return (struct peft_factors){0};
    return (struct peft_factors){
            peft_config_rank(view->adapter, module.name),
            peft_config_scale(view->adapter, module.name)};
}

bool peft_saves(const struct peft_view *view, int id)
{
    return peft_config_saves(view->adapter, peft_view_module(view, id).name);
}
