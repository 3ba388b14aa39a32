#include "model/adapters/lora_names.h"

#include "base/must.h"
#include "base/text_buffer.h"

#include <string.h>

#define REFUSE(...) ZD_FAIL(ZD_ERR_CONFIG, "E0326", __VA_ARGS__)

/* The last part of a module's name. */
static const char *last_part(const char *module)
{
    const char *dot = strrchr(module, '.');
    return dot ? dot + 1 : module;
}

/* The last parts of linear modules' names. */
static enum zd_status tell_names(
        const struct peft_view *reader, const char *name)
{
    char list[600] = "", quoted[MODULE_BYTES + 4];
    struct text_buffer text = {.out = list, .bytes = sizeof list};
    if (peft_module_is("all-linear", name))
        return zd_fail_help(
                "target_modules = \"all-linear\", in no list, means all");
    for (int id = 0; id < reader->table->count; id++) {
        struct module module = peft_view_module(reader, id);
        snprintf(quoted, sizeof quoted, "\"%s\"", last_part(module.name));
        if (param_is_linear(&reader->table->params[id]) &&
            !strstr(list, quoted))
            text_buffer_add(&text, "%s%s", text.used ? ", " : "", quoted);
    }
    return zd_fail_help("linear modules: %s", list);
}

enum zd_status lora_refuse_embedding(const char *name)
{
    return REFUSE(
            "lora.target_modules: `%s` is an embedding, which gets no adapter; "
            "lora.modules_to_save trains it whole",
            name);
}

/* Each name is that of a linear module. */
static enum zd_status check_name(
        const struct peft_view *reader, const char *name)
{
    const struct param_table *table = reader->table;
    for (int id = 0; id < table->count; id++) {
        if (!peft_module_is(peft_view_module(reader, id).name, name))
            continue;
        if (table->params[id].is_embedding)
            return lora_refuse_embedding(name);
        if (param_is_linear(&table->params[id]))
            return ZD_OK;
    }
    if (reader->config->tied && strcmp(name, "lm_head") == 0)
        return REFUSE(
                "lora.target_modules: `lm_head` is tied to the embedding, "
                "which gets no adapter");
    REFUSE("lora.target_modules: `%.80s` is not a linear module of the model",
           name);
    return tell_names(reader, name);
}

/* Each of modules_to_save is one: the adapter with it alone saves something. */
static enum zd_status check_saved(
        const struct peft_view *reader, const json_t *name)
{
    struct peft_config only = {
            .json = zd_must(json_pack("{s:[O]}", "modules_to_save", name))};
    struct peft_view alone = {reader->config, &only, reader->table};
    bool found = false;
    if (reader->config->tied && peft_config_saves(&only, "lm_head")) {
        json_decref(only.json);
        REFUSE("lora.modules_to_save: `lm_head` is tied to the embedding of "
               "this model, and is not a module itself");
        return zd_fail_help(
                "\"%s\" trains it, for both sides",
                last_part(peft_view_module(reader, 0).name));
    }
    for (int id = 0; id < reader->table->count; id++)
        found |= peft_saves(&alone, id);
    json_decref(only.json);
    if (found)
        return ZD_OK;
    REFUSE("lora.modules_to_save: `%s` is not a module of the model",
           json_string_value(name));
    return zd_fail_help("names look like \"lm_head\" or \"embed_tokens\"");
}

static enum zd_status check_layer(
        const struct peft_view *reader, const json_t *layer)
{
    json_int_t number = json_integer_value(layer);
    if (number >= 0 && number < reader->config->layers)
        return ZD_OK;
    return REFUSE(
            "lora.layers_to_transform: %lld is not a layer; layers are 0 to %d",
            (long long)number, reader->config->layers - 1);
}

/* A job excludes modules that are there; adapters of others may exclude those
 * of a larger model. */
static enum zd_status check_excluded(const struct peft_view *reader)
{
    size_t i;
    json_t *item;
    json_array_foreach(
            json_object_get(reader->adapter->json, "exclude_modules"), i, item)
    {
        const char *name = json_string_value(item);
        bool found = false;
        for (int id = 0; id < reader->table->count && !found; id++)
            found = peft_module_is(peft_view_module(reader, id).name, name);
        if (found)
            continue;
        REFUSE("lora.exclude_modules: `%.80s` is not a module of the model",
               name);
        return tell_names(reader, name);
    }
    return ZD_OK;
}

enum zd_status lora_check_names(const struct peft_view *reader, bool of_job)
{
    size_t i;
    json_t *item;
    json_t *keys = reader->adapter->json;
    json_t *layers = json_object_get(keys, "layers_to_transform");
    json_t *targets = json_object_get(keys, "target_modules");
    json_array_foreach(targets, i, item)
            ZD_TRY(check_name(reader, json_string_value(item)));
    if (of_job)
        ZD_TRY(check_excluded(reader));
    json_array_foreach(json_object_get(keys, "modules_to_save"), i, item)
            ZD_TRY(check_saved(reader, item));
    if (json_is_integer(layers))
        ZD_TRY(check_layer(reader, layers));
    json_array_foreach(layers, i, item) ZD_TRY(check_layer(reader, item));
    if (json_is_string(targets) &&
        strcmp(json_string_value(targets), "all-linear") != 0 &&
        (json_is_integer(layers) || json_array_size(layers)))
        return REFUSE(
                "lora.layers_to_transform needs a list of names; a pattern "
                "itself names the layers");
    return ZD_OK;
}

/* Does the pattern of the job match a module that has an adapter? */
static enum zd_status check_pattern(
        const struct peft_view *reader, const struct param_table *adapted,
        const char *key, const char *pattern)
{
    struct peft_config only = {
            .json = zd_must(
                    json_pack("{s:{s:i}}", "rank_pattern", pattern, 1))};
    bool found = false;
    for (int id = 0; id < adapted->count && !found; id++)
        found = param_has_adapter(adapted, id) &&
                peft_config_rank(
                        &only, peft_module(reader->config, adapted, id).name) ==
                        1;
    json_decref(only.json);
    if (found)
        return ZD_OK;
    REFUSE("lora.%s: `%s` matches no module that gets an adapter", key,
           pattern);
    return tell_names(reader, pattern);
}

enum zd_status lora_check_patterns(
        const struct peft_view *reader, const struct lora_options *options,
        const struct param_table *adapted)
{
    static const char *const keys[] = {"rank_pattern", "alpha_pattern"};
    const char *pattern;
    json_t *value;
    for (int i = 0; options && i < 2; i++)
        json_object_foreach(
                json_object_get(options->given, keys[i]), pattern, value)
                ZD_TRY(check_pattern(reader, adapted, keys[i], pattern));
    return ZD_OK;
}
