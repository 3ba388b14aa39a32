#include "tests/support/reshard.h"

#include "base/file/fs.h"
#include "base/file/safetensors.h"
#include "base/must.h"
#include "model/files/config.h"
#include "optim/optim.h"
#include "train/checkpoint/arrays.h"
#include "train/checkpoint/manifest.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRIES_MAX = 1 << 14 };

/* All tensors, one behind the other in blocks of 256 elements. */
struct whole {
    const struct st_file *file;
    struct param_table table;
    size_t *first; /* block of each tensor, and how many there are */
};

static bool whole_open(
        const struct st_file *file, const struct model_config *config,
        struct whole *whole)
{
    *whole = (struct whole){.file = file};
    if (param_table_build(config, NULL, 0, &whole->table) != ZD_OK)
        return false;
    whole->first = calloc((size_t)whole->table.count + 1, sizeof(size_t));
    for (int id = 0; id < whole->table.count; id++)
        whole->first[id + 1] =
                whole->first[id] +
                (whole->table.params[id].count - 1) / OPTIM_QBLOCK + 1;
    return true;
}

static void whole_close(struct whole *whole)
{
    param_table_fini(&whole->table);
    free(whole->first);
}

struct shard {
    struct held held[ENTRIES_MAX];
    int count;
    struct {
        char name[ARRAY_NAME];
        const struct st_tensor *from;
        int held; /* what it is of */
        enum array_kind kind;
    } arrays[ENTRIES_MAX];
    struct st_entry entries[ENTRIES_MAX];
    int array_count;
};

/* What blocks [begin, end) have of a tensor. */
static void cut(
        const struct whole *whole, int id, size_t begin, size_t end,
        struct shard *shard)
{
    const struct param *param = &whole->table.params[id];
    const size_t *first = &whole->first[id];
    size_t from = begin > first[0] ? begin : first[0];
    size_t to = end < first[1] ? end : first[1];
    if (from >= to)
        return;
    struct held *held = &shard->held[shard->count++];
    size_t last = (to - first[0]) * OPTIM_QBLOCK;
    *held = (struct held){.begin = (from - first[0]) * OPTIM_QBLOCK};
    held->count = (last < param->count ? last : param->count) - held->begin;
    snprintf(held->name, sizeof held->name, "%s", param->name);
}

/* The arrays that the whole checkpoint has of what is held. */
static void list_arrays(const struct whole *whole, struct shard *shard)
{
    static const struct columns all;
    for (int i = 0; i < shard->count; i++)
        for (int k = 0; k < ARRAY_V_BLOCKS; k++) {
            const struct held *held = &shard->held[i];
            enum array_kind kind = (enum array_kind)k;
            char name[ARRAY_NAME];
            array_name(name, kind, held->name, &all, 0);
            const struct st_tensor *from = st_find(whole->file, name);
            if (!from)
                continue;
            int n = shard->array_count++;
            size_t per = strstr(name, "_scale/") ? OPTIM_QBLOCK : 1;
            array_name(
                    shard->arrays[n].name, kind, held->name, &all, held->begin);
            shard->arrays[n].from = from;
            shard->arrays[n].held = i;
            shard->arrays[n].kind = kind;
            shard->entries[n] = (struct st_entry){
                    .name = shard->arrays[n].name,
                    .dtype = from->dtype,
                    .dims = 1,
                    .shape = {(int64_t)((held->count - 1) / per + 1)}};
        }
}

static bool write_array(
        const struct whole *whole, const struct shard *shard, int n,
        struct st_writer *writer)
{
    const struct held *held = &shard->held[shard->arrays[n].held];
    const struct st_tensor *from = shard->arrays[n].from;
    size_t per = strstr(from->name, "_scale/") ? OPTIM_QBLOCK : 1;
    size_t wide = from->bytes / from->count;
    size_t bytes = ((held->count - 1) / per + 1) * wide;
    ZD_FREED char *data = malloc(bytes);
    return st_read_bytes(
                   whole->file, from, held->begin / per * wide, bytes, data) ==
                   ZD_OK &&
           st_writer_add(writer, n, data, bytes) == ZD_OK;
}

static bool write_shard(
        const struct whole *whole, const char *path, int number, int shards,
        json_t *manifest)
{
    static struct shard shard;
    char text[HELD_TEXT], digest[HASH_HEX] = "";
    uint64_t bytes = 0;
    json_t *holds = json_array();
    struct st_writer *writer;
    size_t blocks = whole->first[whole->table.count];
    size_t begin = blocks * (size_t)number / (size_t)shards;
    size_t end = blocks * (size_t)(number + 1) / (size_t)shards;
    shard.count = shard.array_count = 0;
    for (int id = 0; id < whole->table.count; id++)
        cut(whole, id, begin, end, &shard);
    list_arrays(whole, &shard);
    bool ok = shard.count && st_writer_create(
                                     path, shard.entries, shard.array_count,
                                     NULL, &writer) == ZD_OK;
    for (int n = 0; ok && n < shard.array_count; n++) {
        ok = write_array(whole, &shard, n, writer);
        held_add(
                &shard.held[shard.arrays[n].held], shard.arrays[n].kind,
                shard.entries[n].dtype, st_writer_digest(writer, n));
    }
    ok = ok && st_writer_finish(writer, digest, &bytes) == ZD_OK;
    for (int i = 0; i < shard.count; i++) {
        held_text(&shard.held[i], text);
        json_array_append_new(holds, json_string(text));
    }
    json_array_append_new(
            json_object_get(manifest, "files"),
            manifest_file(strrchr(path, '/') + 1, bytes, digest, holds));
    return ok;
}

static bool write_shards(
        const struct st_file *from, const struct model_config *config,
        const char *to, int shards, json_t *manifest)
{
    struct whole whole;
    bool ok = whole_open(from, config, &whole);
    for (int s = 0; ok && s < shards; s++) {
        char path[PATH_MAX], name[64];
        snprintf(
                name, sizeof name, "shard-%05d-of-%05d.safetensors", s + 1,
                shards);
        fs_join(path, sizeof path, to, name);
        ok = write_shard(&whole, path, s, shards, manifest);
    }
    whole_close(&whole);
    return ok;
}

/* The manifest of FROM without its shards, whose other files are copied. */
static bool copy_others(const char *from, const char *to, json_t *manifest)
{
    json_t *others = json_array();
    JSON_EACH(entry, json_object_get(manifest, "files")) {
        char path[PATH_MAX], *data;
        size_t bytes;
        const char *name = json_string_at(entry, "name");
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

bool reshard(const char *from, const char *to, int shards, int format)
{
    char path[PATH_MAX];
    struct st_file *file;
    struct model_config config;
    json_auto_t *manifest = NULL;
    fs_join(path, sizeof path, from, "shard-00001-of-00001.safetensors");
    if (fs_make_dirs(to) != ZD_OK || manifest_read(from, &manifest) != ZD_OK ||
        model_config_read(from, false, &config) != ZD_OK)
        return false;
    bool ok = st_open(path, &file) == ZD_OK;
    if (ok) {
        ok = copy_others(from, to, manifest) &&
             write_shards(file, &config, to, shards, manifest);
        st_close(file);
    }
    model_config_fini(&config);
    json_object_set_new(manifest, "world", json_integer(shards));
    json_object_set_new(manifest, "format", json_integer(format));
    json_object_del(manifest, "manifest_xxh3_128");
    fs_join(path, sizeof path, to, CHECKPOINT_MANIFEST);
    manifest_seal(manifest);
    ok = ok && json_write_file(path, manifest) == ZD_OK;
    return ok;
}
