#include "model/adapters/peft_config.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "base/words.h"
#include "model/config_keys.h"
#include "model/files/hf_names.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES_MAX = 16 << 20 };

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

static bool is_sound(const char *pattern, char problem[160])
{
    pcre2_code *code = compile(pattern, problem);
    pcre2_code_free(code);
    return code != NULL;
}

/* re.fullmatch(pattern, name). The pattern must be valid; if matching exceeds
 * PCRE2's limits, it does not match. Compiles each time: a model has only some
 * hundred names. */
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

/* re.match(rf"(.*\.)?({pattern})$", name): matches the last parts of a name. */
static bool matches_end(const char *pattern, const char *name)
{
    size_t bytes = strlen(pattern) + sizeof "(?:.*\\.)?(?:)";
    ZD_FREED char *whole = zd_must(malloc(bytes));
    snprintf(whole, bytes, "(?:.*\\.)?(?:%s)", pattern);
    return matches_all(whole, name);
}

/* --- keys that we have, and those that we have not ------------------------ */

/* Keys that are ignored or read elsewhere. */
static const char free_keys[] =
        "peft_type task_type auto_mapping peft_version base_model_name_or_path "
        "revision r lora_alpha lora_dropout init_lora_weights";

static bool is_name(const json_t *value)
{
    return json_is_string(value) && json_string_length(value) > 0;
}

static bool is_layer(const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) >= 0 &&
           json_integer_value(value) <= INT_MAX;
}

static bool is_rank(const json_t *value)
{
    return is_layer(value) && json_integer_value(value) >= 1;
}

static bool is_positive(const json_t *value)
{
    double number = json_number_value(value);
    return json_is_number(value) && isfinite(number) && number > 0;
}

static bool is_bool(const json_t *value)
{
    return json_is_boolean(value);
}

/* The type of a key's value. */
enum form {
    FORM_BOOL,
    FORM_NAMES,
    FORM_PATTERN,
    FORM_LAYERS,
    FORM_NUMBERS,
    FORM_RANKS,
    FORM_DEFAULT /* only PEFT's default */
};

/* A key's value: one, a list or a table. */
static const struct {
    const char *expected;
    bool (*is)(const json_t *value);
    bool one, list, table;
} forms[] = {
        [FORM_BOOL] = {"true or false", is_bool, .one = true},
        [FORM_NAMES] = {"a list of names", is_name, .list = true},
        [FORM_PATTERN] =
                {"a list of names, or a pattern", is_name, true, .list = true},
        [FORM_LAYERS] = {"a list of layers", is_layer, true, .list = true},
        [FORM_NUMBERS] =
                {"a table of numbers above 0", is_positive, .table = true},
        [FORM_RANKS] =
                {"a table of whole numbers from 1 on", is_rank, .table = true},
};

struct key {
    const char *name;
    enum form form;
    const char *absent; /* for FORM_DEFAULT: PEFT's default as JSON; NULL: only
                           null */
};

static const struct key keys[] = {
        {"inference_mode", FORM_BOOL, NULL},
        {"target_modules", FORM_PATTERN, NULL},
        {"exclude_modules", FORM_PATTERN, NULL},
        {"modules_to_save", FORM_NAMES, NULL},
        {"layers_to_transform", FORM_LAYERS, NULL},
        {"rank_pattern", FORM_RANKS, NULL},
        {"alpha_pattern", FORM_NUMBERS, NULL},
        {"use_rslora", FORM_BOOL, NULL},
        {"use_dora", FORM_BOOL, NULL},
        /* how the base stores its weights; known from the model */
        {"fan_in_fan_out", FORM_BOOL, NULL},
        /* a saved tied embedding is used on both sides anyway */
        {"ensure_weight_tying", FORM_BOOL, NULL},
        {"bias", FORM_DEFAULT, "\"none\""},
        {"megatron_core", FORM_DEFAULT, "\"megatron.core\""},
        {"loftq_config", FORM_DEFAULT, "{}"},
        {"qalora_group_size", FORM_DEFAULT, "16"},
        {"use_qalora", FORM_DEFAULT, "false"},
        {"lora_bias", FORM_DEFAULT, "false"},
};
enum { KEYS = sizeof keys / sizeof keys[0] };

static enum zd_status check_default(
        const struct config_reader *r, const struct key *key,
        const json_t *value)
{
    char text[CONFIG_TEXT];
    json_auto_t *absent =
            key->absent
                    ? zd_must(json_loads(key->absent, JSON_DECODE_ANY, NULL))
                    : NULL;
    if (json_equal(value, absent))
        return ZD_OK;
    return config_fail(
            r, "E0321", "`%s` = %s is not supported; %s is", key->name,
            config_text(value, text), key->absent ? key->absent : "null");
}

static bool fits(enum form form, const json_t *value)
{
    bool all = forms[form].list && json_is_array(value);
    all |= forms[form].table && json_is_object(value);
    JSON_EACH(item, value)
        all = all && forms[form].is(item);
    JSON_MEMBERS(key, item, value)
        all = all && forms[form].is(item);
    return all || (forms[form].one && forms[form].is(value));
}

/* Compiles each pattern once, so that matching cannot fail later. */
static enum zd_status check_pattern(
        const struct config_reader *r, const char *key, const char *pattern)
{
    char problem[160];
    if (is_sound(pattern, problem))
        return ZD_OK;
    return config_fail(
            r, "E0320", "`%s`: `%.100s` is no pattern: %s", key, pattern,
            problem);
}

static enum zd_status check_key(
        const struct config_reader *r, const struct key *key,
        const json_t *value)
{
    if (key->form == FORM_DEFAULT)
        return check_default(r, key, value);
    if (!fits(key->form, value))
        return config_wrong(r, key->name, forms[key->form].expected);
    if (key->form == FORM_PATTERN && json_is_string(value))
        return check_pattern(r, key->name, json_string_value(value));
    if (key->form == FORM_NAMES)
        JSON_EACH(item, value)
            ZD_TRY(check_pattern(r, key->name, json_string_value(item)));
    if (forms[key->form].table)
        JSON_MEMBERS(pattern, item, value)
            ZD_TRY(check_pattern(r, key->name, pattern));
    return ZD_OK;
}

static enum zd_status check_keys(const struct config_reader *r)
{
    JSON_MEMBERS(name, value, r->json) {
        struct key unknown = {name, FORM_DEFAULT, NULL};
        const struct key *key = &unknown;
        for (int i = 0; i < KEYS; i++)
            if (strcmp(keys[i].name, name) == 0)
                key = &keys[i];
        /* PEFT also writes an empty layers_pattern for none */
        bool is_free = json_is_null(value) ||
                       words_have(free_keys, " ", name) ||
                       (strcmp(name, "layers_pattern") == 0 &&
                        json_is_string(value) && !json_string_length(value));
        if (!is_free)
            ZD_TRY(check_key(r, key, value));
    }
    return ZD_OK;
}

/* --- the values ----------------------------------------------------------- */

static enum zd_status check_word(
        const struct config_reader *r, const char *key, const char *supported)
{
    const json_t *value = config_get(r, key);
    const char *word = json_string_value(value);
    return !value || (word && strcmp(word, supported) == 0)
                   ? ZD_OK
                   : config_fail(
                             r, "E0321", "`%s` is %.40s; %s is supported", key,
                             word ? word : "no word", supported);
}

static enum zd_status check_kind(const struct config_reader *r)
{
    const json_t *init = config_get(r, "init_lora_weights");
    const char *word = json_string_value(init);
    ZD_TRY(check_word(r, "peft_type", "LORA"));
    ZD_TRY(check_word(r, "task_type", "CAUSAL_LM"));
    if (!init || json_is_boolean(init) ||
        (word && words_have("gaussian default orthogonal", " ", word)))
        return ZD_OK;
    config_fail(
            r, "E0321",
            "`init_lora_weights` = %.40s is not supported: the adapter belongs "
            "to a base that was changed with it",
            word ? word : "of this form");
    return zd_fail_help(
            "save it with path_initial_model_for_weight_conversion, which "
            "makes it a LoRA of the base as it was");
}

static enum zd_status read_values(
        const struct config_reader *r, struct peft_config *config)
{
    const json_t *rank = config_get(r, "r");
    const json_t *alpha = config_get(r, "lora_alpha");
    const json_t *dropout = config_get(r, "lora_dropout");
    const json_t *base = config_get(r, "base_model_name_or_path");
    if (rank && !is_rank(rank))
        return config_wrong(r, "r", "a whole number from 1 on");
    config->r = rank ? (int)json_integer_value(rank) : 8;
    if (alpha && !is_positive(alpha))
        return config_wrong(r, "lora_alpha", "a number above 0");
    config->lora_alpha = alpha ? json_number_value(alpha) : 8;
    config->lora_dropout = dropout ? json_number_value(dropout) : 0;
    if ((dropout && !json_is_number(dropout)) ||
        !(config->lora_dropout >= 0 && config->lora_dropout < 1))
        return config_wrong(r, "lora_dropout", "a number from 0 to below 1");
    if (base && !json_is_string(base))
        return config_wrong(r, "base_model_name_or_path", "a name");
    if (!config_get(r, "target_modules"))
        return config_fail(r, "E0320", "`target_modules` is missing");
    config->use_rslora = json_is_true(config_get(r, "use_rslora"));
    config->use_dora = json_is_true(config_get(r, "use_dora"));
    if (base)
        config->base_model = zd_must(strdup(json_string_value(base)));
    config->json = zd_must(json_deep_copy(r->json));
    return ZD_OK;
}

enum zd_status peft_config_parse(
        const json_t *json, const char *name, enum zd_status on_error,
        struct peft_config *config_out)
{
    struct config_reader reader = {json, name, on_error, "E0320"};
    struct peft_config config = {0};
    if (!json_is_object(json))
        return config_fail(&reader, "E0320", "the adapter's keys are no table");
    ZD_TRY(check_kind(&reader));
    ZD_TRY(check_keys(&reader));
    ZD_TRY(read_values(&reader, &config));
    *config_out = config;
    return ZD_OK;
}

/* A folder without adapter_config.json: suggests the folder that was meant. */
static enum zd_status refuse_folder(const char *dir)
{
    ZD_FAIL(ZD_ERR_NO_INPUT, "E0712", "%s/adapter_config.json does not exist",
            dir);
    if (fs_exists(fs_in(dir, "peft/adapter_config.json").text))
        return zd_fail_help("%s/peft is one", dir);
    return zd_fail_help(
            fs_exists(fs_in(dir, "manifest.json").text)
                    ? "it is a checkpoint, of which `zerod export %s --out "
                      "DIR` writes one"
                    : "the folder that peft's save_pretrained has written, or "
                      "a job's output_dir/peft",
            dir);
}

enum zd_status peft_config_read(const char *dir, struct peft_config *config_out)
{
    const struct fs_path path = fs_in(dir, "adapter_config.json");
    json_auto_t *json = NULL;
    bool is_there;
    ZD_TRY(fs_look(path.text, &is_there));
    if (!is_there)
        return refuse_folder(dir);
    ZD_TRY(json_parse_file(path.text, CONFIG_BYTES_MAX, &json));
    return peft_config_parse(json, path.text, ZD_ERR_DATA, config_out);
}

void peft_config_fini(struct peft_config *config)
{
    if (!config)
        return;
    free(config->base_model);
    json_decref(config->json);
    memset(config, 0, sizeof *config);
}

/* --- modules -------------------------------------------------------------- */

/* NULL if absent or null. */
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

/* The layer in a module's name: the first number between name parts, two before
 * and one after it; -1: none. */
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

/* True for a module in modules_to_save, or inside of one. */
static bool is_in_saved(const struct peft_config *config, const char *module)
{
    char part[MODULE_BYTES];
    ZD_PRINT(part, "%s", module);
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
    /* a full name matches in spite of layers_to_transform */
    for (size_t i = 0; i < json_array_size(targets); i++)
        if (strcmp(module, json_string_value(json_array_get(targets, i))) == 0)
            return true;
    return names_have(targets, module) && is_in_layers(config, module);
}

/* The first entry of a table that matches. */
static const json_t *of_pattern(
        const struct peft_config *config, const char *table, const char *module)
{
    JSON_MEMBERS(pattern, value, json_object_get(config->json, table)) {
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
