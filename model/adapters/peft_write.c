#include "model/adapters/peft.h"
#include "model/files/export_dir.h"

#include "base/file/fs.h"
#include "base/must.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIECE = 1 << 16, /* elements held at a time */
    MODULE_BYTES = PARAM_NAME_MAX + 16,
    NAME_BYTES = MODULE_BYTES + 48
};

struct writing {
    const char *dir; /* being written */
    const struct model_config *config;
    const struct param_table *table;
    const struct peft_config *adapter;
    const struct peft_source *source;
    enum dtype dtype;
    int count, capacity; /* tensors of the file */
    struct st_entry *entries;
    char (*names)[NAME_BYTES];
    struct tensor_of {
        int id;
        enum peft_kind kind;
    } * of;
    float *values;
    void *packed;
};

static bool is_target(const struct writing *w, int id)
{
    char module[MODULE_BYTES];
    peft_module_name(w->config, w->table, id, module);
    return param_is_linear(&w->table->params[id]) &&
           peft_config_targets(w->adapter, module);
}

/* --- the tensors ---------------------------------------------------------- */

static void add_tensor(
        struct writing *w, int id, enum peft_kind kind, int dims, int64_t rows,
        int64_t columns)
{
    static const char *const ends[] = {
            ".lora_A.weight", ".lora_B.weight", ".lora_magnitude_vector"};
    char module[MODULE_BYTES];
    const char *end = strrchr(w->table->params[id].name, '.');
    int i = w->count++;
    peft_module_name(w->config, w->table, id, module);
    snprintf(
            w->names[i], NAME_BYTES, "base_model.model.%s%s", module,
            kind == PEFT_SAVED ? end : ends[kind]);
    w->of[i] = (struct tensor_of){id, kind};
    w->entries[i] = (struct st_entry){
            .name = w->names[i],
            .dtype = dtype_safetensors_name(w->dtype),
            .dims = dims,
            .shape = {rows, columns}};
}

static void list_tensors(struct writing *w)
{
    char module[MODULE_BYTES];
    for (int id = 0; id < w->table->count; id++) {
        const struct param *p = &w->table->params[id];
        peft_module_name(w->config, w->table, id, module);
        if (is_target(w, id)) {
            int64_t in = param_in(p), out = param_out(p);
            int r = peft_config_rank(w->adapter, module);
            add_tensor(w, id, PEFT_A, 2, r, in);
            add_tensor(w, id, PEFT_B, 2, out, r);
            if (w->adapter->use_dora)
                add_tensor(w, id, PEFT_MAGNITUDE, 1, out, 1);
        } else if (peft_config_saves(w->adapter, module)) {
            add_tensor(w, id, PEFT_SAVED, p->dims, p->shape[0], p->shape[1]);
        }
    }
}

static enum zd_status write_tensor(
        struct writing *w, int i, struct st_writer *writer)
{
    const struct st_entry *entry = &w->entries[i];
    size_t count = (size_t)entry->shape[0] *
                   (entry->dims == 2 ? (size_t)entry->shape[1] : 1);
    for (size_t begin = 0; begin < count; begin += PIECE) {
        size_t n = count - begin < PIECE ? count - begin : PIECE;
        ZD_TRY(w->source->read(
                w->source->ctx, w->of[i].id, w->of[i].kind, begin, n,
                w->values));
        dtype_convert(w->packed, w->dtype, w->values, DTYPE_FP32, n);
        ZD_TRY(st_writer_write(writer, w->packed, n * dtype_bytes(w->dtype)));
    }
    return ZD_OK;
}

static enum zd_status write_weights(struct writing *w)
{
    char path[EXPORT_PATH_BYTES];
    struct st_writer *writer;
    json_t *mark =
            zd_must(json_pack("{s:s}", EXPORT_WRITER_KEY, EXPORT_WRITER));
    list_tensors(w);
    fs_join(path, sizeof path, w->dir, "adapter_model.safetensors");
    enum zd_status status =
            st_writer_create(path, w->entries, w->count, mark, &writer);
    json_decref(mark);
    ZD_TRY(status);
    for (int i = 0; i < w->count; i++) {
        status = write_tensor(w, st_writer_order(writer, i), writer);
        if (status != ZD_OK) {
            st_writer_abandon(writer);
            return status;
        }
    }
    return st_writer_finish(writer, NULL, NULL);
}

/* --- adapter_config.json -------------------------------------------------- */

/* Are all linear modules whose name ends in `last` adapted? Then that end alone
 * names them. */
static bool is_whole_kind(const struct writing *w, const char *last)
{
    char module[MODULE_BYTES];
    for (int id = 0; id < w->table->count; id++) {
        peft_module_name(w->config, w->table, id, module);
        const char *dot = strrchr(module, '.');
        if (param_is_linear(&w->table->params[id]) &&
            strcmp(dot ? dot + 1 : module, last) == 0 && !is_target(w, id))
            return false;
    }
    return true;
}

static bool has_name(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(json_string_value(json_array_get(list, i)), name) == 0)
            return true;
    return false;
}

static json_t *target_names(const struct writing *w)
{
    char module[MODULE_BYTES];
    json_t *list = zd_must(json_array());
    for (int id = 0; id < w->table->count; id++) {
        if (!is_target(w, id))
            continue;
        peft_module_name(w->config, w->table, id, module);
        const char *dot = strrchr(module, '.');
        const char *last = dot ? dot + 1 : module;
        const char *name = is_whole_kind(w, last) ? last : module;
        if (!has_name(list, name))
            json_array_append_new(list, zd_must(json_string(name)));
    }
    return list;
}

static json_t *number(double value)
{
    double whole = nearbyint(value);
    return zd_must(
            whole == value && fabs(value) < 1e15
                    ? json_integer((json_int_t)whole)
                    : json_real(value));
}

/* Patterns and alpha with rsLoRA folded in: alpha sqrt(r) over r is alpha over
 * sqrt(r). One entry for each pattern of ranks; where alphas have patterns of
 * their own, one for each module. */
static json_t *folded_alphas(const struct writing *w)
{
    const char *pattern;
    json_t *value;
    char module[MODULE_BYTES];
    json_t *ranks = json_object_get(w->adapter->json, "rank_pattern");
    json_t *alphas = json_object_get(w->adapter->json, "alpha_pattern");
    if (!w->adapter->use_rslora)
        return json_is_object(alphas) ? json_incref(alphas)
                                      : zd_must(json_object());
    json_t *folded = zd_must(json_object());
    if (json_object_size(alphas) == 0) {
        json_object_foreach(ranks, pattern, value) json_object_set_new(
                folded, pattern,
                number(w->adapter->lora_alpha *
                       sqrt((double)json_integer_value(value))));
        return folded;
    }
    for (int id = 0; id < w->table->count; id++) {
        if (!is_target(w, id))
            continue;
        peft_module_name(w->config, w->table, id, module);
        json_object_set_new(
                folded, module,
                number(peft_config_alpha(w->adapter, module) *
                       sqrt((double)peft_config_rank(w->adapter, module))));
    }
    return folded;
}

static json_t *copy_or(const json_t *json, const char *key, json_t *absent)
{
    json_t *value = json_object_get(json, key);
    if (!value || json_is_null(value))
        return zd_must(absent);
    json_decref(absent);
    return json_incref(value);
}

static enum zd_status write_config(
        const struct writing *w, const char *base_model)
{
    char path[EXPORT_PATH_BYTES];
    const struct peft_config *a = w->adapter;
    double alpha = a->lora_alpha * (a->use_rslora ? sqrt(a->r) : 1);
    json_t *json = zd_must(json_object());
#define PUT(key, value) json_object_set_new(json, key, value)
    PUT("peft_type", zd_must(json_string("LORA")));
    PUT("task_type", zd_must(json_string("CAUSAL_LM")));
    PUT("base_model_name_or_path",
        base_model ? zd_must(json_string(base_model)) : json_null());
    PUT("inference_mode", json_true());
    PUT("r", zd_must(json_integer(a->r)));
    PUT("lora_alpha", number(alpha));
    PUT("lora_dropout", zd_must(json_real(a->lora_dropout)));
    PUT("target_modules", target_names(w));
    PUT("modules_to_save", copy_or(a->json, "modules_to_save", json_null()));
    PUT("rank_pattern", copy_or(a->json, "rank_pattern", json_object()));
    PUT("alpha_pattern", folded_alphas(w));
    PUT("use_rslora", json_false());
    PUT("use_dora", json_boolean(a->use_dora));
    PUT("bias", zd_must(json_string("none")));
    PUT("fan_in_fan_out", json_boolean(w->config->family->conv1d));
    PUT("init_lora_weights", json_true());
#undef PUT
    fs_join(path, sizeof path, w->dir, "adapter_config.json");
    enum zd_status status = json_write_file(path, json);
    json_decref(json);
    return status;
}

/* peft puts a saved embedding before the base's, and ties no head to it. */
static bool saves_tied(const struct writing *w)
{
    char module[MODULE_BYTES];
    peft_module_name(w->config, w->table, 0, module);
    return w->config->tied && peft_config_saves(w->adapter, module);
}

static void note_readers(const struct writing *w, char note[PEFT_NOTE_BYTES])
{
    const struct peft_config *a = w->adapter;
    bool saves = json_array_size(json_object_get(a->json, "modules_to_save"));
    bool varies = json_object_size(json_object_get(a->json, "rank_pattern")) ||
                  json_object_size(json_object_get(a->json, "alpha_pattern"));
    note[0] = '\0';
    if (a->use_dora || saves || varies)
        snprintf(
                note, PEFT_NOTE_BYTES,
                "vLLM and llama.cpp cannot read this adapter:%s%s%s",
                a->use_dora ? " it is DoRA;" : "",
                saves ? " it has modules_to_save;" : "",
                varies ? " its modules have ranks or alphas of their own;"
                       : "");
    size_t bytes = strlen(note);
    if (bytes)
        note[bytes - 1] = '\0';
    if (saves_tied(w) && bytes)
        snprintf(
                note + bytes - 1, PEFT_NOTE_BYTES - bytes + 1,
                "; the head is tied to the embedding that is saved, and peft "
                "leaves the head as the base has it: `zerod merge` makes a "
                "model with both");
}

/* A tensor may be any of three, a module that is kept whole has one. */
static enum zd_status write_all(struct writing *w, const char *base_model)
{
    w->capacity = 3 * w->table->count;
    w->entries = calloc((size_t)w->capacity, sizeof *w->entries);
    w->names = calloc((size_t)w->capacity, sizeof *w->names);
    w->of = calloc((size_t)w->capacity, sizeof *w->of);
    w->values = malloc(PIECE * sizeof *w->values);
    w->packed = malloc(PIECE * sizeof(float));
    if (!w->entries || !w->names || !w->of || !w->values || !w->packed)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for an adapter");
    ZD_TRY(export_dir_begin(w->dir));
    ZD_TRY(write_weights(w));
    ZD_TRY(write_config(w, base_model));
    return fs_sync_dir(w->dir);
}

enum zd_status peft_write(
        const char *dir, const struct model_config *config,
        const struct param_table *table, const struct peft_config *adapter,
        const char *base_model, enum dtype dtype,
        const struct peft_source *source, char note[PEFT_NOTE_BYTES])
{
    char to[EXPORT_PATH_BYTES], temporary[EXPORT_PATH_BYTES];
    ZD_TRY(export_dir_names(dir, to, temporary));
    struct writing w = {
            .dir = temporary,
            .config = config,
            .table = table,
            .adapter = adapter,
            .source = source,
            .dtype = dtype,
    };
    enum zd_status status = write_all(&w, base_model);
    note_readers(&w, note);
    free(w.entries);
    free(w.names);
    free(w.of);
    free(w.values);
    free(w.packed);
    return status == ZD_OK ? export_dir_replace(temporary, to) : status;
}
