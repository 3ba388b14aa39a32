#include "model/files/export_hf.h"
#include "base/file/fs.h"
#include "base/must.h"
#include "model/files/config.h"
#include "model/files/export_dir.h"
#include "model/files/export_quantized.h"
#include "model/files/hf_files.h"
#include "model/files/hf_names.h"
#include "model/files/tensor_files.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { CONFIG_BYTES_MAX = 16 << 20 };

struct hf_export {
    const struct hf_export_job *job;
    const struct weight_source *source; /* NULL: of who writes no tensor */
    struct quantizing *quantizing;      /* NULL: tensors are written whole */
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
        return quantizing_read(e->quantizing, tensor, begin, count, out);
    return e->source->read(e->source->ctx, tensor->id, begin, count, out);
}

/* The tensors that are not the text model's. */
static enum zd_status list_others(struct hf_export *e)
{
    const struct model_config *config = e->job->config;
    if (!config->wrapper || !e->job->options.others_from)
        return ZD_OK;
    ZD_TRY(hf_files_open(e->job->options.others_from, &e->others));
    for (int i = 0; i < e->others.count; i++)
        for (int t = 0; t < e->others.files[i]->tensor_count; t++) {
            const struct st_tensor *tensor = &e->others.files[i]->tensors[t];
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
    const char *dtype = dtype_safetensors_name(job->options.dtype);
    for (int id = 0; id < job->table->count; id++) {
        const struct param *p = &job->table->params[id];
        char name[HF_NAME_BYTES];
        hf_name_in_files(job->config, p->name, job->options.file_prefix, name);
        if (e->quantizing && quantizing_takes(job->table, id)) {
            ZD_TRY(quantizing_list(e->quantizing, id, name, &e->files));
            continue;
        }
        struct file_tensor *tensor = tensor_files_add(
                &e->files, id, 0, dtype, p->dims, p->shape[0], p->shape[1]);
        snprintf(tensor->name, sizeof tensor->name, "%s", name);
    }
    ZD_TRY(list_others(e));
    tensor_files_cut(&e->files, job->options.max_shard_bytes);
    return ZD_OK;
}

static enum zd_status write_index(const struct hf_export *e)
{
    char path[EXPORT_PATH_BYTES], name[TENSOR_FILE_NAME];
    json_t *map = zd_must(json_object());
    json_t *index = zd_must(json_pack(
            "{s:{s:I} s:o}", "metadata", "total_size",
            (json_int_t)tensor_files_bytes(&e->files), "weight_map", map));
    for (int i = 0; i < e->files.count; i++) {
        const struct file_tensor *tensor = &e->files.tensors[i];
        tensor_files_name(&e->files, tensor->file, name);
        json_object_set_new(map, tensor->name, zd_must(json_string(name)));
    }
    fs_join(path, sizeof path, e->dir, "model.safetensors.index.json");
    enum zd_status status = json_write_file(path, index);
    json_decref(index);
    return status;
}

/* Of a part, only where it is there. */
static int set_dtype(json_t *json, const char *type, bool is_whole)
{
    bool v5 = json_object_get(json, "dtype") != NULL;
    bool v4 = json_object_get(json, "torch_dtype") != NULL;
    int failed = 0;
    if (v5)
        failed |= json_object_set_new(json, "dtype", json_string(type));
    if (v4 || (is_whole && !v5)) /* every version reads the older key */
        failed |= json_object_set_new(json, "torch_dtype", json_string(type));
    return failed;
}

/* The configuration as it was, but for the type of the weights and rows of the
 * vocabulary. */
static enum zd_status write_config(const struct hf_export *e)
{
    char path[EXPORT_PATH_BYTES];
    const char *type = dtype_torch_name(e->job->options.dtype);
    json_t *json = NULL;
    if (e->job->options.copy_from) {
        fs_join(path, sizeof path, e->job->options.copy_from, "config.json");
        ZD_TRY(json_parse_file(path, CONFIG_BYTES_MAX, &json));
    } else {
        json = json_deep_copy(e->job->config->json);
    }
    json_t *text = text_config_of(json, e->job->config);
    model_config_write_rope(json, e->job->config);
    json_object_del(json, "quantization_config");
    if (e->job->config->stored_rows) /* of more tokens (config.h) */
        json_object_set_new(
                text, "vocab_size", json_integer(e->job->config->vocab_size));
    int failed = !json || set_dtype(json, type, true);
    if (text != json)
        failed |= set_dtype(text, type, false);
    if (e->job->options.quantization)
        failed |= json_object_set(
                json, "quantization_config", e->job->options.quantization);
    fs_join(path, sizeof path, e->dir, "config.json");
    enum zd_status status = failed ? ZD_FAIL(ZD_ERR_MEMORY, "E0602",
                                             "no memory for a configuration")
                                   : json_write_file(path, json);
    json_decref(json);
    return status;
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

/* With the tensors listed. */
static enum zd_status end(struct hf_export *e)
{
    const char *from = e->job->options.copy_from;
    if (e->files.files > 1)
        ZD_TRY(write_index(e));
    ZD_TRY(write_config(e));
    ZD_TRY(export_copy_files(from, from, e->dir));
    ZD_TRY(fs_sync_dir(e->dir));
    return export_dir_replace(e->dir, e->to);
}

enum { STEP_BEGIN = 1, STEP_WRITE = 2, STEP_END = 4 };

static enum zd_status export_steps(
        const struct hf_export_job *job, const struct weight_source *source,
        struct quantizing *quantizing, unsigned steps, int part, int parts)
{
    struct hf_export e = {
            .job = job,
            .source = source,
            .quantizing = quantizing,
            .files = {.stem = "model", .read = read_tensor, .ctx = &e}};
    e.files.dir = e.dir;
    ZD_TRY(export_dir_places(job->dir, e.to, e.dir));
    if (steps & STEP_BEGIN) {
        ZD_TRY(export_dir_names(job->dir, false, e.to, e.dir));
        ZD_TRY(export_dir_begin(e.dir));
    }
    enum zd_status status = list_tensors(&e);
    if (status == ZD_OK && steps & STEP_BEGIN)
        status = tensor_files_create(&e.files);
    if (status == ZD_OK && steps & STEP_WRITE)
        status = tensor_files_write(&e.files, part, parts);
    if (status == ZD_OK && steps & STEP_END)
        status = end(&e);
    tensor_files_fini(&e.files);
    hf_files_close(&e.others);
    return status;
}

enum zd_status weights_export_begin(const struct hf_export_job *job)
{
    return export_steps(job, NULL, NULL, STEP_BEGIN, 0, 1);
}

enum zd_status weights_export_part(
        const struct hf_export_job *job, const struct weight_source *source,
        int part, int parts)
{
    return export_steps(job, source, NULL, STEP_WRITE, part, parts);
}

enum zd_status weights_export_end(const struct hf_export_job *job)
{
    return export_steps(job, NULL, NULL, STEP_END, 0, 1);
}

enum { ALL_STEPS = STEP_BEGIN | STEP_WRITE | STEP_END };

enum zd_status weights_export_hf(
        const char *dir, const struct model_config *config,
        const struct param_table *table, const struct weight_source *source,
        const struct hf_export_options *options)
{
    struct hf_export_job job = {
            .dir = dir, .config = config, .table = table, .options = *options};
    return export_steps(&job, source, NULL, ALL_STEPS, 0, 1);
}

enum zd_status weights_export_quantized(
        const char *dir, const struct model_config *config,
        const struct param_table *table, const struct weight_source *source,
        const struct hf_export_options *options,
        const struct quantize_options *quantize)
{
    struct hf_export_job job = {
            .dir = dir, .config = config, .table = table, .options = *options};
    struct quantizing *quantizing =
            quantizing_create(table, source, options->dtype, quantize);
    job.options.max_shard_bytes = UINT64_MAX; /* one file */
    job.options.quantization = quantizing_config(quantizing);
    enum zd_status status =
            export_steps(&job, source, quantizing, ALL_STEPS, 0, 1);
    json_decref(job.options.quantization);
    quantizing_destroy(quantizing);
    return status;
}
