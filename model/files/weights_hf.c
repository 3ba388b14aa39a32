#include "model/files/weights_hf.h"
#include "model/files/hf_names.h"
#include "model/quantized/quantized.h"
#include "model/weights.h"

#include "base/file/fs.h"
#include "base/file/safetensors.h"
#include "base/must.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { INDEX_BYTES_MAX = 256 << 20, PATH_BYTES = 4096 };

struct hf_tensor {
    struct stored stored;
    struct stored *beside;    /* (BESIDES) when there is one; owned */
    struct quantized *weight; /* when it is stored in codes; owned */
};

struct hf_source {
    const struct model_config *config;
    const struct param_table *table;
    struct st_file **files; /* owned */
    int file_count;
    struct hf_tensor *tensors; /* (table->count); owned */
};

static void hf_close(void *ctx)
{
    struct hf_source *source = ctx;
    for (int i = 0; i < source->file_count; i++)
        st_close(source->files[i]);
    for (int id = 0; source->tensors && id < source->table->count; id++) {
        quantized_fini(source->tensors[id].weight);
        free(source->tensors[id].weight);
        free(source->tensors[id].beside);
    }
    free(source->files);
    free(source->tensors);
    free(source);
}

static enum zd_status read_values(
        const struct hf_source *source, int id, size_t begin, size_t count,
        float *out)
{
    const struct hf_tensor *t = &source->tensors[id];
    if (!t->weight)
        return st_read_float(
                t->stored.file, t->stored.tensor, begin, count, out);
    return source->table->params[id].conv1d /* codes are of (out, in) */
                   ? quantized_read_transposed(t->weight, begin, count, out)
                   : quantized_read(t->weight, begin, count, out);
}

static enum zd_status hf_read(
        void *ctx, int id, size_t begin, size_t count, float *out)
{
    const struct hf_source *source = ctx;
    const struct hf_tensor *t = &source->tensors[id];
    ZD_TRY(read_values(source, id, begin, count, out));
    for (size_t i = 0; i < count; i++)
        if (!isfinite(out[i])) {
            ZD_FAIL(ZD_ERR_DATA, "E0312", "tensor `%s` is %s at element %zu",
                    t->stored.tensor->name,
                    isnan(out[i]) ? "not a number" : "infinite", begin + i);
            zd_fail_where("%s", t->stored.file->path);
            return ZD_ERR_DATA;
        }
    return ZD_OK;
}

static const struct quantized *hf_stored(void *ctx, int id)
{
    const struct hf_source *source = ctx;
    return source->tensors[id].weight;
}

static void shape_text(
        char *out, size_t out_bytes, int dims, const int64_t *shape)
{
    size_t used = (size_t)snprintf(out, out_bytes, "[");
    for (int d = 0; d < dims && used < out_bytes; d++)
        used += (size_t)snprintf(
                out + used, out_bytes - used, "%s%lld", d ? ", " : "",
                (long long)shape[d]);
    if (used < out_bytes)
        snprintf(out + used, out_bytes - used, "]");
}

static enum zd_status check_shape(
        const struct st_file *file, const struct st_tensor *tensor, int dims,
        const int64_t *shape)
{
    bool equal = tensor->dims == dims;
    for (int d = 0; equal && d < dims; d++)
        equal = tensor->shape[d] == shape[d];
    if (equal)
        return ZD_OK;
    char have[160], want[160];
    shape_text(have, sizeof have, tensor->dims, tensor->shape);
    shape_text(want, sizeof want, dims, shape);
    ZD_FAIL(ZD_ERR_DATA, "E0310",
            "tensor `%s` has the shape %s; config.json asks for %s",
            tensor->name, have, want);
    zd_fail_where("%s", file->path);
    return ZD_ERR_DATA;
}

static bool is_float(const struct st_tensor *tensor)
{
    return strcmp(tensor->dtype, "F32") == 0 ||
           strcmp(tensor->dtype, "BF16") == 0 ||
           strcmp(tensor->dtype, "F16") == 0;
}

/* A tensor that belongs to the model although the table has none for it. */
static enum zd_status check_extra(
        const struct hf_source *source, const struct st_file *file,
        const struct st_tensor *tensor)
{
    const struct model_config *c = source->config;
    if (hf_name_is_buffer(tensor->name))
        return ZD_OK;
    if (c->tied && strcmp(tensor->name, "lm_head.weight") == 0) {
        int64_t shape[2] = {c->vocab_size, c->hidden_size};
        return check_shape(file, tensor, 2, shape);
    }
    ZD_FAIL(ZD_ERR_DATA, "E0311", "tensor `%s` is no part of a %s model",
            tensor->name, c->family->name);
    zd_fail_where("%s", file->path);
    return ZD_ERR_DATA;
}

/* What lies beside a weight that is stored in codes. */
static enum zd_status place_beside(
        struct hf_source *source, struct stored stored, bool *is_placed)
{
    char weight[2 * PARAM_NAME_MAX];
    enum quant_beside what;
    *is_placed = false;
    if (!quantized_split_name(
                stored.tensor->name, weight, sizeof weight, &what))
        return ZD_OK;
    int id = param_table_find(
            source->table, hf_name_canonical(source->config, weight));
    if (id < 0 || source->table->params[id].dims != 2)
        return ZD_OK;
    struct hf_tensor *slot = &source->tensors[id];
    if (!slot->beside)
        slot->beside = calloc(BESIDES, sizeof *slot->beside);
    if (!slot->beside)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for a model");
    if (slot->beside[what].tensor) {
        ZD_FAIL(ZD_ERR_DATA, "E0309", "tensor `%s` is there twice, also in %s",
                stored.tensor->name, slot->beside[what].file->path);
        zd_fail_where("%s", stored.file->path);
        return ZD_ERR_DATA;
    }
    slot->beside[what] = stored;
    *is_placed = true;
    return ZD_OK;
}

static enum zd_status place_tensor(
        struct hf_source *source, const struct st_file *file,
        const struct st_tensor *tensor)
{
    bool is_placed;
    struct stored stored = {file, tensor};
    int id = param_table_find(
            source->table, hf_name_canonical(source->config, tensor->name));
    if (id < 0) {
        ZD_TRY(place_beside(source, stored, &is_placed));
        return is_placed ? ZD_OK : check_extra(source, file, tensor);
    }
    struct hf_tensor *slot = &source->tensors[id];
    if (slot->stored.tensor) {
        ZD_FAIL(ZD_ERR_DATA, "E0309", "tensor `%s` is there twice, also in %s",
                tensor->name, slot->stored.file->path);
        zd_fail_where("%s", file->path);
        return ZD_ERR_DATA;
    }
    slot->stored = stored;
    return ZD_OK;
}

static enum zd_status open_quantized(
        const struct hf_source *source, struct hf_tensor *slot,
        const struct param *param)
{
    if (!source->config->is_quantized) {
        ZD_FAIL(ZD_ERR_DATA, "E0330",
                "tensor `%s` is stored in codes; config.json has no "
                "`quantization_config`",
                slot->stored.tensor->name);
        zd_fail_where("%s", slot->stored.file->path);
        return ZD_ERR_DATA;
    }
    int64_t rows = param_out(param), columns = param_in(param);
    slot->weight = calloc(1, sizeof *slot->weight);
    if (!slot->weight)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for a model");
    ZD_TRY(quantized_open(slot->stored, slot->beside, slot->weight));
    if (slot->weight->rows == rows && slot->weight->columns == columns)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_DATA, "E0310",
            "tensor `%s` holds a matrix of [%lld, %lld]; config.json asks for "
            "[%lld, %lld]",
            slot->stored.tensor->name, (long long)slot->weight->rows,
            (long long)slot->weight->columns, (long long)rows,
            (long long)columns);
    zd_fail_where("%s", slot->stored.file->path);
    return ZD_ERR_DATA;
}

/* All of a tensor is known: is it what the table asks for? */
static enum zd_status check_tensor(
        const struct hf_source *source, struct hf_tensor *slot,
        const struct param *param)
{
    const struct st_tensor *tensor = slot->stored.tensor;
    if (slot->beside)
        return open_quantized(source, slot, param);
    if (!is_float(tensor)) {
        ZD_FAIL(ZD_ERR_DATA, "E0310",
                "tensor `%s` has the type %s; F32, BF16 and F16 can be read",
                tensor->name, tensor->dtype);
        zd_fail_where("%s", slot->stored.file->path);
        return ZD_ERR_DATA;
    }
    return check_shape(slot->stored.file, tensor, param->dims, param->shape);
}

static enum zd_status place_all(struct hf_source *source, const char *dir)
{
    for (int i = 0; i < source->file_count; i++) {
        const struct st_file *file = source->files[i];
        for (int t = 0; t < file->tensor_count; t++)
            ZD_TRY(place_tensor(source, file, &file->tensors[t]));
    }
    for (int id = 0; id < source->table->count; id++) {
        const struct param *param = &source->table->params[id];
        if (param->part != PARAM_BASE)
            continue;
        if (!source->tensors[id].stored.tensor) {
            ZD_FAIL(ZD_ERR_DATA, "E0309", "tensor `%s` is missing",
                    param->name);
            zd_fail_where("%s", dir);
            return ZD_ERR_DATA;
        }
        ZD_TRY(check_tensor(source, &source->tensors[id], param));
    }
    return ZD_OK;
}

static enum zd_status add_file(struct hf_source *source, const char *path)
{
    for (int i = 0; i < source->file_count; i++)
        if (strcmp(source->files[i]->path, path) == 0)
            return ZD_OK;
    ZD_TRY(st_open(path, &source->files[source->file_count]));
    source->file_count++;
    return ZD_OK;
}

/* Only plain names: what an index says must stay inside its folder. */
static enum zd_status add_shard(
        struct hf_source *source, const char *dir, const char *index,
        const char *tensor, const json_t *value)
{
    char path[PATH_BYTES];
    const char *name = json_string_value(value);
    if (!name || !*name || strchr(name, '/') || strcmp(name, "..") == 0 ||
        strlen(name) > 255) {
        ZD_FAIL(ZD_ERR_DATA, "E0308",
                "the file of tensor `%.100s` is `%.100s`, which is no file "
                "name inside the folder",
                tensor, name ? name : "?");
        zd_fail_where("%s", index);
        return ZD_ERR_DATA;
    }
    fs_join(path, sizeof path, dir, name);
    if (!fs_exists(path)) {
        ZD_FAIL(ZD_ERR_DATA, "E0308",
                "the file `%s` of tensor `%.100s` is "
                "missing",
                name, tensor);
        zd_fail_where("%s", index);
        return ZD_ERR_DATA;
    }
    return add_file(source, path);
}

static enum zd_status open_shards(
        struct hf_source *source, const char *dir, const char *index)
{
    const char *tensor;
    json_t *json, *value;
    ZD_TRY(json_parse_file(index, INDEX_BYTES_MAX, &json));
    json_t *map = json_object_get(json, "weight_map");
    enum zd_status status = ZD_OK;
    if (!json_is_object(map) || json_object_size(map) == 0) {
        status = ZD_FAIL(ZD_ERR_DATA, "E0308", "there is no `weight_map`");
        zd_fail_where("%s", index);
        goto out;
    }
    source->files = calloc(json_object_size(map), sizeof *source->files);
    if (!source->files) {
        status = ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for an index");
        goto out;
    }
    json_object_foreach(map, tensor, value)
    {
        status = add_shard(source, dir, index, tensor, value);
        if (status != ZD_OK)
            break;
    }
out:
    json_decref(json);
    return status;
}

static enum zd_status open_files(struct hf_source *source, const char *dir)
{
    char path[PATH_BYTES], index[PATH_BYTES];
    fs_join(path, sizeof path, dir, "model.safetensors");
    fs_join(index, sizeof index, dir, "model.safetensors.index.json");
    if (fs_exists(path)) {
        source->files = calloc(1, sizeof *source->files);
        if (!source->files)
            return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for a model");
        return add_file(source, path);
    }
    if (fs_exists(index))
        return open_shards(source, dir, index);
    ZD_FAIL(ZD_ERR_DATA, "E0307",
            "there is neither model.safetensors nor "
            "model.safetensors.index.json");
    zd_fail_where("%s", dir);
    zd_fail_help("weights in pickle files (pytorch_model.bin) are never read; "
                 "save them as safetensors");
    return ZD_ERR_DATA;
}

/* Of a model in codes: what its weights were. */
static enum dtype storage_dtype(const struct hf_source *source)
{
    size_t counts[3] = {0};
    for (int id = 0; id < source->table->count; id++) {
        const struct hf_tensor *tensor = &source->tensors[id];
        const struct st_tensor *t = tensor->stored.tensor;
        if (tensor->weight)
            return tensor->weight->dtype;
        if (!t)
            continue; /* of an adapter */
        enum dtype type = strcmp(t->dtype, "F32") == 0    ? DTYPE_FP32
                          : strcmp(t->dtype, "BF16") == 0 ? DTYPE_BF16
                                                          : DTYPE_FP16;
        counts[type] += t->count;
    }
    enum dtype most = DTYPE_FP32;
    for (int type = DTYPE_FP32; type <= DTYPE_FP16; type++)
        if (counts[type] > counts[most])
            most = (enum dtype)type;
    return most;
}

enum zd_status weights_open_hf(
        const char *dir, const struct model_config *config,
        const struct param_table *table, enum dtype *storage_out,
        struct weight_source *source_out)
{
    struct hf_source *source = calloc(1, sizeof *source);
    if (!source)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for a model");
    source->config = config;
    source->table = table;
    source->tensors = calloc((size_t)table->count, sizeof *source->tensors);
    enum zd_status status = source->tensors ? open_files(source, dir)
                                            : ZD_FAIL(ZD_ERR_MEMORY, "E0602",
                                                      "no memory for a model");
    if (status == ZD_OK)
        status = place_all(source, dir);
    if (status != ZD_OK) {
        hf_close(source);
        return status;
    }
    if (storage_out)
        *storage_out = storage_dtype(source);
    *source_out = (struct weight_source){hf_read, hf_close, source, hf_stored};
    return ZD_OK;
}

bool weights_hf_are_there(const char *dir)
{
    char path[PATH_BYTES], index[PATH_BYTES];
    fs_join(path, sizeof path, dir, "model.safetensors");
    fs_join(index, sizeof index, dir, "model.safetensors.index.json");
    return fs_exists(path) || fs_exists(index);
}

bool weights_hf_has_prefix(const char *dir, const struct model_config *config)
{
    char path[PATH_BYTES], name[HF_NAME_BYTES + 4], *text;
    const char *prefix = config->family->file_prefix;
    size_t bytes;
    struct st_file *file;
    bool is_there;
    if (!prefix)
        return true;
    snprintf(
            name, sizeof name, "\"%s%s\"", prefix,
            config->family->embeddings[0].name);

    fs_join(path, sizeof path, dir, "model.safetensors.index.json");
    if (fs_exists(path) &&
        fs_read_file(path, (uint64_t)64 << 20, &text, &bytes) == ZD_OK) {
        is_there = strstr(text, name) != NULL;
        free(text);
        return is_there;
    }
    if (zd_error_get()->status == ZD_ERR_MEMORY)
        zd_out_of_memory();
    fs_join(path, sizeof path, dir, "model.safetensors");
    if (st_open(path, &file) != ZD_OK) {
        if (zd_error_get()->status == ZD_ERR_MEMORY)
            zd_out_of_memory();
        zd_error_clear();
        return true;
    }
    name[strlen(name) - 1] = '\0';
    is_there = st_find(file, name + 1) != NULL;
    st_close(file);
    return is_there;
}
