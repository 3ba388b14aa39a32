#include "model/files/export_hf.h"
#include "model/files/export_dir.h"
#include "model/files/hf_names.h"
#include "model/weights.h"

#include "base/file/fs.h"
#include "base/file/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PIECE = 1 << 18, /* elements held at a time */
    PATH_BYTES = 4096,
    COPY_BYTES_MAX = 1 << 30,
    CONFIG_BYTES_MAX = 16 << 20
};

struct hf_export {
    const char *dir; /* being written */
    const struct model_config *config;
    const struct param_table *table;
    const struct weight_source *source; /* NULL: of who writes no tensor */
    const struct hf_export_options *options;
    int *shard; /* (table->count) file of each tensor, from 0; owned */
    int shards;
    char (*names)[HF_NAME_BYTES]; /* (table->count); owned */
    float *values;                /* (PIECE); owned */
    void *packed;                 /* (PIECE) of the files' type; owned */
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
    for (int id = 0; id < e->table->count; id++) {
        const struct param *p = &e->table->params[id];
        if (e->options->file_prefix)
            hf_name_in_files(e->config, p, e->names[id]);
        else
            snprintf(e->names[id], HF_NAME_BYTES, "%s", p->name);
    }
}

static int list_shard(
        const struct hf_export *e, int shard, struct st_entry *entries)
{
    int count = 0;
    for (int id = 0; id < e->table->count; id++) {
        const struct param *p = &e->table->params[id];
        if (e->shard[id] != shard)
            continue;
        entries[count++] = (struct st_entry){
                .name = e->names[id],
                .dtype = dtype_safetensors_name(e->options->dtype),
                .dims = p->dims,
                .shape = {p->shape[0], p->shape[1]},
        };
    }
    return count;
}

/* The file with its header, at its full length; whose tensors follow. */
static enum zd_status create_shard(struct hf_export *e, int shard)
{
    struct st_writer *writer;
    char name[64], path[PATH_BYTES];
    size_t tensors = (size_t)e->table->count;
    struct st_entry *entries = calloc(tensors, sizeof *entries);
    json_t *metadata = json_pack("{s:s}", EXPORT_WRITER_KEY, EXPORT_WRITER);
    enum zd_status status;
    shard_name(e, shard, name);
    fs_join(path, sizeof path, e->dir, name);
    if (entries && metadata) {
        int count = list_shard(e, shard, entries);
        status = st_writer_create(path, entries, count, metadata, &writer);
        if (status == ZD_OK)
            status = st_writer_leave(writer);
    } else {
        status = ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for an export");
    }
    json_decref(metadata);
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

/* The configuration as it was, but for the type of the weights and rows of the
 * vocabulary. */
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
    json_object_del(json, "quantization_config");
    if (json_integer_value(json_object_get(json, "vocab_size")) !=
        e->config->vocab_size) /* of more tokens (vocab_resize.h) */
        json_object_set_new(
                json, "vocab_size", json_integer(e->config->vocab_size));
    bool v5 = json_object_get(json, "dtype") != NULL;
    bool v4 = json_object_get(json, "torch_dtype") != NULL;
    int failed = !json;
    if (v5)
        failed |= json_object_set_new(json, "dtype", json_string(type));
    if (v4 || !v5) /* every version of transformers reads the older key */
        failed |= json_object_set_new(json, "torch_dtype", json_string(type));
    if (e->options->quantization)
        failed |= json_object_set(
                json, "quantization_config", e->options->quantization);
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

/* --- what is in the files ------------------------------------------------- */

/* Bytes [begin, end) of the files' tensors, all files one behind the other. */
struct span {
    uint64_t begin, end;
};

/* Where a byte of a file's tensors lies in it. Parts meet at whole pages, so
 * that no two hosts write to one. */
static uint64_t place_of(uint64_t data_begin, uint64_t bytes, uint64_t at)
{
    enum { PAGE = 4096 };
    if (at == 0 || at == bytes)
        return data_begin + at;
    uint64_t page = (data_begin + at) / PAGE * PAGE;
    return page > data_begin ? page : data_begin;
}

/* Bytes [from, to) of the file, which lie in this tensor. */
static enum zd_status write_run(
        struct hf_export *e, int fd, const struct st_file *file,
        const struct st_tensor *tensor, int id, uint64_t from, uint64_t to)
{
    enum dtype type = e->options->dtype;
    size_t size = dtype_bytes(type);
    while (from < to) {
        size_t left = (size_t)((to - from) / size);
        size_t n = left < PIECE ? left : PIECE;
        size_t begin = (size_t)((from - tensor->begin) / size);
        ZD_TRY(e->source->read(e->source->ctx, id, begin, n, e->values));
        dtype_convert(e->packed, type, e->values, DTYPE_FP32, n);
        ZD_TRY(fs_pwrite(fd, file->path, e->packed, n * size, from));
        from += n * size;
    }
    return ZD_OK;
}

/* Bytes [from, to) of a file, whatever tensors they belong to. */
static enum zd_status write_tensors(
        struct hf_export *e, int fd, const struct st_file *file, int shard,
        uint64_t from, uint64_t to)
{
    for (int id = 0; id < e->table->count; id++) {
        if (e->shard[id] != shard)
            continue;
        const struct st_tensor *tensor = st_find(file, e->names[id]);
        if (!tensor)
            return ZD_FAIL(
                    ZD_ERR_BUG, "E0902", "%s lacks %s", file->path,
                    e->names[id]);
        uint64_t end = tensor->begin + tensor->bytes;
        uint64_t first = from > tensor->begin ? from : tensor->begin;
        uint64_t last = to < end ? to : end;
        if (first < last)
            ZD_TRY(write_run(e, fd, file, tensor, id, first, last));
    }
    return ZD_OK;
}

/* What `mine` has of a file whose tensors begin at `at` of all. */
static enum zd_status write_part(
        struct hf_export *e, int shard, uint64_t at, uint64_t bytes,
        struct span mine)
{
    char name[64], path[PATH_BYTES];
    struct st_file *file;
    uint64_t end = at + bytes;
    if (mine.begin >= end || mine.end <= at)
        return ZD_OK;
    shard_name(e, shard, name);
    fs_join(path, sizeof path, e->dir, name);
    ZD_TRY(st_open(path, &file));
    uint64_t data = file->file_bytes - bytes;
    uint64_t from =
            place_of(data, bytes, mine.begin > at ? mine.begin - at : 0);
    uint64_t to = place_of(data, bytes, mine.end < end ? mine.end - at : bytes);
    enum zd_status status = ZD_OK;
    int fd = open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        status =
                ZD_FAIL(ZD_ERR_CREATE, "E0708", "cannot create %s: %s", path,
                        strerror(errno));
    } else {
        status = write_tensors(e, fd, file, shard, from, to);
        enum zd_status synced = fs_sync_close(fd, path);
        status = status == ZD_OK ? synced : status;
    }
    st_close(file);
    return status;
}

static uint64_t shard_bytes(const struct hf_export *e, int shard)
{
    uint64_t bytes = 0;
    for (int id = 0; id < e->table->count; id++)
        if (e->shard[id] == shard)
            bytes +=
                    e->table->params[id].count * dtype_bytes(e->options->dtype);
    return bytes;
}

static enum zd_status write_parts(struct hf_export *e, int part, int parts)
{
    uint64_t at = 0;
    uint64_t total = e->table->total * dtype_bytes(e->options->dtype);
    uint64_t each = total / (uint64_t)parts;
    struct span mine = {each * (uint64_t)part, each * (uint64_t)(part + 1)};
    if (part + 1 == parts)
        mine.end = total;
    e->values = malloc(PIECE * sizeof *e->values);
    e->packed = malloc(PIECE * sizeof(float));
    if (!e->values || !e->packed)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for an export");
    for (int shard = 0; shard < e->shards; shard++) {
        uint64_t bytes = shard_bytes(e, shard);
        ZD_TRY(write_part(e, shard, at, bytes, mine));
        at += bytes;
    }
    return ZD_OK;
}

/* --- all of it ------------------------------------------------------------ */

/* A model does not replace an adapter. */
static enum zd_status check_kind(
        const char *dir, char to[EXPORT_PATH_BYTES],
        char temporary[EXPORT_PATH_BYTES])
{
    char adapter[EXPORT_PATH_BYTES + 32];
    ZD_TRY(export_dir_names(dir, to, temporary));
    fs_join(adapter, sizeof adapter, to, "adapter_config.json");
    if (!fs_exists(adapter))
        return ZD_OK;
    ZD_FAIL(ZD_ERR_CREATE, "E0314",
            "`%s` holds an adapter, which the model would replace", to);
    zd_fail_help("name another folder, or remove this one");
    return ZD_ERR_CREATE;
}

enum zd_status weights_export_check(const char *dir)
{
    char to[EXPORT_PATH_BYTES], temporary[EXPORT_PATH_BYTES];
    bool is_there;
    ZD_TRY(check_kind(dir, to, temporary));
    ZD_TRY(fs_look(to, &is_there));
    if (is_there && access(to, W_OK | X_OK) != 0)
        return ZD_FAIL(
                ZD_ERR_CREATE, "E0314",
                "the model in `%s` cannot be replaced: %s", to,
                strerror(errno));
    ZD_TRY(export_dir_begin(temporary));
    return fs_remove_tree(temporary);
}

static void export_fini(struct hf_export *e)
{
    free(e->shard);
    free(e->names);
    free(e->values);
    free(e->packed);
}

static enum zd_status export_init(
        struct hf_export *e, const struct hf_export_job *job,
        const char *temporary)
{
    size_t count = (size_t)job->table->count;
    *e = (struct hf_export){
            .dir = temporary,
            .config = job->config,
            .table = job->table,
            .options = &job->options,
            .shard = calloc(count, sizeof *e->shard),
            .names = calloc(count, sizeof *e->names),
    };
    if (!e->shard || !e->names) {
        export_fini(e);
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for an export");
    }
    cut_shards(e);
    name_tensors(e);
    return ZD_OK;
}

enum zd_status weights_export_begin(const struct hf_export_job *job)
{
    struct hf_export e;
    char to[EXPORT_PATH_BYTES], temporary[EXPORT_PATH_BYTES];
    ZD_TRY(check_kind(job->dir, to, temporary));
    ZD_TRY(export_dir_begin(temporary));
    ZD_TRY(export_init(&e, job, temporary));
    enum zd_status status = ZD_OK;
    for (int shard = 0; status == ZD_OK && shard < e.shards; shard++)
        status = create_shard(&e, shard);
    export_fini(&e);
    return status;
}

enum zd_status weights_export_part(
        const struct hf_export_job *job, const struct weight_source *source,
        int part, int parts)
{
    struct hf_export e;
    char to[EXPORT_PATH_BYTES], temporary[EXPORT_PATH_BYTES];
    ZD_TRY(export_dir_places(job->dir, to, temporary));
    ZD_TRY(export_init(&e, job, temporary));
    e.source = source;
    enum zd_status status = write_parts(&e, part, parts);
    export_fini(&e);
    return status;
}

enum zd_status weights_export_end(const struct hf_export_job *job)
{
    struct hf_export e;
    char to[EXPORT_PATH_BYTES], temporary[EXPORT_PATH_BYTES];
    ZD_TRY(export_dir_places(job->dir, to, temporary));
    ZD_TRY(export_init(&e, job, temporary));
    enum zd_status status = e.shards > 1 ? write_index(&e) : ZD_OK;
    if (status == ZD_OK)
        status = write_config(&e);
    if (status == ZD_OK)
        status = copy_files(&e);
    if (status == ZD_OK)
        status = fs_sync_dir(temporary);
    export_fini(&e);
    return status == ZD_OK ? export_dir_replace(temporary, to) : status;
}

enum zd_status weights_export_hf(
        const char *dir, const struct model_config *config,
        const struct param_table *table, const struct weight_source *source,
        const struct hf_export_options *options)
{
    struct hf_export_job job = {
            .dir = dir, .config = config, .table = table, .options = *options};
    ZD_TRY(weights_export_begin(&job));
    ZD_TRY(weights_export_part(&job, source, 0, 1));
    return weights_export_end(&job);
}
