#include "model/files/hf_files.h"
#include "base/file/fs.h"
#include "base/file/json.h"
#include "base/must.h"

#include <stdlib.h>
#include <string.h>

enum { INDEX_BYTES_MAX = 256 << 20, PATH_BYTES = 4096 };

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
    (ZD_FAIL(ZD_ERR_DATA, "E0308", __VA_ARGS__), zd_fail_where("%s", index))

/* Only plain names: what an index says must stay inside its folder. */
static enum zd_status add_shard(
        struct hf_files *out, const char *dir, const char *index,
        const char *tensor, const json_t *value)
{
    char path[PATH_BYTES];
    const char *name = json_string_value(value);
    if (!name || !*name || strchr(name, '/') || strcmp(name, "..") == 0 ||
        strlen(name) > 255) {
        return BAD_INDEX(
                index,
                "the file of tensor `%.100s` is `%.100s`, which is no file "
                "name inside the folder",
                tensor, name ? name : "?");
    }
    fs_join(path, sizeof path, dir, name);
    if (!fs_exists(path))
        return BAD_INDEX(
                index, "the file `%s` of tensor `%.100s` is missing", name,
                tensor);
    return add_file(out, path);
}

static enum zd_status open_shards(
        struct hf_files *out, const char *dir, const char *index)
{
    const char *tensor;
    json_t *json, *value;
    ZD_TRY(json_parse_file(index, INDEX_BYTES_MAX, &json));
    json_t *map = json_object_get(json, "weight_map");
    enum zd_status status = ZD_OK;
    if (!json_is_object(map) || json_object_size(map) == 0)
        status = BAD_INDEX(index, "there is no `weight_map`");
    out->files = zd_array(json_object_size(map), sizeof *out->files);
    json_object_foreach(map, tensor, value)
    {
        if (status == ZD_OK)
            status = add_shard(out, dir, index, tensor, value);
    }
    json_decref(json);
    return status;
}

static enum zd_status open_all(const char *dir, struct hf_files *out)
{
    char path[PATH_BYTES], index[PATH_BYTES];
    fs_join(path, sizeof path, dir, "model.safetensors");
    fs_join(index, sizeof index, dir, "model.safetensors.index.json");
    if (fs_exists(path)) {
        out->files = zd_array(1, sizeof *out->files);
        return add_file(out, path);
    }
    if (fs_exists(index))
        return open_shards(out, dir, index);
    ZD_FAIL(ZD_ERR_DATA, "E0307",
            "there is neither model.safetensors nor "
            "model.safetensors.index.json");
    zd_fail_where("%s", dir);
    fs_join(path, sizeof path, dir, "manifest.json");
    return zd_fail_help(
            fs_exists(path)
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
