#include "model/export_dir.h"
#include "model/hf_names.h"
#include "model/weights.h"

#include "base/file/fs.h"
#include "base/file/safetensors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PIECE = 1 << 18, /* elements held at a time */
    PATH_BYTES = 4096,
    COPY_BYTES_MAX = 1 << 30,
    CONFIG_BYTES_MAX = 16 << 20,
    NAME_BYTES = PARAM_NAME_MAX + 16
};

struct hf_export {
    const char *dir; /* being written */
    const struct model_config *config;
    const struct param_table *table;
    const struct weight_source *source;
    const struct hf_export_options *options;
    int *shard; /* (table->count) file of each tensor, from 0; owned */
    int shards;
    char (*names)[NAME_BYTES]; /* (table->count); owned */
    float *values;             /* (PIECE); owned */
    void *packed;              /* (PIECE) of the files' type; owned */
};

static void shard_name(const struct hf_export *e, int shard, char out[64])
{
    if (e->shards == 1)
        snprintf(out, 64, "model.safetensors");
    else
        snprintf(
                out, 64, "model-%05d-of-%05d.safetensors", shard + 1,
                e->shards);
}

/* Fill files in the order of the table; one larger than the limit is alone. */
static void cut_shards(struct hf_export *e)
{
    uint64_t filled = 0;
    e->shards = 1;
    for (int id = 0; id < e->table->count; id++) {
        uint64_t bytes =
                e->table->params[id].count * dtype_bytes(e->options->dtype);
        if (filled && filled + bytes > e->options->max_shard_bytes) {
            e->shards++;
            filled = 0;
        }
        filled += bytes;
        e->shard[id] = e->shards - 1;
    }
}

static void name_tensors(struct hf_export *e)
{
    bool prefix = e->config->family == MODEL_GPT2 && e->options->gpt2_prefix;
    for (int id = 0; id < e->table->count; id++) {
        const char *name = e->table->params[id].name;
        bool inside = strcmp(name, "lm_head.weight") != 0;
        snprintf(
                e->names[id], NAME_BYTES, "%s%s",
                prefix && inside ? HF_GPT2_PREFIX : "", name);
    }
}

static enum zd_status write_tensor(
        struct hf_export *e, int id, struct st_writer *writer)
{
    size_t count = e->table->params[id].count;
    enum dtype type = e->options->dtype;
    for (size_t begin = 0; begin < count; begin += PIECE) {
        size_t n = count - begin < PIECE ? count - begin : PIECE;
        ZD_TRY(e->source->read(e->source->ctx, id, begin, n, e->values));
        dtype_convert(e->packed, type, e->values, DTYPE_FP32, n);
        ZD_TRY(st_writer_write(writer, e->packed, n * dtype_bytes(type)));
    }
    return ZD_OK;
}

static int list_shard(
        const struct hf_export *e, int shard, struct st_entry *entries,
        int *ids)
{
    int count = 0;
    for (int id = 0; id < e->table->count; id++) {
        const struct param *p = &e->table->params[id];
        if (e->shard[id] != shard)
            continue;
        ids[count] = id;
        entries[count++] = (struct st_entry){
                .name = e->names[id],
                .dtype = dtype_safetensors_name(e->options->dtype),
                .dims = p->dims,
                .shape = {p->shape[0], p->shape[1]},
        };
    }
    return count;
}

static enum zd_status write_listed(
        struct hf_export *e, const char *path, const struct st_entry *entries,
        const int *ids, int count, const json_t *metadata)
{
    struct st_writer *writer;
    ZD_TRY(st_writer_create(path, entries, count, metadata, &writer));
    for (int i = 0; i < count; i++) {
        enum zd_status status =
                write_tensor(e, ids[st_writer_order(writer, i)], writer);
        if (status != ZD_OK) {
            st_writer_abandon(writer);
            return status;
        }
    }
    return st_writer_finish(writer, NULL, NULL);
}

static enum zd_status write_shard(struct hf_export *e, int shard)
{
    char name[64], path[PATH_BYTES];
    size_t tensors = (size_t)e->table->count;
    struct st_entry *entries = calloc(tensors, sizeof *entries);
    int *ids = calloc(tensors, sizeof *ids);
    json_t *metadata = json_pack("{s:s}", EXPORT_WRITER_KEY, EXPORT_WRITER);
    enum zd_status status;
    shard_name(e, shard, name);
    fs_join(path, sizeof path, e->dir, name);
    if (entries && ids && metadata) {
        int count = list_shard(e, shard, entries, ids);
        status = write_listed(e, path, entries, ids, count, metadata);
    } else {
        status = ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for an export");
    }
    json_decref(metadata);
    free(ids);
    free(entries);
    return status;
}

static enum zd_status write_index(const struct hf_export *e)
{
    char path[PATH_BYTES], name[64];
    uint64_t total = e->table->total * dtype_bytes(e->options->dtype);
    json_t *map = json_object();
    json_t *index = json_pack(
            "{s:{s:I} s:o}", "metadata", "total_size", (json_int_t)total,
            "weight_map", map);
    enum zd_status status =
            index ? ZD_OK
                  : ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for an index");
    for (int id = 0; index && id < e->table->count; id++) {
        shard_name(e, e->shard[id], name);
        if (json_object_set_new(map, e->names[id], json_string(name)) != 0)
            status = ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for an index");
    }
    fs_join(path, sizeof path, e->dir, "model.safetensors.index.json");
    if (status == ZD_OK)
        status = json_write_file(path, index);
    json_decref(index);
    return status;
}

static const char *torch_dtype(enum dtype type)
{
    return type == DTYPE_FP32   ? "float32"
           : type == DTYPE_BF16 ? "bfloat16"
                                : "float16";
}

/* The configuration as it was, but for the type of the weights. */
static enum zd_status write_config(const struct hf_export *e)
{
    char path[PATH_BYTES];
    const char *type = torch_dtype(e->options->dtype);
    json_t *json = NULL;
    if (e->options->copy_from) {
        fs_join(path, sizeof path, e->options->copy_from, "config.json");
        ZD_TRY(json_parse_file(path, CONFIG_BYTES_MAX, &json));
    } else {
        json = json_deep_copy(e->config->json);
    }
    bool v5 = json_object_get(json, "dtype") != NULL;
    bool v4 = json_object_get(json, "torch_dtype") != NULL;
    int failed = !json;
    if (v5)
        failed |= json_object_set_new(json, "dtype", json_string(type));
    if (v4 || !v5) /* every version of transformers reads the older key */
        failed |= json_object_set_new(json, "torch_dtype", json_string(type));
    fs_join(path, sizeof path, e->dir, "config.json");
    enum zd_status status = failed ? ZD_FAIL(ZD_ERR_MEMORY, "E0602",
                                             "no memory for a configuration")
                                   : json_write_file(path, json);
    json_decref(json);
    return status;
}

static enum zd_status copy_file(
        const char *from_dir, const char *to_dir, const char *name)
{
    char from[PATH_BYTES], to[PATH_BYTES];
    char *data;
    size_t bytes;
    fs_join(from, sizeof from, from_dir, name);
    fs_join(to, sizeof to, to_dir, name);
    bool is_there;
    ZD_TRY(fs_look(from, &is_there));
    if (!is_there)
        return ZD_OK;
    ZD_TRY(fs_read_file(from, COPY_BYTES_MAX, &data, &bytes));
    enum zd_status status = export_check_link(from_dir, name);
    if (status == ZD_OK)
        status = fs_write_file(to, data, bytes);
    free(data);
    return status;
}

/* The tokenizer may lie in a folder of its own. */
static enum zd_status copy_files(const struct hf_export *e)
{
    const char *from = e->options->copy_from;
    const char *tokenizer = e->options->tokenizer_from;
    for (int i = 0; export_copied_files[i]; i++) {
        const char *dir = i > 0 && tokenizer ? tokenizer : from;
        if (dir)
            ZD_TRY(copy_file(dir, e->dir, export_copied_files[i]));
    }
    return ZD_OK;
}

static enum zd_status write_all(struct hf_export *e)
{
    size_t count = (size_t)e->table->count;
    e->shard = calloc(count, sizeof *e->shard);
    e->names = calloc(count, sizeof *e->names);
    e->values = malloc(PIECE * sizeof *e->values);
    e->packed = malloc(PIECE * sizeof(float));
    if (!e->shard || !e->names || !e->values || !e->packed)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for an export");
    cut_shards(e);
    name_tensors(e);
    for (int shard = 0; shard < e->shards; shard++)
        ZD_TRY(write_shard(e, shard));
    if (e->shards > 1)
        ZD_TRY(write_index(e));
    ZD_TRY(write_config(e));
    ZD_TRY(copy_files(e));
    return fs_sync_dir(e->dir);
}

enum zd_status weights_export_check(const char *dir)
{
    char to[EXPORT_PATH_BYTES], temporary[EXPORT_PATH_BYTES];
    bool is_there;
    ZD_TRY(export_dir_names(dir, to, temporary));
    ZD_TRY(fs_look(to, &is_there));
    if (is_there && access(to, W_OK | X_OK) != 0)
        return ZD_FAIL(
                ZD_ERR_CREATE, "E0314",
                "the model in `%s` cannot be replaced: %s", to,
                strerror(errno));
    ZD_TRY(export_dir_begin(temporary));
    return fs_remove_tree(temporary);
}

enum zd_status weights_export_hf(
        const char *dir, const struct model_config *config,
        const struct param_table *table, const struct weight_source *source,
        const struct hf_export_options *options)
{
    char to[EXPORT_PATH_BYTES], temporary[EXPORT_PATH_BYTES];
    ZD_TRY(export_dir_names(dir, to, temporary));
    ZD_TRY(export_dir_begin(temporary));
    struct hf_export e = {
            .dir = temporary,
            .config = config,
            .table = table,
            .source = source,
            .options = options,
    };
    enum zd_status status = write_all(&e);
    free(e.shard);
    free(e.names);
    free(e.values);
    free(e.packed);
    return status == ZD_OK ? export_dir_replace(temporary, to) : status;
}
