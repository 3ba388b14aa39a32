#include "model/adapters/peft.h"
#include "model/files/export_dir.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "base/text_buffer.h"
#include "model/files/tensor_files.h"

#include <math.h>
#include <string.h>

struct writing {
    const char *dir; /* being written */
    struct peft_view view;
    const struct peft_source *source;
};

/* --- the tensors ---------------------------------------------------------- */

static void add_tensor(
        const struct writing *w, struct tensor_files *files, int id,
        enum peft_kind kind, enum dtype dtype)
{
    int64_t shape[2];
    const struct param *p = &w->view.table->params[id];
    struct module module = peft_view_module(&w->view, id);
    int dims = peft_shape(p, kind, peft_factors(&w->view, id).r, shape);
    struct file_tensor *tensor = tensor_files_add(
            files, id, kind, dtype_safetensors_name(dtype), dims, shape[0],
            shape[1]);
    ZD_PRINT(
            tensor->name, "base_model.model.%s%s", module.name,
            kind == PEFT_SAVED ? strrchr(p->name, '.') : peft_ends[kind]);
}

static enum zd_status read_tensor(
        void *ctx, const struct file_tensor *tensor, size_t begin, size_t count,
        void *out)
{
    const struct writing *w = ctx;
    return w->source->read(
            w->source->ctx, tensor->id, (enum peft_kind)tensor->kind, begin,
            count, out);
}

/* The job's rope_scaling, if it set one. */
static json_t *metadata_of(const struct model_config *config)
{
    ZD_FREED char *table =
            config->rope_scaling
                    ? json_dumps(config->rope_scaling, JSON_COMPACT)
                    : NULL;
    return zd_must(json_pack("{s:s*}", PEFT_ROPE_KEY, table));
}

static enum zd_status write_weights(struct writing *w, enum dtype dtype)
{
    json_auto_t *metadata = metadata_of(w->view.config);
    ZD_SCOPED(tensor_files_fini)
    struct tensor_files files = {
            .dir = w->dir,
            .metadata = metadata,
            .stem = "adapter_model",
            .files = 1,
            .read = read_tensor,
            .ctx = w};
    int last = w->view.adapter->use_dora ? PEFT_MAGNITUDE : PEFT_B;
    for (int id = 0; id < w->view.table->count; id++) {
        bool adapts = peft_adapts(&w->view, id);
        for (int kind = PEFT_A; adapts && kind <= last; kind++)
            add_tensor(w, &files, id, (enum peft_kind)kind, dtype);
        if (!adapts && peft_saves(&w->view, id))
            add_tensor(w, &files, id, PEFT_SAVED, dtype);
    }
    ZD_TRY(tensor_files_create(&files));
    return tensor_files_write(&files, 0, 1);
}

/* --- adapter_config.json -------------------------------------------------- */

/* Are all linear modules whose name ends in `last` adapted? Then target_modules
 * lists only that suffix. */
static bool is_whole_kind(const struct writing *w, const char *last)
{
    for (int id = 0; id < w->view.table->count; id++)
        if (param_is_linear(&w->view.table->params[id]) &&
            peft_module_is(peft_view_module(&w->view, id).name, last) &&
            !peft_adapts(&w->view, id))
            return false;
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
    json_t *list = zd_must(json_array());
    for (int id = 0; id < w->view.table->count; id++) {
        if (!peft_adapts(&w->view, id))
            continue;
        struct module module = peft_view_module(&w->view, id);
        const char *dot = strrchr(module.name, '.');
        const char *last = dot ? dot + 1 : module.name;
        const char *name = is_whole_kind(w, last) ? last : module.name;
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

/* alpha_pattern with rsLoRA folded in: alpha sqrt(r) over r is alpha over
 * sqrt(r). With patterns of ranks or alphas there is one entry per module. */
static json_t *folded_alphas(const struct writing *w)
{
    const struct peft_config *a = w->view.adapter;
    json_t *alphas = json_object_get(a->json, "alpha_pattern");
    bool varies = json_object_size(alphas) ||
                  json_object_size(json_object_get(a->json, "rank_pattern"));
    json_t *folded = zd_must(json_object());
    if (!a->use_rslora && json_is_object(alphas))
        json_object_update(folded, alphas);
    for (int id = 0; a->use_rslora && varies && id < w->view.table->count;
         id++) {
        struct module module = peft_view_module(&w->view, id);
        int r = peft_factors(&w->view, id).r;
        if (r)
            json_object_set_new(
                    folded, module.name,
                    number(peft_config_alpha(a, module.name) *
                           sqrt((double)r)));
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
    const struct peft_config *a = w->view.adapter;
    double alpha = a->lora_alpha * (a->use_rslora ? sqrt(a->r) : 1);
    json_auto_t *json = zd_must(json_pack(
            "{s:s s:s s:s? s:b s:i s:o s:f s:o s:o s:o s:o s:b s:b s:s s:b "
            "s:b}",
            "peft_type", "LORA", "task_type", "CAUSAL_LM",
            "base_model_name_or_path", base_model, "inference_mode", true, "r",
            a->r, "lora_alpha", number(alpha), "lora_dropout", a->lora_dropout,
            "target_modules", target_names(w), "modules_to_save",
            copy_or(a->json, "modules_to_save", json_null()), "rank_pattern",
            copy_or(a->json, "rank_pattern", json_object()), "alpha_pattern",
            folded_alphas(w), "use_rslora", false, "use_dora", a->use_dora,
            "bias", "none", "fan_in_fan_out", w->view.config->family->conv1d,
            "init_lora_weights", true));
    return json_write_file(fs_in(w->dir, "adapter_config.json").text, json);
}

static void note_readers(const struct writing *w, char note[PEFT_NOTE_BYTES])
{
    const struct peft_config *a = w->view.adapter;
    bool saves = json_array_size(json_object_get(a->json, "modules_to_save"));
    bool varies = json_object_size(json_object_get(a->json, "rank_pattern")) ||
                  json_object_size(json_object_get(a->json, "alpha_pattern"));
    struct text_buffer text = {.out = note, .bytes = PEFT_NOTE_BYTES};
    note[0] = '\0';
    if (a->use_dora || saves || varies) {
        text_buffer_add(
                &text, "vLLM and llama.cpp cannot read this adapter:%s%s%s",
                a->use_dora ? " it is DoRA;" : "",
                saves ? " it has modules_to_save;" : "",
                varies ? " its modules have ranks or alphas of their own;"
                       : "");
        note[--text.used] = '\0'; /* the last semicolon */
    }
    /* peft replaces only the base's embedding by a saved one, not the tied head
     */
    if (w->view.config->tied && peft_saves(&w->view, 0) && text.used)
        text_buffer_add(
                &text,
                "; the head is tied to the embedding that is saved, and peft "
                "leaves the head as the base has it: `zerod merge` makes a "
                "model with both");
    if (w->view.config->rope_scaling)
        text_buffer_add(
                &text,
                "%sit was trained with model.rope_scaling: `zerod merge` and "
                "`zerod generate` know it, other programs need it in the "
                "base's config.json",
                text.used ? "; " : "");
}

enum zd_status peft_write(
        const char *dir, const struct model_config *config,
        const struct param_table *table, const struct peft_config *adapter,
        const char *base_model, const char *tokenizer, enum dtype dtype,
        const struct peft_source *source, char note[PEFT_NOTE_BYTES])
{
    char to[EXPORT_PATH_BYTES], temporary[EXPORT_PATH_BYTES];
    struct writing w = {temporary, {config, adapter, table}, source};
    ZD_TRY(export_dir_names(dir, true, to, temporary));
    ZD_TRY(export_dir_begin(w.dir));
    ZD_TRY(write_weights(&w, dtype));
    ZD_TRY(write_config(&w, base_model));
    ZD_TRY(export_copy_files(NULL, tokenizer, w.dir));
    ZD_TRY(fs_sync_dir(w.dir));
    note_readers(&w, note);
    return export_dir_replace(temporary, to);
}
