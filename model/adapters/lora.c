#include "model/adapters/lora.h"

#include "base/must.h"
#include "base/text_buffer.h"
#include "base/words.h"
#include "model/config_keys.h"
#include "model/slice.h"

#include <math.h>
#include <string.h>

#define REFUSE(...) ZD_FAIL(ZD_ERR_CONFIG, "E0326", __VA_ARGS__)

struct lora_options lora_options_default(void)
{
    return (struct lora_options){
            .r = 16,
            .lora_alpha = 32,
            .loraplus_lr_ratio = 1,
            .double_quant = true};
}

/* --- the configuration ---------------------------------------------------- */

static enum zd_status refuse_key(
        const struct lora_options *options, const struct peft_config *config,
        const char *key)
{
    char is[CONFIG_TEXT], was[CONFIG_TEXT];
    REFUSE("lora.%s = %s, but the adapter of lora.path has %s", key,
           config_text(json_object_get(options->given, key), was),
           config_text(json_object_get(config->json, key), is));
    return zd_fail_help("remove the key: the adapter's value applies");
}

enum zd_status lora_config(
        const struct lora_options *o, struct peft_config *config_out)
{
    if (o->path) {
        ZD_TRY(peft_config_read(o->path, config_out));
        if (json_object_get(o->given, "lora_dropout")) {
            config_out->lora_dropout = o->lora_dropout;
            json_object_set_new(
                    config_out->json, "lora_dropout",
                    json_real(o->lora_dropout));
        }
        return ZD_OK;
    }
    bool gaussian = o->init_lora_weights == LORA_INIT_GAUSSIAN;
    json_t *saved = json_array();
    for (int i = 0; i < o->modules_to_save_count; i++)
        json_array_append_new(saved, json_string(o->modules_to_save[i]));
    json_t *targets = o->target_modules ? json_incref(o->target_modules)
                                        : json_string("all-linear");
    json_auto_t *keys = zd_must(json_pack(
            "{s:s, s:s, s:i, s:f, s:f, s:b, s:b, s:s, s:o, s:o, s:O*, s:O*, "
            "s:O*, s:O*}",
            "peft_type", "LORA", "task_type", "CAUSAL_LM", "r", o->r,
            "lora_alpha", o->lora_alpha, "lora_dropout", o->lora_dropout,
            "use_rslora", o->use_rslora, "use_dora", o->use_dora,
            "init_lora_weights", gaussian ? "gaussian" : "default",
            "modules_to_save", saved, "target_modules", targets,
            "exclude_modules", o->exclude_modules, "layers_to_transform",
            o->layers_to_transform, "rank_pattern", o->rank_pattern,
            "alpha_pattern", o->alpha_pattern));
    return peft_config_parse(keys, "[lora]", ZD_ERR_CONFIG, config_out);
}

/* --- names: modules that the model has -------------------------------------
 */

/* The last part of a module's name. */
static const char *last_part(const char *module)
{
    const char *dot = strrchr(module, '.');
    return dot ? dot + 1 : module;
}

/* Lists the last parts of linear modules' names, as help. */
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
        ZD_PRINT(quoted, "\"%s\"", last_part(module.name));
        if (param_is_linear(&reader->table->params[id]) &&
            !strstr(list, quoted))
            text_buffer_add(&text, "%s%s", text.used ? ", " : "", quoted);
    }
    return zd_fail_help("linear modules: %s", list);
}

static enum zd_status refuse_embedding(const char *name)
{
    return REFUSE(
            "lora.target_modules: `%s` is an embedding, which gets no adapter; "
            "lora.modules_to_save trains it whole",
            name);
}

/* Checks that the name is a linear module's. */
static enum zd_status check_name(
        const struct peft_view *reader, const char *name)
{
    const struct param_table *table = reader->table;
    for (int id = 0; id < table->count; id++) {
        if (!peft_module_is(peft_view_module(reader, id).name, name))
            continue;
        if (table->params[id].is_embedding)
            return refuse_embedding(name);
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

/* Checks that a name in modules_to_save matches a module. */
static enum zd_status check_saved(
        const struct peft_view *reader, const json_t *name)
{
    ZD_SCOPED(peft_config_fini)
    struct peft_config only = {
            .json = zd_must(json_pack("{s:[O]}", "modules_to_save", name))};
    struct peft_view alone = {reader->config, &only, reader->table};
    bool found = false;
    if (reader->config->tied && peft_config_saves(&only, "lm_head")) {
        REFUSE("lora.modules_to_save: `lm_head` is tied to the embedding of "
               "this model, and is not a module itself");
        return zd_fail_help(
                "\"%s\" trains it, for both sides",
                last_part(peft_view_module(reader, 0).name));
    }
    for (int id = 0; id < reader->table->count; id++)
        found |= peft_saves(&alone, id);
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

/* A job may only exclude modules that exist; an adapter file may also exclude
 * modules of a larger model. */
static enum zd_status check_excluded(const struct peft_view *reader)
{
    JSON_EACH(item, json_object_get(reader->adapter->json, "exclude_modules")) {
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

static enum zd_status check_names(const struct peft_view *reader, bool of_job)
{
    json_t *keys = reader->adapter->json;
    json_t *layers = json_object_get(keys, "layers_to_transform");
    json_t *targets = json_object_get(keys, "target_modules");
    JSON_EACH(item, targets)
        ZD_TRY(check_name(reader, json_string_value(item)));
    if (of_job)
        ZD_TRY(check_excluded(reader));
    JSON_EACH(item, json_object_get(keys, "modules_to_save"))
        ZD_TRY(check_saved(reader, item));
    if (json_is_integer(layers))
        ZD_TRY(check_layer(reader, layers));
    JSON_EACH(item, layers)
        ZD_TRY(check_layer(reader, item));
    if (json_is_string(targets) &&
        strcmp(json_string_value(targets), "all-linear") != 0 &&
        (json_is_integer(layers) || json_array_size(layers)))
        return REFUSE(
                "lora.layers_to_transform needs a list of names; a pattern "
                "itself names the layers");
    return ZD_OK;
}

static bool is_same_value(const json_t *a, const json_t *b)
{
    return json_equal(a, b) || (json_is_number(a) && json_is_number(b) &&
                                json_number_value(a) == json_number_value(b));
}

/* Checks that keys of the job beside lora.path agree with the adapter, in any
 * equivalent form. */
static enum zd_status check_agreement(
        const struct peft_view *reader, const struct lora_options *options)
{
    const char *first = NULL;
    const struct peft_config *theirs = reader->adapter;
    ZD_SCOPED(peft_config_fini) struct peft_config asked = {0};
    if (!options || !options->path)
        return ZD_OK;
    json_auto_t *keys = zd_must(json_deep_copy(theirs->json));
    JSON_MEMBERS(key, value, options->given) {
        if (words_have("lora_dropout init_lora_weights", " ", key) ||
            is_same_value(json_object_get(keys, key), value))
            continue;
        first = first ? first : key;
        json_object_set(keys, key, value);
    }
    if (!first)
        return ZD_OK;
    ZD_TRY(peft_config_parse(keys, "[lora]", ZD_ERR_CONFIG, &asked));
    const struct peft_view other = {reader->config, &asked, reader->table};
    bool is_same = asked.use_dora == theirs->use_dora;
    for (int id = 0; id < reader->table->count; id++) {
        struct peft_factors a = peft_factors(reader, id);
        struct peft_factors b = peft_factors(&other, id);
        is_same &= a.r == b.r && (float)a.scale == (float)b.scale &&
                   peft_saves(reader, id) == peft_saves(&other, id);
    }
    return is_same ? check_names(&other, true)
                   : refuse_key(options, theirs, first);
}

/* Does the pattern of the job match a module that has an adapter? */
static enum zd_status check_pattern(
        const struct peft_view *reader, const struct param_table *adapted,
        const char *key, const char *pattern)
{
    ZD_SCOPED(peft_config_fini)
    struct peft_config only = {
            .json = zd_must(
                    json_pack("{s:{s:i}}", "rank_pattern", pattern, 1))};
    bool found = false;
    for (int id = 0; id < adapted->count && !found; id++)
        found = param_has_adapter(adapted, id) &&
                peft_config_rank(
                        &only, peft_module(reader->config, adapted, id).name) ==
                        1;
    if (found)
        return ZD_OK;
    REFUSE("lora.%s: `%s` matches no module that gets an adapter", key,
           pattern);
    return tell_names(reader, pattern);
}

static enum zd_status check_patterns(
        const struct peft_view *reader, const struct lora_options *options,
        const struct param_table *adapted)
{
    static const char *const keys[] = {"rank_pattern", "alpha_pattern"};
    for (int i = 0; options && i < 2; i++)
        JSON_MEMBERS(pattern, value, json_object_get(options->given, keys[i]))
            ZD_TRY(check_pattern(reader, adapted, keys[i], pattern));
    return ZD_OK;
}

/* --- the adapter of a weight ---------------------------------------------- */

static const int64_t *whole_shape(const struct param *param)
{
    return param->slice.range_count ? param->slice.shape : param->shape;
}

static enum zd_status find_adapter(
        const struct peft_view *reader, int id, struct adapter *out)
{
    const struct param *param = &reader->table->params[id];
    const int64_t *shape = whole_shape(param);
    int64_t rows = shape[0], columns = shape[1];
    int64_t most = rows < columns ? rows : columns;
    struct module module = peft_view_module(reader, id);
    struct peft_factors factors = peft_factors(reader, id);
    const char *pattern =
            json_string_at(reader->adapter->json, "target_modules");
    *out = (struct adapter){
            .a = -1,
            .b = -1,
            .magnitude = -1,
            .r = factors.r,
            .scale = (float)factors.scale};
    if (param->is_embedding && pattern && strcmp(pattern, "all-linear") != 0 &&
        peft_config_targets(reader->adapter, module.name))
        return refuse_embedding(module.name);
    if (out->r <= most)
        return ZD_OK;
    bool is_own = out->r != reader->adapter->r;
    REFUSE("lora.%s = %d is more than `%s` can have, a matrix of %lld x %lld",
           is_own ? "rank_pattern: r" : "r", out->r, module.name,
           (long long)rows, (long long)columns);
    return zd_fail_help("r = %lld at most", (long long)most);
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

/* Cuts rows or columns of a factor to the `here` of the weight's slice. */
static void cut_factor(
        const struct param *weight, bool by_column, int64_t here,
        struct param *factor)
{
    struct param_slice *slice = &factor->slice;
    *slice = weight->slice;
    slice->by_column = by_column;
    slice->shape[0] = factor->shape[0];
    slice->shape[1] = factor->shape[1];
    factor->shape[by_column] = here;
    factor->count = (size_t)factor->shape[0] * (size_t)factor->shape[1];
    param_cut_blocks(factor);
}

/* A is uniform in +-1/sqrt(in), or normal with 1/r; B and the change of
 * magnitudes are 0. */
static void add_factors(
        const struct peft_view *reader, const struct lora_options *options,
        int id, struct param_table *out)
{
    struct adapter *adapter = &out->adapters[id];
    const struct param *weight = &out->params[id];
    int64_t in = whole_shape(weight)[weight->conv1d ? 0 : 1];
    int64_t rows = whole_shape(weight)[weight->conv1d ? 1 : 0];
    struct param a = factor_of(weight, id, PARAM_LORA_A, adapter->r, in);
    struct param b = factor_of(weight, id, PARAM_LORA_B, rows, adapter->r);
    bool is_cut = weight->slice.range_count;
    /* with tensor parallelism B has the slice's outputs, or A its inputs; the
     * other factor is whole, and each place computes a part of its gradient */
    if (is_cut && weight->slice.by_column == weight->conv1d)
        cut_factor(weight, false, param_out(weight), &b);
    else if (is_cut)
        cut_factor(weight, true, param_in(weight), &a);
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
            factor_of(weight, id, PARAM_LORA_MAGNITUDE, rows, 1);
}

static enum zd_status refuse_none(const struct peft_view *reader)
{
    const json_t *targets =
            json_object_get(reader->adapter->json, "target_modules");
    const char *pattern = json_string_value(targets);
    REFUSE("lora.target_modules: no module of the model gets an adapter");
    if (pattern && strcmp(pattern, "all-linear") != 0)
        zd_fail_help(
                "a string is a pattern that has to match the whole name of a "
                "module; [\"%.60s\"] is a list of names",
                pattern);
    return ZD_ERR_CONFIG;
}

static enum zd_status extend(
        const struct peft_view *reader, const struct lora_options *options,
        struct param_table *out)
{
    const struct param_table *table = reader->table;
    for (int unit = 0; unit < table->unit_count; unit++) {
        int begin = out->count;
        out->unit_first[unit] = begin;
        for (int id = table->unit_first[unit]; id < table->unit_first[unit + 1];
             id++, out->count++) {
            out->params[out->count] = table->params[id];
            out->params[out->count].trainable = peft_saves(reader, id);
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
    return adapters ? ZD_OK : refuse_none(reader);
}

/* If the error comes from the adapter's file, reports it as an error of that
 * file. */
static enum zd_status blame_file(const char *path)
{
    static const char section[] = "lora.";
    struct zd_error error = *zd_error_get();
    size_t skip = strlen(section);
    error.status = ZD_ERR_DATA;
    if (strncmp(error.what, section, skip) == 0)
        memmove(error.what, error.what + skip, strlen(error.what) - skip + 1);
    if (path)
        ZD_PRINT(error.where, "%s/adapter_config.json", path);
    zd_error_set(&error);
    return error.status;
}

enum zd_status lora_extend(
        const struct model_config *config, const struct peft_config *adapter,
        const struct lora_options *options, struct param_table *table)
{
    struct peft_view reader = {config, adapter, table};
    ZD_TRY(check_agreement(&reader, options));
    size_t most = 4 * (size_t)table->count, units = (size_t)table->unit_count;
    ZD_SCOPED(param_table_fini)
    struct param_table out = {
            .params = zd_array(most, sizeof(struct param)),
            .adapters = zd_array(most, sizeof(struct adapter)),
            .unit_first = zd_array(units + 1, sizeof(int)),
            .unit_count = table->unit_count};
    enum zd_status status = check_names(&reader, options && !options->path);
    ZD_THEN(status, extend(&reader, options, &out));
    ZD_THEN(status, check_patterns(&reader, options, &out));
    if (status != ZD_OK) {
        bool is_of_file = !options || options->path;
        return status == ZD_ERR_CONFIG && is_of_file
                       ? blame_file(options ? options->path : NULL)
                       : status;
    }
    param_table_fini(table);
    *table = ZD_TAKE(out);
    return ZD_OK;
}
