/* peft_modules.c - which modules an adapter's keys name. */
#include "base/must.h"
#include "model/adapters/peft_config.h"
#include "model/files/hf_names.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- patterns: Python's, by PCRE2 ----------------------------------------- */

static pcre2_code *compile(const char *pattern, char problem[160])
{
    int error;
    PCRE2_SIZE at;
    pcre2_code *code = pcre2_compile(
            (PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
            PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_UTF, &error, &at, NULL);
    if (!code && problem) {
        char text[128] = "";
        pcre2_get_error_message(error, (PCRE2_UCHAR *)text, sizeof text);
        snprintf(problem, 160, "%s at byte %zu", text, (size_t)at);
    }
    return code;
}

bool pattern_is_sound(const char *pattern, char problem[160])
{
    pcre2_code *code = compile(pattern, problem);
    pcre2_code_free(code);
    return code != NULL;
}

/* re.fullmatch(pattern, name). The pattern is sound; one that gives up (too
 * many ways to match) does not match. Compiled each time: a model has some
 * hundred names, asked once. */
static bool matches_all(const char *pattern, const char *name)
{
    pcre2_code *code = compile(pattern, NULL);
    if (!code)
        return false;
    pcre2_match_data *match =
            zd_must(pcre2_match_data_create_from_pattern(code, NULL));
    int found = pcre2_match(
            code, (PCRE2_SPTR)name, strlen(name), 0, 0, match, NULL);
    pcre2_match_data_free(match);
    pcre2_code_free(code);
    return found > 0;
}

/* re.match(rf"(.*\.)?({pattern})$", name): the last parts of a name. */
static bool matches_end(const char *pattern, const char *name)
{
    size_t bytes = strlen(pattern) + sizeof "(?:.*\\.)?(?:)";
    char *whole = zd_must(malloc(bytes));
    snprintf(whole, bytes, "(?:.*\\.)?(?:%s)", pattern);
    bool matches = matches_all(whole, name);
    free(whole);
    return matches;
}

/* --- modules -------------------------------------------------------------- */

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
    long layer = layer_of(module);
    bool found = !layers || (json_is_array(layers) && !json_array_size(layers));
    if (json_is_integer(layers))
        return json_integer_value(layers) == layer;
    for (size_t i = 0; i < json_array_size(layers); i++)
        found |= json_integer_value(json_array_get(layers, i)) == layer;
    return found;
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
            if (matches_end(json_string_value(json_array_get(names, i)), part))
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
    const char *pattern = json_string_value(excluded);
    if ((pattern && matches_all(pattern, module)) ||
        names_have(excluded, module) || is_in_saved(config, module))
        return false;
    if (json_is_string(targets)) {
        pattern = json_string_value(targets);
        if (strcmp(pattern, "all-linear") != 0)
            return matches_all(pattern, module);
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
        if (matches_end(pattern, module))
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
