#include "model/lora.h"

#include "base/must.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MODULE_BYTES = PARAM_NAME_MAX + 16, NAMES_TOLD = 3, NAMES_MAX = 16 };

struct lora_options lora_options_default(void)
{
    return (struct lora_options){
            .r = 16,
            .lora_alpha = 32,
            .loraplus_lr_ratio = 1,
            .double_quant = true};
}

/* --- the configuration ---------------------------------------------------- */

/* Lists of names are sets. */
static bool have_same(const json_t *a, const json_t *b)
{
    size_t found = 0;
    if (!json_is_array(a) || !json_is_array(b))
        return json_equal(a, b) ||
               (json_is_number(a) && json_is_number(b) &&
                json_number_value(a) == json_number_value(b));
    for (size_t i = 0; i < json_array_size(a); i++)
        for (size_t j = 0; j < json_array_size(b); j++)
            if (json_equal(json_array_get(a, i), json_array_get(b, j))) {
                found++;
                break;
            }
    return found == json_array_size(a) && found == json_array_size(b);
}

/* Nothing, whichever way it is written. */
static bool is_nothing(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_array(value) && !json_array_size(value)) ||
           (json_is_object(value) && !json_object_size(value));
}

static enum zd_status check_agreement(
        const struct lora_options *options, const struct peft_config *config)
{
    const char *key;
    json_t *value;
    json_object_foreach(options->given, key, value)
    {
        const json_t *theirs = json_object_get(config->json, key);
        if (strcmp(key, "lora_dropout") == 0 ||
            strcmp(key, "init_lora_weights") == 0 || have_same(theirs, value) ||
            (is_nothing(theirs) && is_nothing(value)))
            continue;
        char *is = json_dumps(theirs, JSON_ENCODE_ANY);
        char *was = json_dumps(value, JSON_ENCODE_ANY);
        ZD_FAIL(ZD_ERR_CONFIG, "E0326",
                "lora.%s = %.100s, and the adapter of lora.path has %.100s",
                key, was ? was : "?", is ? is : "nothing");
        zd_fail_help("remove the key: the adapter's value holds");
        free(is);
        free(was);
        return ZD_ERR_CONFIG;
    }
    return ZD_OK;
}

static enum zd_status config_of_path(
        const struct lora_options *options, struct peft_config *config)
{
    ZD_TRY(peft_config_read(options->path, config));
    enum zd_status status = check_agreement(options, config);
    if (status != ZD_OK) {
        peft_config_fini(config);
        return status;
    }
    if (json_object_get(options->given, "lora_dropout")) {
        config->lora_dropout = options->lora_dropout;
        json_object_set_new(
                config->json, "lora_dropout", json_real(options->lora_dropout));
    }
    return ZD_OK;
}

static json_t *names_json(const char *const *names, int count)
{
    json_t *list = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(list, json_string(names[i]));
    return list;
}

enum zd_status lora_config(
        const struct lora_options *o, struct peft_config *config_out)
{
    if (o->path)
        return config_of_path(o, config_out);
    json_t *keys = zd_must(json_pack(
            "{s:s, s:s, s:i, s:f, s:f, s:b, s:b, s:s, s:o}", "peft_type",
            "LORA", "task_type", "CAUSAL_LM", "r", o->r, "lora_alpha",
            o->lora_alpha, "lora_dropout", o->lora_dropout, "use_rslora",
            o->use_rslora, "use_dora", o->use_dora, "init_lora_weights",
            o->init_lora_weights == LORA_INIT_GAUSSIAN ? "gaussian" : "default",
            "modules_to_save",
            names_json(o->modules_to_save, o->modules_to_save_count)));
    struct {
        const char *key;
        json_t *value;
    } others[] = {
            {"exclude_modules", o->exclude_modules},
            {"layers_to_transform", o->layers_to_transform},
            {"rank_pattern", o->rank_pattern},
            {"alpha_pattern", o->alpha_pattern},
    };
    json_object_set_new(
            keys, "target_modules",
            o->target_modules ? json_deep_copy(o->target_modules)
                              : json_string("all-linear"));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (others[i].value)
            json_object_set_new(
                    keys, others[i].key, json_deep_copy(others[i].value));
    enum zd_status status =
            peft_config_parse(keys, "[lora]", ZD_ERR_CONFIG, config_out);
    json_decref(keys);
    return status;
}

/* --- what a name may be --------------------------------------------------- */

struct reader {
    const struct model_config *config;
    const struct peft_config *adapter;
    const struct param_table *table;
};

/* The module, or one that ends in "." + name. */
static bool is_named(const char *module, const char *name)
{
    size_t bytes = strlen(module), end = strlen(name);
    return strcmp(module, name) == 0 ||
           (bytes > end && strcmp(module + bytes - end, name) == 0 &&
            module[bytes - end - 1] == '.');
}

/* Letters that must change to make one name of the other. */
static int distance(const char *a, const char *b)
{
    int row[64], width = (int)strlen(b);
    if (width > 62)
        return INT_MAX;
    for (int j = 0; j <= width; j++)
        row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int before = row[0];
        row[0] = i;
        for (int j = 1; j <= width; j++) {
            int change = before + (a[i - 1] != b[j - 1]);
            before = row[j];
            int least = row[j] < row[j - 1] ? row[j] : row[j - 1];
            row[j] = change < least + 1 ? change : least + 1;
        }
    }
    return row[width];
}

/* The last parts of linear modules' names. */
static int list_names(
        const struct reader *reader, char names[NAMES_MAX][MODULE_BYTES])
{
    int count = 0;
    for (int id = 0; id < reader->table->count && count < NAMES_MAX; id++) {
        char module[MODULE_BYTES];
        bool is_new = peft_is_linear(reader->config, reader->table, id);
        peft_module_name(reader->config, reader->table, id, module);
        const char *dot = strrchr(module, '.');
        const char *last = dot ? dot + 1 : module;
        for (int i = 0; i < count; i++)
            is_new &= strcmp(names[i], last) != 0;
        if (is_new)
            snprintf(names[count++], MODULE_BYTES, "%s", last);
    }
    return count;
}

static void tell_nearest(const struct reader *reader, const char *name)
{
    char names[NAMES_MAX][MODULE_BYTES], list[400] = "";
    const char *told[NAMES_MAX];
    int count = list_names(reader, names);
    for (int i = 0; i < count; i++)
        told[i] = names[i];
    for (int i = 0; i < NAMES_TOLD && i < count; i++) {
        int best = i;
        for (int j = i + 1; j < count; j++)
            if (distance(name, told[j]) < distance(name, told[best]))
                best = j;
        const char *nearest = told[best];
        told[best] = told[i];
        told[i] = nearest;
        size_t used = strlen(list);
        snprintf(
                list + used, sizeof list - used, "%s\"%s\"", i ? ", " : "",
                nearest);
    }
    zd_fail_help("the nearest: %s", list);
}

static enum zd_status refuse_embedding(const char *name)
{
    return ZD_FAIL(
            ZD_ERR_CONFIG, "E0326",
            "lora.target_modules: `%s` is an embedding, which gets no adapter; "
            "lora.modules_to_save trains it whole",
            name);
}

/* Each name is that of a linear module. */
static enum zd_status check_name(const struct reader *reader, const char *name)
{
    const struct param_table *table = reader->table;
    for (int id = 0; id < table->count; id++) {
        char module[MODULE_BYTES];
        peft_module_name(reader->config, table, id, module);
        if (!is_named(module, name))
            continue;
        if (table->params[id].is_embedding)
            return refuse_embedding(name);
        if (peft_is_linear(reader->config, table, id))
            return ZD_OK;
    }
    if (reader->config->tied && strcmp(name, "lm_head") == 0)
        return ZD_FAIL(
                ZD_ERR_CONFIG, "E0326",
                "lora.target_modules: `lm_head` is tied to the embedding, "
                "which gets no adapter");
    ZD_FAIL(ZD_ERR_CONFIG, "E0326",
            "lora.target_modules: `%s` is no linear module of the model", name);
    tell_nearest(reader, name);
    return ZD_ERR_CONFIG;
}

/* A tied head is the embedding. */
static bool trains(const struct reader *reader, int id)
{
    char module[MODULE_BYTES];
    peft_module_name(reader->config, reader->table, id, module);
    return peft_config_saves(reader->adapter, module);
}

/* Each of modules_to_save is one: the adapter with it alone saves something. */
static enum zd_status check_saved(
        const struct reader *reader, const json_t *name)
{
    struct peft_config only = {
            .json = zd_must(json_pack("{s:[O]}", "modules_to_save", name))};
    struct reader alone = {reader->config, &only, reader->table};
    char embedding[MODULE_BYTES];
    bool found = false;
    if (reader->config->tied && peft_config_saves(&only, "lm_head")) {
        json_decref(only.json);
        peft_module_name(reader->config, reader->table, 0, embedding);
        ZD_FAIL(ZD_ERR_CONFIG, "E0326",
                "lora.modules_to_save: `lm_head` is tied to the embedding of "
                "this model, and is no module of its own");
        const char *dot = strrchr(embedding, '.');
        zd_fail_help(
                "\"%s\" trains it, for both sides", dot ? dot + 1 : embedding);
        return ZD_ERR_CONFIG;
    }
    for (int id = 0; id < reader->table->count; id++)
        found |= trains(&alone, id);
    json_decref(only.json);
    if (found)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_CONFIG, "E0326",
            "lora.modules_to_save: `%s` is no module of the model",
            json_string_value(name));
    zd_fail_help("names look like \"lm_head\" or \"embed_tokens\"");
    return ZD_ERR_CONFIG;
}

static enum zd_status check_layer(
        const struct reader *reader, const json_t *layer)
{
    json_int_t number = json_integer_value(layer);
    if (number >= 0 && number < reader->config->layers)
        return ZD_OK;
    return ZD_FAIL(
            ZD_ERR_CONFIG, "E0326",
            "lora.layers_to_transform: %lld is no layer; they are 0 to %d",
            (long long)number, reader->config->layers - 1);
}

static enum zd_status check_names(const struct reader *reader)
{
    size_t i;
    json_t *item;
    json_t *keys = reader->adapter->json;
    json_t *layers = json_object_get(keys, "layers_to_transform");
    json_t *targets = json_object_get(keys, "target_modules");
    json_array_foreach(targets, i, item)
            ZD_TRY(check_name(reader, json_string_value(item)));
    json_array_foreach(json_object_get(keys, "modules_to_save"), i, item)
            ZD_TRY(check_saved(reader, item));
    if (json_is_integer(layers))
        ZD_TRY(check_layer(reader, layers));
    json_array_foreach(layers, i, item) ZD_TRY(check_layer(reader, item));
    if (json_is_string(targets) &&
        strcmp(json_string_value(targets), "all-linear") != 0 &&
        (json_is_integer(layers) || json_array_size(layers)))
        return ZD_FAIL(
                ZD_ERR_CONFIG, "E0326",
                "lora.layers_to_transform goes with a list of names; a pattern "
                "says itself which layers it means");
    return ZD_OK;
}

/* Does the pattern of the job match a module that has an adapter? */
static enum zd_status check_pattern(
        const struct reader *reader, const struct param_table *adapted,
        const char *key, const char *pattern)
{
    struct peft_config only = {
            .json = zd_must(
                    json_pack("{s:{s:i}}", "rank_pattern", pattern, 1))};
    bool found = false;
    for (int id = 0; id < adapted->count && !found; id++) {
        char module[MODULE_BYTES];
        if (!param_has_adapter(adapted, id))
            continue;
        peft_module_name(reader->config, adapted, id, module);
        found = peft_config_rank(&only, module) == 1;
    }
    json_decref(only.json);
    if (found)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_CONFIG, "E0326",
            "lora.%s: `%s` matches no module that gets an adapter", key,
            pattern);
    tell_nearest(reader, pattern);
    return ZD_ERR_CONFIG;
}

/* Of an adapter that PEFT wrote they may be for other models. */
static enum zd_status check_patterns(
        const struct reader *reader, const struct lora_options *options,
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

/* --- the adapter of a weight ---------------------------------------------- */

static enum zd_status find_adapter(
        const struct reader *reader, int id, struct adapter *out)
{
    char module[MODULE_BYTES];
    const struct param *param = &reader->table->params[id];
    int64_t rows = param->shape[0], columns = param->shape[1];
    *out = (struct adapter){.a = -1, .b = -1, .magnitude = -1};
    peft_module_name(reader->config, reader->table, id, module);
    const json_t *targets =
            json_object_get(reader->adapter->json, "target_modules");
    bool is_pattern = json_is_string(targets) &&
                      strcmp(json_string_value(targets), "all-linear") != 0;
    if (param->is_embedding && is_pattern &&
        peft_config_targets(reader->adapter, module))
        return refuse_embedding(module);
    if (!peft_is_linear(reader->config, reader->table, id) ||
        !peft_config_targets(reader->adapter, module))
        return ZD_OK;
    out->r = peft_config_rank(reader->adapter, module);
    out->scale = (float)peft_config_scale(reader->adapter, module);
    int64_t most = rows < columns ? rows : columns;
    if (out->r <= most)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_CONFIG, "E0326",
            "lora.r = %d is more than `%s` can have, a matrix of %lld x %lld",
            out->r, module, (long long)rows, (long long)columns);
    zd_fail_help("r = %lld at most", (long long)most);
    return ZD_ERR_CONFIG;
}

/* --- the table ------------------------------------------------------------ */

void lora_part_name(
        const struct param *weight, enum param_part part,
        char out[PARAM_NAME_MAX])
{
    static const char *const ends[] = {
            [PARAM_LORA_A] = "lora_A.weight",
            [PARAM_LORA_B] = "lora_B.weight",
            [PARAM_LORA_MAGNITUDE] = "lora_magnitude"};
    int stem = (int)(strlen(weight->name) - strlen("weight"));
    snprintf(out, PARAM_NAME_MAX, "%.*s%s", stem, weight->name, ends[part]);
}

static struct param factor_of(
        const struct param *weight, int id, enum param_part part, int64_t rows,
        int64_t columns)
{
    struct param p = {
            .unit = weight->unit,
            .dims = 2,
            .shape = {rows, columns},
            .count = (size_t)rows * (size_t)columns,
            .trainable = true,
            .decays = true,
            .part = part,
            .adapts = id,
            .init = PARAM_INIT_CLEAR,
            .learning_rate = 1,
            .blocks = {
                    .rows = rows,
                    .columns = columns,
                    .section_count = 1,
                    .sections = {{0, 1, 0}},
                    .count = rows}};
    lora_part_name(weight, part, p.name);
    if (part != PARAM_LORA_MAGNITUDE)
        return p;
    p.dims = 1;
    p.decays = false;
    return p;
}

/* A is uniform in +-1/sqrt(in), or normal with 1/r; B and the change of
 * magnitudes are nothing. */
static void add_factors(
        const struct reader *reader, const struct lora_options *options, int id,
        struct param_table *out)
{
    struct adapter *adapter = &out->adapters[id];
    const struct param *weight = &out->params[id];
    bool conv1d = param_is_conv1d(reader->config, weight);
    int64_t in = weight->shape[conv1d ? 0 : 1];
    struct param a = factor_of(weight, id, PARAM_LORA_A, adapter->r, in);
    struct param b = factor_of(
            weight, id, PARAM_LORA_B, weight->shape[conv1d ? 1 : 0],
            adapter->r);
    bool gaussian = options && options->init_lora_weights == LORA_INIT_GAUSSIAN;
    a.init = gaussian ? PARAM_INIT_NORMAL : PARAM_INIT_UNIFORM;
    a.init_std = (float)(gaussian ? 1.0 / adapter->r : 1.0 / sqrt((double)in));
    b.learning_rate = options ? (float)options->loraplus_lr_ratio : 1;
    adapter->a = out->count;
    out->params[out->count++] = a;
    adapter->b = out->count;
    out->params[out->count++] = b;
    if (!reader->adapter->use_dora)
        return;
    adapter->magnitude = out->count;
    out->params[out->count++] =
            factor_of(weight, id, PARAM_LORA_MAGNITUDE, b.shape[0], 1);
}

static enum zd_status alloc(
        const struct param_table *table, struct param_table *out)
{
    size_t most = 4 * (size_t)table->count;
    out->params = calloc(most, sizeof *out->params);
    out->adapters = calloc(most, sizeof *out->adapters);
    out->unit_first =
            calloc((size_t)table->unit_count + 1, sizeof *out->unit_first);
    out->unit_count = table->unit_count;
    if (out->params && out->adapters && out->unit_first)
        return ZD_OK;
    return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for a tensor table");
}

static enum zd_status extend(
        const struct reader *reader, const struct lora_options *options,
        struct param_table *out)
{
    const struct param_table *table = reader->table;
    for (int unit = 0; unit < table->unit_count; unit++) {
        int begin = out->count;
        out->unit_first[unit] = begin;
        for (int id = table->unit_first[unit]; id < table->unit_first[unit + 1];
             id++, out->count++) {
            out->params[out->count] = table->params[id];
            out->params[out->count].trainable = trains(reader, id);
            ZD_TRY(find_adapter(reader, id, &out->adapters[out->count]));
        }
        int end = out->count;
        for (int id = begin; id < end; id++)
            if (out->adapters[id].r)
                add_factors(reader, options, id, out);
    }
    out->unit_first[out->unit_count] = out->count;
    int adapters = out->count - table->count;
    for (int id = 0; id < out->count; id++) {
        out->total += out->params[id].count;
        out->trainable += out->params[id].trainable ? out->params[id].count : 0;
    }
    if (adapters)
        return ZD_OK;
    return ZD_FAIL(
            ZD_ERR_CONFIG, "E0326",
            "lora.target_modules: no module of the model gets an adapter");
}

enum zd_status lora_extend(
        const struct model_config *config, const struct peft_config *adapter,
        const struct lora_options *options, struct param_table *table)
{
    struct reader reader = {config, adapter, table};
    struct param_table out = {0};
    ZD_TRY(check_names(&reader));
    enum zd_status status = alloc(table, &out);
    if (status == ZD_OK)
        status = extend(&reader, options, &out);
    if (status == ZD_OK)
        status = check_patterns(&reader, options, &out);
    if (status != ZD_OK) {
        param_table_fini(&out);
        return status;
    }
    param_table_fini(table);
    *table = out;
    return ZD_OK;
}
