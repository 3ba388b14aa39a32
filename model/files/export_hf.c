#include "model/files/export_hf.h"
#include "base/file/fs.h"
#include "base/must.h"
#include "model/files/config.h"
#include "model/files/export_dir.h"
#include "model/files/hf_names.h"
#include "model/files/tensor_files.h"
#include "model/files/weights_hf.h"
#include "model/quantized/codes.h"
#include "model/quantized/quantized.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONFIG_BYTES_MAX = 16 << 20 };

/* --- quantized weights, as bitsandbytes has them -------------------------- */

/* file_tensor.kind for quantized weights: quant_beside + 1, or KIND_WEIGHT for
 * the weight itself. */
enum { KIND_WEIGHT = BESIDES + 1 };
#define KIND_OF(beside) ((int)(beside) + 1)

struct quantizing {
    const struct param_table *table;
    struct weight_source source;
    const struct quantize_options *quantize;
    enum dtype dtype;
    bool nested;
    float *offsets; /* (table->count) offsets of nested absmax; owned */
    int id;         /* the weight in memory; -1: none */
    struct codes_whole weight;
};

static struct quant_matrix matrix_of(const struct quantizing *q, int id)
{
    return codes_matrix(&q->table->params[id], q->quantize->format, q->nested);
}

static enum zd_status hold_weight(struct quantizing *q, int id)
{
    struct quant_matrix matrix = matrix_of(q, id);
    if (q->id == id)
        return ZD_OK;
    q->id = -1;
    codes_whole_fini(&q->weight);
    ZD_TRY(codes_make_whole(&q->source, q->table, id, &matrix, &q->weight));
    if (q->nested)
        q->offsets[id] = *(const float *)q->weight.scales;
    q->id = id;
    return ZD_OK;
}

static char *state_text(const struct quantizing *q, int id)
{
    const struct quant_state state = {
            matrix_of(q, id), q->dtype, q->offsets[id]};
    return quant_state_text(&state);
}

/* Computes the offset first: it is part of the quant_state's text, whose length
 * is listed before anything is written. */
static enum zd_status list_quantized(
        struct quantizing *q, int id, const char *name,
        struct tensor_files *files)
{
    struct quant_matrix m = matrix_of(q, id);
    bool is_4bit = quant_is_4bit(&m), nested = q->nested;
    int64_t blocks = (int64_t)quant_scale_count(&m);
    if (nested)
        ZD_TRY(hold_weight(q, id));
    ZD_FREED char *text = is_4bit ? state_text(q, id) : NULL;
    const struct {
        bool is_written;
        int kind;
        const char *dtype;
        int dims;
        int64_t rows, columns;
    } pieces[] = {
            {is_4bit, KIND_WEIGHT, "U8", 2,
             (int64_t)quant_parts(quant_matrix_count(&m), 2), 1},
            {!is_4bit, KIND_WEIGHT, "I8", 2, m.rows, m.columns},
            {!is_4bit, KIND_OF(BESIDE_SCB), "F32", 1, m.rows, 1},
            {!is_4bit, KIND_OF(BESIDE_WEIGHT_FORMAT), "U8", 0, 1, 1},
            {is_4bit, KIND_OF(BESIDE_ABSMAX), nested ? "U8" : "F32", 1, blocks,
             1},
            {is_4bit, KIND_OF(BESIDE_QUANT_MAP), "F32", 1, 16, 1},
            {nested, KIND_OF(BESIDE_NESTED_ABSMAX), "F32", 1,
             (int64_t)quant_parts((size_t)blocks, QUANT_NESTED_BLOCK), 1},
            {nested, KIND_OF(BESIDE_NESTED_QUANT_MAP), "F32", 1, 256, 1},
            {is_4bit, KIND_OF(BESIDE_STATE_NF4), "U8", 1,
             text ? (int64_t)strlen(text) : 0, 1}};
    int stem = (int)(strlen(name) - strlen(".weight"));
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        int kind = pieces[i].kind;
        if (!pieces[i].is_written)
            continue;
        struct file_tensor *tensor = tensor_files_add(
                files, id, kind, pieces[i].dtype, pieces[i].dims,
                pieces[i].rows, pieces[i].columns);
        ZD_PRINT(
                tensor->name, "%.*s%s", stem, name,
                kind == KIND_WEIGHT ? ".weight" : quantized_ends[kind - 1]);
    }
    return ZD_OK;
}

static enum zd_status read_quantized(
        struct quantizing *q, const struct file_tensor *tensor, size_t begin,
        size_t count, void *out)
{
    float map[256];
    ZD_FREED char *text = NULL;
    struct quant_matrix m = matrix_of(q, tensor->id);
    size_t groups = quant_parts(quant_scale_count(&m), QUANT_NESTED_BLOCK);
    size_t element = strcmp(tensor->entry.dtype, "F32") == 0 ? 4 : 1;
    ZD_TRY(hold_weight(q, tensor->id));
    const float *scales = q->weight.scales;
    const void *from = scales;
    if (tensor->kind == KIND_WEIGHT)
        from = q->weight.codes;
    else if (tensor->kind == KIND_OF(BESIDE_ABSMAX) && q->nested)
        from = scales + 1 + groups;
    else if (tensor->kind == KIND_OF(BESIDE_NESTED_ABSMAX))
        from = scales + 1;
    else if (tensor->kind == KIND_OF(BESIDE_QUANT_MAP))
        quant_values(q->quantize->format, map), from = map;
    else if (tensor->kind == KIND_OF(BESIDE_NESTED_QUANT_MAP))
        quant_dynamic_map(map), from = map;
    else if (tensor->kind == KIND_OF(BESIDE_STATE_NF4))
        from = text = state_text(q, tensor->id);
    else if (tensor->kind == KIND_OF(BESIDE_WEIGHT_FORMAT))
        from = ""; /* 0: by rows */
    memcpy(out, (const char *)from + begin * element, count * element);
    return ZD_OK;
}

/* quantization_config as transformers writes it. */
static json_t *quantization_keys(const struct quantizing *q)
{
    bool is_int8 = q->quantize->format == QUANT_INT8;
    return zd_must(json_pack(
            "{s:s s:b s:b s:s s:b s:s s:s s:f s:n s:b s:b}", "quant_method",
            "bitsandbytes", "load_in_4bit", !is_int8, "load_in_8bit", is_int8,
            "bnb_4bit_quant_type", "nf4", "bnb_4bit_use_double_quant",
            (int)q->quantize->double_quant, "bnb_4bit_compute_dtype",
            dtype_torch_name(q->dtype), "bnb_4bit_quant_storage", "uint8",
            "llm_int8_threshold", 6.0, "llm_int8_skip_modules",
            "llm_int8_enable_fp32_cpu_offload", 0, "llm_int8_has_fp16_weight",
            0));
}

/* --- the tensors ---------------------------------------------------------- */

struct hf_export {
    const struct hf_export_job *job;
    const struct weight_source *source; /* NULL: this process writes no
                                           tensor */
    struct quantizing *quantizing;      /* NULL: not quantized */
    char to[EXPORT_PATH_BYTES], dir[EXPORT_PATH_BYTES]; /* being written */
    struct tensor_files files;
    struct hf_files others;
};

static enum zd_status read_tensor(
        void *ctx, const struct file_tensor *tensor, size_t begin, size_t count,
        void *out)
{
    const struct hf_export *e = ctx;
    if (tensor->raw)
        return st_read_bytes(
                e->others.files[tensor->id],
                st_find(e->others.files[tensor->id], tensor->name), begin,
                count, out);
    if (tensor->kind)
        return read_quantized(e->quantizing, tensor, begin, count, out);
    return e->source->read(e->source->ctx, tensor->id, begin, count, out);
}

/* Lists the tensors outside the text model. */
static enum zd_status list_others(struct hf_export *e)
{
    const struct model_config *config = e->job->config;
    if (!config->wrapper || !e->job->others_from)
        return ZD_OK;
    ZD_TRY(hf_files_open(e->job->others_from, &e->others));
    for (int i = 0; i < e->others.count; i++)
        ZD_EACH(tensor, e->others.files[i]->tensors,
                e->others.files[i]->tensor_count) {
            struct st_entry entry = {
                    .name = tensor->name,
                    .dtype = tensor->dtype,
                    .dims = tensor->dims};
            memcpy(entry.shape, tensor->shape, sizeof entry.shape);
            if (text_config_passes(config, tensor->name))
                ZD_TRY(tensor_files_add_raw(
                        &e->files, i, &entry, tensor->bytes));
        }
    return ZD_OK;
}

static enum zd_status list_tensors(struct hf_export *e)
{
    const struct hf_export_job *job = e->job;
    const char *dtype = dtype_safetensors_name(job->dtype);
    for (int id = 0; id < job->table->count; id++) {
        const struct param *p = &job->table->params[id];
        char name[HF_NAME_BYTES];
        hf_name_in_files(job->config, p->name, job->file_prefix, name);
        bool in_layer = p->unit > 0 && p->unit < job->table->unit_count - 1;
        if (e->quantizing && param_is_linear(p) && in_layer) {
            ZD_TRY(list_quantized(e->quantizing, id, name, &e->files));
            continue;
        }
        struct file_tensor *tensor = tensor_files_add(
                &e->files, id, 0, dtype, p->dims, p->shape[0], p->shape[1]);
        ZD_PRINT(tensor->name, "%s", name);
    }
    ZD_TRY(list_others(e));
    tensor_files_cut(&e->files, job->max_shard_bytes);
    return ZD_OK;
}

static enum zd_status write_index(const struct hf_export *e)
{
    char name[TENSOR_FILE_NAME];
    json_t *map = zd_must(json_object());
    json_auto_t *index = zd_must(json_pack(
            "{s:{s:I} s:o}", "metadata", "total_size",
            (json_int_t)tensor_files_bytes(&e->files, -1), "weight_map", map));
    ZD_EACH(tensor, e->files.tensors, e->files.count) {
        tensor_files_name(&e->files, tensor->file, name);
        json_object_set_new(map, tensor->name, zd_must(json_string(name)));
    }
    return json_write_file(
            fs_in(e->dir, "model.safetensors.index.json").text, index);
}

/* Sets the type; in a part of the configuration only if the key exists. */
static void set_dtype(json_t *json, const char *type, bool is_whole)
{
    bool v5 = json_object_get(json, "dtype") != NULL;
    bool v4 = json_object_get(json, "torch_dtype") != NULL;
    if (v5)
        json_object_set_new(json, "dtype", json_string(type));
    if (v4 || (is_whole && !v5)) /* all versions read the older key */
        json_object_set_new(json, "torch_dtype", json_string(type));
}

/* Writes the original configuration with the new type and vocabulary. */
static enum zd_status write_config(const struct hf_export *e)
{
    const char *type = dtype_torch_name(e->job->dtype);
    json_auto_t *json = NULL;
    if (e->job->copy_from) {
        ZD_TRY(json_parse_file(
                fs_in(e->job->copy_from, "config.json").text, CONFIG_BYTES_MAX,
                &json));
    } else {
        json = zd_must(json_deep_copy(e->job->config->json));
    }
    json_t *text = text_config_of(json, e->job->config);
    model_config_write_rope(json, e->job->config);
    json_object_del(json, "quantization_config");
    if (e->job->config->stored_rows) /* extended (config.h) */
        json_object_set_new(
                text, "vocab_size", json_integer(e->job->config->vocab_size));
    set_dtype(json, type, true);
    if (text != json)
        set_dtype(text, type, false);
    if (e->quantizing)
        json_object_set_new(
                json, "quantization_config", quantization_keys(e->quantizing));
    return json_write_file(fs_in(e->dir, "config.json").text, json);
}

/* --- all of it ------------------------------------------------------------ */

enum zd_status weights_export_check(const char *dir, bool is_adapter)
{
    char to[EXPORT_PATH_BYTES], temporary[EXPORT_PATH_BYTES];
    bool is_there;
    ZD_TRY(export_dir_names(dir, is_adapter, to, temporary));
    ZD_TRY(fs_look(to, &is_there));
    if (is_there && access(to, W_OK | X_OK) != 0)
        return ZD_FAIL(
                ZD_ERR_CREATE, "E0314",
                "the model in `%s` cannot be replaced: %s", to,
                strerror(errno));
    ZD_TRY(export_dir_begin(temporary));
    return fs_remove_tree(temporary);
}

/* Call with the tensors listed. */
static enum zd_status end(struct hf_export *e)
{
    const char *from = e->job->copy_from;
    if (e->files.files > 1)
        ZD_TRY(write_index(e));
    ZD_TRY(write_config(e));
    ZD_TRY(export_copy_files(from, from, e->dir));
    ZD_TRY(fs_sync_dir(e->dir));
    return export_dir_replace(e->dir, e->to);
}

static void export_fini(struct hf_export *e)
{
    tensor_files_fini(&e->files);
    hf_files_close(&e->others);
}

static enum zd_status export_steps(
        const struct hf_export_job *job, const struct weight_source *source,
        struct quantizing *quantizing, unsigned steps, int part, int parts)
{
    ZD_SCOPED(export_fini)
    struct hf_export e = {
            .job = job,
            .source = source,
            .quantizing = quantizing,
            .files = {.stem = "model", .read = read_tensor, .ctx = &e}};
    e.files.dir = e.dir;
    ZD_TRY(export_dir_places(job->dir, e.to, e.dir));
    if (steps & EXPORT_BEGIN) {
        ZD_TRY(export_dir_names(job->dir, false, e.to, e.dir));
        ZD_TRY(export_dir_begin(e.dir));
    }
    ZD_TRY(list_tensors(&e));
    if (steps & EXPORT_BEGIN)
        ZD_TRY(tensor_files_create(&e.files));
    if (steps & EXPORT_PART)
        ZD_TRY(tensor_files_write(&e.files, part, parts));
    return steps & EXPORT_END ? end(&e) : ZD_OK;
}

enum zd_status weights_export(
        const struct hf_export_job *job, enum export_step steps,
        const struct weight_source *source, int part, int parts)
{
    return export_steps(job, source, NULL, steps, part, parts);
}

static void quantizing_fini(struct quantizing *q)
{
    codes_whole_fini(&q->weight);
    free(q->offsets);
}

enum zd_status weights_export_quantized(
        const struct hf_export_job *job, const struct weight_source *source,
        const struct quantize_options *quantize)
{
    struct hf_export_job whole = *job;
    ZD_SCOPED(quantizing_fini)
    struct quantizing q = {
            .table = job->table,
            .source = *source,
            .quantize = quantize,
            .dtype = job->dtype,
            .nested = quantize->double_quant && quantize->format != QUANT_INT8,
            .offsets = zd_array((size_t)job->table->count, sizeof(float)),
            .id = -1};
    q.source.stored = NULL; /* quantize the values, even if stored quantized */
    whole.max_shard_bytes = UINT64_MAX; /* one file */
    return export_steps(&whole, source, &q, EXPORT_ALL, 0, 1);
}
