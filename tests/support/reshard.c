#include "tests/support/reshard.h"

#include "base/file/fs.h"
#include "base/file/safetensors.h"
#include "model/files/config.h"
#include "model/slice.h"
#include "optim/optim.h"
#include "train/checkpoint/arrays.h"
#include "train/checkpoint/manifest.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRIES_MAX = 1 << 14 };

/* What one place has of all tensors, in blocks of 256 elements, of all tensors
 * one behind the other. */
struct part {
    const struct st_file *file;
    struct param_table table;
    int place;
    size_t *first; /* block of each tensor, and how many there are */
};

static bool part_open(
        const struct st_file *file, const struct model_config *config, int tp,
        int place, struct part *part)
{
    struct tp at = {tp, place};
    *part = (struct part){.file = file, .place = place};
    if (param_table_slice(config, at, NULL, 0, &part->table) != ZD_OK)
        return false;
    part->first = calloc((size_t)part->table.count + 1, sizeof *part->first);
    for (int id = 0; id < part->table.count; id++)
        part->first[id + 1] =
                part->first[id] +
                (part->table.params[id].count - 1) / OPTIM_QBLOCK + 1;
    return true;
}

static void part_close(struct part *part)
{
    param_table_fini(&part->table);
    free(part->first);
}

/* Elements of a slice, as a file has them. */
struct saved {
    struct held held;
    const struct param *param;
    size_t begin; /* of the slice */
};

struct shard {
    struct saved saved[ENTRIES_MAX];
    int count;
    struct {
        char name[ARRAY_NAME];
        const struct st_tensor *whole;
        int saved; /* what it is of */
        enum array_kind kind;
    } arrays[ENTRIES_MAX];
    struct st_entry entries[ENTRIES_MAX];
    int array_count;
};

static void add_saved(
        struct shard *shard, const struct param *param,
        const struct slice_run *run, size_t count)
{
    struct saved *saved = &shard->saved[shard->count++];
    struct columns columns = columns_of(&param->slice);
    *saved = (struct saved){.param = param, .begin = run->begin};
    saved->held.columns = columns;
    saved->held.begin = columns.count ? run->begin : run->whole;
    saved->held.count = count;
    snprintf(saved->held.name, sizeof saved->held.name, "%s", param->name);
}

/* What blocks [begin, end) have of a tensor, padding and what place 0 has
 * left out. */
static void cut(
        const struct part *part, int id, size_t begin, size_t end,
        struct shard *shard)
{
    const struct param *param = &part->table.params[id];
    const size_t *first = &part->first[id];
    size_t from = begin > first[0] ? begin : first[0];
    size_t to = end < first[1] ? end : first[1];
    if (from >= to)
        return;
    struct slice_run run = {.begin = (from - first[0]) * OPTIM_QBLOCK};
    size_t last = (to - first[0]) * OPTIM_QBLOCK, start = run.begin;
    last = last < param->count ? last : param->count;
    while (param_slice_next(param, last, &run)) {
        if (run.is_padding || (run.is_shared && part->place))
            continue;
        bool columns = param->slice.by_column;
        add_saved(shard, param, &run, columns ? last - start : run.count);
        if (columns)
            return;
    }
}

/* The arrays that the whole checkpoint has of what is saved. */
static void list_arrays(const struct part *part, struct shard *shard)
{
    static const struct columns all;
    for (int i = 0; i < shard->count; i++)
        for (int k = 0; k < ARRAY_V_BLOCKS; k++) {
            const struct held *held = &shard->saved[i].held;
            enum array_kind kind = (enum array_kind)k;
            char name[ARRAY_NAME];
            array_name(name, kind, held->name, &all, 0);
            const struct st_tensor *whole = st_find(part->file, name);
            if (!whole)
                continue;
            int n = shard->array_count++;
            size_t per = strstr(name, "_scale/") ? OPTIM_QBLOCK : 1;
            array_name(
                    shard->arrays[n].name, kind, held->name, &held->columns,
                    held->begin);
            shard->arrays[n].whole = whole;
            shard->arrays[n].saved = i;
            shard->arrays[n].kind = kind;
            shard->entries[n] = (struct st_entry){
                    .name = shard->arrays[n].name,
                    .dtype = whole->dtype,
                    .dims = 1,
                    .shape = {(int64_t)((held->count - 1) / per + 1)}};
        }
}

static bool write_array(
        const struct part *part, const struct shard *shard, int n,
        struct st_writer *writer)
{
    const struct saved *saved = &shard->saved[shard->arrays[n].saved];
    const struct st_tensor *whole = shard->arrays[n].whole;
    size_t per = strstr(whole->name, "_scale/") ? OPTIM_QBLOCK : 1;
    size_t bytes = whole->bytes / whole->count;
    struct slice_run run = {.begin = saved->begin};
    bool ok = true;
    while (ok &&
           param_slice_next(
                   saved->param, saved->begin + saved->held.count, &run)) {
        size_t count = (run.count - 1) / per + 1;
        char *data = malloc(count * bytes);
        ok = st_read_bytes(
                     part->file, whole, run.whole / per * bytes, count * bytes,
                     data) == ZD_OK &&
             st_writer_add(writer, n, data, count * bytes) == ZD_OK;
        free(data);
    }
    return ok;
}

static bool write_shard(
        const struct part *part, const char *path, int number, int shards,
        struct manifest_file *file)
{
    static struct shard shard;
    char text[HELD_TEXT];
    struct st_writer *writer;
    size_t blocks = part->first[part->table.count];
    size_t begin = blocks * (size_t)number / (size_t)shards;
    size_t end = blocks * (size_t)(number + 1) / (size_t)shards;
    shard.count = shard.array_count = 0;
    for (int id = 0; id < part->table.count; id++)
        cut(part, id, begin, end, &shard);
    list_arrays(part, &shard);
    bool ok = shard.count && st_writer_create(
                                     path, shard.entries, shard.array_count,
                                     NULL, &writer) == ZD_OK;
    for (int n = 0; ok && n < shard.array_count; n++) {
        ok = write_array(part, &shard, n, writer);
        held_add(
                &shard.saved[shard.arrays[n].saved].held, shard.arrays[n].kind,
                shard.entries[n].dtype, st_writer_digest(writer, n));
    }
    ok = ok && st_writer_finish(writer, file->digest, &file->bytes) == ZD_OK;
    for (int i = 0; i < shard.count; i++) {
        held_text(&shard.saved[i].held, text);
        json_array_append_new(file->holds, json_string(text));
    }
    return ok;
}

static bool write_shards(
        const struct st_file *whole, const struct model_config *config,
        const char *to, int shards, int tp, json_t *manifest)
{
    bool ok = true;
    for (int place = 0; ok && place < tp; place++) {
        struct part part;
        ok = part_open(whole, config, tp, place, &part);
        for (int s = 0; ok && s < shards; s++) {
            char path[PATH_MAX];
            struct manifest_file file = {
                    .by_parts = true, .holds = json_array()};
            snprintf(
                    file.name, sizeof file.name,
                    "shard-%05d-of-%05d.safetensors", s * tp + place + 1,
                    shards * tp);
            fs_join(path, sizeof path, to, file.name);
            ok = write_shard(&part, path, s, shards, &file);
            manifest_add_file(manifest, manifest_file_json(&file));
            json_decref(file.holds);
        }
        part_close(&part);
    }
    return ok;
}

/* The manifest of FROM without its shards, whose other files are copied. */
static bool copy_others(const char *from, const char *to, json_t *manifest)
{
    size_t i;
    json_t *entry, *others = json_array();
    json_array_foreach(json_object_get(manifest, "files"), i, entry)
    {
        char path[PATH_MAX], *data;
        size_t bytes;
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (strncmp(name, "shard-", 6) == 0)
            continue;
        fs_join(path, sizeof path, from, name);
        if (fs_read_file(path, 1 << 28, &data, &bytes) != ZD_OK)
            return false;
        fs_join(path, sizeof path, to, name);
        bool ok = fs_write_file(path, data, bytes) == ZD_OK;
        free(data);
        if (!ok)
            return false;
        json_array_append(others, entry);
    }
    json_object_set_new(manifest, "files", others);
    return true;
}

bool reshard(const char *from, const char *to, int shards, int tp, int format)
{
    char path[PATH_MAX];
    struct st_file *file;
    struct model_config config;
    json_t *manifest;
    fs_join(path, sizeof path, from, "shard-00001-of-00001.safetensors");
    if (fs_make_dirs(to) != ZD_OK || manifest_read(from, &manifest) != ZD_OK ||
        model_config_read(from, &config) != ZD_OK)
        return false;
    bool ok = st_open(path, &file) == ZD_OK;
    if (ok) {
        ok = copy_others(from, to, manifest) &&
             write_shards(file, &config, to, shards, tp, manifest);
        st_close(file);
    }
    model_config_fini(&config);
    json_object_set_new(manifest, "world", json_integer(shards * tp));
    json_object_set_new(manifest, "format", json_integer(format));
    json_object_del(manifest, "manifest_xxh3_128");
    fs_join(path, sizeof path, to, CHECKPOINT_MANIFEST);
    manifest_seal(manifest);
    ok = ok && json_write_file(path, manifest) == ZD_OK;
    json_decref(manifest);
    return ok;
}
