#include "model/files/weights_hf.h"
#include "base/file/fs.h"
#include "base/must.h"
#include "model/files/hf_names.h"
#include "model/quantized/quantized.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONFIG_BYTES_MAX = 16 << 20,
    INDEX_BYTES_MAX = 256 << 20,
    LINES = 64 /* rows read at a time for a mean */
};
static const char ONE_FILE[] = "model.safetensors";
static const char INDEX[] = "model.safetensors.index.json";

/* --- files ---------------------------------------------------------------- */

void hf_files_close(struct hf_files *files)
{
    for (int i = 0; i < files->count; i++)
        st_close(files->files[i]);
    free(files->files);
    *files = (struct hf_files){0};
}

static enum zd_status add_file(struct hf_files *out, const char *path)
{
    for (int i = 0; i < out->count; i++)
        if (strcmp(out->files[i]->path, path) == 0)
            return ZD_OK;
    ZD_TRY(st_open(path, &out->files[out->count]));
    out->count++;
    return ZD_OK;
}

#define BAD_INDEX(index, ...)                                                  \
    (ZD_BAD("E0308", __VA_ARGS__), zd_fail_where("%s", index))

/* Only plain names, so that an index cannot refer outside its folder. */
static enum zd_status add_shard(
        struct hf_files *out, const char *dir, const char *index,
        const char *tensor, const json_t *value)
{
    const char *name = json_string_value(value);
    if (!name || !*name || strchr(name, '/') || strcmp(name, "..") == 0 ||
        strlen(name) > 255) {
        return BAD_INDEX(
                index,
                "the file of tensor `%.100s` is `%.100s`, which is no file "
                "name inside the folder",
                tensor, name ? name : "?");
    }
    const struct fs_path path = fs_in(dir, name);
    if (!fs_exists(path.text))
        return BAD_INDEX(
                index, "the file `%s` of tensor `%.100s` is missing", name,
                tensor);
    return add_file(out, path.text);
}

static enum zd_status open_shards(
        struct hf_files *out, const char *dir, const char *index)
{
    json_auto_t *json = NULL;
    ZD_TRY(json_parse_file(index, INDEX_BYTES_MAX, &json));
    json_t *map = json_object_get(json, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0)
        return BAD_INDEX(index, "there is no `weight_map`");
    out->files = zd_array(json_object_size(map), sizeof *out->files);
    JSON_MEMBERS(tensor, value, map)
        ZD_TRY(add_shard(out, dir, index, tensor, value));
    return ZD_OK;
}

static enum zd_status open_all(const char *dir, struct hf_files *out)
{
    const struct fs_path path = fs_in(dir, ONE_FILE), index = fs_in(dir, INDEX);
    if (fs_exists(path.text)) {
        out->files = zd_array(1, sizeof *out->files);
        return add_file(out, path.text);
    }
    if (fs_exists(index.text))
        return open_shards(out, dir, index.text);
    ZD_BAD("E0307", "there is neither model.safetensors nor "
                    "model.safetensors.index.json");
    zd_fail_where("%s", dir);
    return zd_fail_help(
            fs_exists(fs_in(dir, "manifest.json").text)
                    ? "a checkpoint is made a model by `zerod export`"
                    : "weights in pickle files (pytorch_model.bin) are never "
                      "read; save them as safetensors");
}

enum zd_status hf_files_open(const char *dir, struct hf_files *out)
{
    *out = (struct hf_files){0};
    enum zd_status status = open_all(dir, out);
    if (status != ZD_OK)
        hf_files_close(out);
    return status;
}

/* --- a source ---------------------------------------------------------------
 */

struct hf_tensor {
    struct stored stored;
    struct stored *beside;    /* (BESIDES) if there is any; owned */
    struct quantized *weight; /* if quantized; owned */
    float *mean; /* mean of its rows, computed at the first row beyond them;
                    owned */
};

struct hf_source {
    const struct model_config *config;
    const struct param_table *table;
    int64_t rows; /* vocabulary in the files */
    struct hf_files files;
    struct hf_tensor *tensors; /* (table->count); owned */
    pthread_mutex_t lock;      /* protects the means */
};

static void hf_close(void *ctx)
{
    struct hf_source *source = ctx;
    hf_files_close(&source->files);
    for (int id = 0; id < source->table->count; id++) {
        quantized_fini(source->tensors[id].weight);
        free(source->tensors[id].weight);
        free(source->tensors[id].beside);
        free(source->tensors[id].mean);
    }
    pthread_mutex_destroy(&source->lock);
    free(source->tensors);
    free(source);
}

/* Rows in the files; the model's vocabulary may have more. */
static int64_t rows_of(
        const struct hf_source *source, const struct param *param)
{
    bool is_vocabulary = param->role == ROLE_TOKENS || param->role == ROLE_HEAD;
    return is_vocabulary ? source->rows : param->shape[0];
}

/* --- reading -------------------------------------------------------------- */

static enum zd_status read_stored(
        const struct hf_source *source, int id, size_t begin, size_t count,
        float *out)
{
    const struct hf_tensor *t = &source->tensors[id];
    if (!t->weight)
        ZD_TRY(st_read_float(
                t->stored.file, t->stored.tensor, begin, count, out));
    else if (source->table->params[id].conv1d) /* stored quantized as (out,
                                                  in) */
        ZD_TRY(quantized_read_transposed(t->weight, begin, count, out));
    else
        ZD_TRY(quantized_read(t->weight, begin, count, out));
    return stored_check_finite(t->stored, begin, count, out);
}

/* Sums in double, one row after the other. */
static enum zd_status make_mean(struct hf_source *source, int id)
{
    size_t rows = (size_t)source->rows;
    size_t columns = (size_t)source->table->params[id].shape[1];
    ZD_FREED double *sum = zd_array(columns, sizeof *sum);
    ZD_FREED float *lines = zd_array(LINES * columns, sizeof *lines);
    for (size_t row = 0; row < rows; row += LINES) {
        size_t count = (rows - row < LINES ? rows - row : LINES) * columns;
        ZD_TRY(read_stored(source, id, row * columns, count, lines));
        for (size_t i = 0; i < count; i++)
            sum[i % columns] += lines[i];
    }
    float *mean = zd_array(columns, sizeof *mean);
    for (size_t i = 0; i < columns; i++)
        mean[i] = (float)(sum[i] / (double)rows);
    source->tensors[id].mean = mean;
    return ZD_OK;
}

static enum zd_status mean_of(
        struct hf_source *source, int id, const float **out)
{
    pthread_mutex_lock(&source->lock);
    enum zd_status status =
            source->tensors[id].mean ? ZD_OK : make_mean(source, id);
    *out = source->tensors[id].mean;
    pthread_mutex_unlock(&source->lock);
    return status;
}

static enum zd_status hf_read(
        void *ctx, int id, size_t begin, size_t count, float *out)
{
    struct hf_source *source = ctx;
    const struct param *param = &source->table->params[id];
    size_t columns = (size_t)param->shape[1];
    size_t there = (size_t)rows_of(source, param) * columns;
    size_t end = begin + count;
    size_t stored = begin >= there ? 0 : (end < there ? end : there) - begin;
    const float *mean;
    if (stored)
        ZD_TRY(read_stored(source, id, begin, stored, out));
    if (stored == count)
        return ZD_OK;
    ZD_TRY(mean_of(source, id, &mean));
    for (size_t i = stored; i < count; i++)
        out[i] = mean[(begin + i) % columns];
    return ZD_OK;
}

static const struct quantized *hf_stored(void *ctx, int id)
{
    const struct hf_source *source = ctx;
    return source->tensors[id].weight;
}

/* --- placing -------------------------------------------------------------- */

static const char asks[] = "config.json asks for";

/* Checks that a tensor without an entry in the table may be in the files. */
static enum zd_status check_extra(
        const struct hf_source *source, struct stored stored)
{
    const struct model_config *c = source->config;
    char name[HF_NAME_BYTES];
    hf_name_canonical(c, stored.tensor->name, name);
    if (hf_name_is_buffer(name))
        return ZD_OK;
    if (c->tied && strcmp(name, "lm_head.weight") == 0) {
        int64_t shape[2] = {source->rows, c->hidden_size};
        return stored_check_shape(stored, "E0310", asks, 2, shape);
    }
    return stored_fail(
            stored, "E0311", "tensor `%s` does not belong to a %s model",
            stored.tensor->name, c->family->name);
}

static enum zd_status take_place(struct stored *place, struct stored stored)
{
    if (place->tensor)
        return stored_fail(
                stored, "E0309", "tensor `%s` appears twice, also in %s",
                stored.tensor->name, place->file->path);
    *place = stored;
    return ZD_OK;
}

/* The table's tensor with this name in a file; -1: none. */
static int find_tensor(const struct hf_source *source, const char *name)
{
    char ours[HF_NAME_BYTES];
    hf_name_canonical(source->config, name, ours);
    return param_table_find(source->table, ours);
}

static enum zd_status place_tensor(
        struct hf_source *source, struct stored stored)
{
    char weight[2 * PARAM_NAME_MAX];
    enum quant_beside what;
    const char *name = stored.tensor->name;
    if (text_config_passes(source->config, name))
        return ZD_OK;
    int id = find_tensor(source, name);
    if (id >= 0)
        return take_place(&source->tensors[id].stored, stored);
    if (quantized_split_name(name, weight, sizeof weight, &what))
        id = find_tensor(source, weight);
    if (id < 0 || source->table->params[id].dims != 2)
        return check_extra(source, stored);
    struct hf_tensor *slot = &source->tensors[id];
    if (!slot->beside)
        slot->beside = zd_array(BESIDES, sizeof *slot->beside);
    return take_place(&slot->beside[what], stored);
}

static enum zd_status open_quantized(
        const struct hf_source *source, struct hf_tensor *slot,
        const struct param *param)
{
    int64_t rows = param_out(param), columns = param_in(param);
    const struct quant_matrix *m;
    const char *name = slot->stored.tensor->name;
    if (!source->config->is_quantized)
        return stored_fail(
                slot->stored, "E0330",
                "tensor `%s` is quantized; config.json has no "
                "`quantization_config`",
                name);
    slot->weight = zd_array(1, sizeof *slot->weight);
    ZD_TRY(quantized_open(slot->stored, slot->beside, slot->weight));
    m = &slot->weight->state.matrix;
    if (m->rows == rows && m->columns == columns)
        return ZD_OK;
    return stored_fail(
            slot->stored, "E0310",
            "tensor `%s` holds a matrix of [%lld, %lld]; config.json asks for "
            "[%lld, %lld]",
            name, (long long)m->rows, (long long)m->columns, (long long)rows,
            (long long)columns);
}

/* Checks a complete tensor against the table. */
static enum zd_status check_tensor(
        const struct hf_source *source, struct hf_tensor *slot,
        const struct param *param)
{
    const char *name = slot->stored.tensor->dtype;
    enum dtype type;
    int64_t shape[2] = {rows_of(source, param), param->shape[1]};
    if (slot->beside)
        return open_quantized(source, slot, param);
    if (!dtype_find(dtype_safetensors_name, name, &type))
        return stored_fail(
                slot->stored, "E0310",
                "tensor `%s` has the type %s; F32, BF16 and F16 can be read",
                slot->stored.tensor->name, name);
    return stored_check_shape(slot->stored, "E0310", asks, param->dims, shape);
}

static enum zd_status place_all(struct hf_source *source, const char *dir)
{
    for (int i = 0; i < source->files.count; i++) {
        const struct st_file *file = source->files.files[i];
        for (int t = 0; t < file->tensor_count; t++)
            ZD_TRY(place_tensor(
                    source, (struct stored){file, &file->tensors[t]}));
    }
    for (int id = 0; id < source->table->count; id++) {
        const struct param *param = &source->table->params[id];
        if (param->part != PARAM_BASE)
            continue;
        if (!source->tensors[id].stored.tensor) {
            ZD_BAD("E0309", "tensor `%s` is missing", param->name);
            return zd_fail_where("%s", dir);
        }
        ZD_TRY(check_tensor(source, &source->tensors[id], param));
    }
    return ZD_OK;
}

/* For a quantized model: the type before quantization. */
static enum dtype storage_dtype(const struct hf_source *source)
{
    size_t counts[3] = {0};
    ZD_EACH(tensor, source->tensors, source->table->count) {
        const struct st_tensor *t = tensor->stored.tensor;
        if (tensor->weight)
            return tensor->weight->state.dtype;
        enum dtype type;
        if (t && dtype_find(dtype_safetensors_name, t->dtype, &type))
            counts[type] += t->count; /* NULL: a tensor of an adapter */
    }
    enum dtype most = DTYPE_FP32;
    for (enum dtype type = DTYPE_FP32; type <= DTYPE_FP16; type++)
        if (counts[type] > counts[most])
            most = type;
    return most;
}

/* Reads the number of vocabulary rows in the files, at most the model's. */
static enum zd_status read_rows(
        const char *dir, const struct model_config *config, int64_t *rows_out)
{
    const struct fs_path path = fs_in(dir, "config.json");
    json_auto_t *json = NULL;
    *rows_out = config->vocab_size;
    if (!fs_exists(path.text))
        return ZD_OK;
    ZD_TRY(json_parse_file(path.text, CONFIG_BYTES_MAX, &json));
    json_int_t rows =
            json_integer_at(text_config_of(json, config), "vocab_size");
    if (rows > 0 && rows < config->vocab_size)
        *rows_out = rows;
    return ZD_OK;
}

enum zd_status weights_open_hf(
        const char *dir, const struct model_config *config,
        const struct param_table *table, enum dtype *storage_out,
        struct weight_source *source_out)
{
    int64_t rows;
    ZD_TRY(read_rows(dir, config, &rows));
    struct hf_source *source = zd_array(1, sizeof *source);
    *source = (struct hf_source){
            .config = config,
            .table = table,
            .rows = rows,
            .tensors = zd_array((size_t)table->count, sizeof *source->tensors)};
    pthread_mutex_init(&source->lock, NULL);
    ZD_SCOPED(weights_close)
    struct weight_source opened = {hf_read, hf_close, source, hf_stored};
    ZD_TRY(hf_files_open(dir, &source->files));
    ZD_TRY(place_all(source, dir));
    if (storage_out)
        *storage_out = storage_dtype(source);
    *source_out = ZD_TAKE(opened);
    return ZD_OK;
}

bool weights_hf_are_there(const char *dir)
{
    return fs_exists(fs_in(dir, ONE_FILE).text) ||
           fs_exists(fs_in(dir, INDEX).text);
}

bool weights_hf_has(const char *dir, const char *name)
{
    struct hf_files files;
    bool is_there = false;
    if (hf_files_open(dir, &files) != ZD_OK) {
        if (zd_error_get()->status == ZD_ERR_MEMORY)
            zd_out_of_memory();
        zd_error_clear();
        return false;
    }
    for (int i = 0; i < files.count; i++)
        is_there |= st_find(files.files[i], name) != NULL;
    hf_files_close(&files);
    return is_there;
}

bool weights_hf_has_prefix(const char *dir, const struct model_config *config)
{
    char name[HF_NAME_BYTES];
    const char *embedding = config->family->embeddings[0].name;
    hf_name_in_files(config, embedding, true, name);
    if (strcmp(name, embedding) == 0 || weights_hf_has(dir, name))
        return true;
    hf_name_in_files(config, embedding, false, name);
    return !weights_hf_has(dir, name);
}
