#include "tests/support/reshard.h"

#include "base/file/fs.h"
#include "base/file/safetensors.h"
#include "optim/optim.h"
#include "train/checkpoint/arrays.h"
#include "train/checkpoint/manifest.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const enum array_kind kinds[] = {ARRAY_MASTER, ARRAY_M, ARRAY_V};
enum { KINDS = 3, TENSORS_MAX = 1024 };

/* Blocks of 256 elements, of all tensors one behind the other. */
struct tensors {
    const struct st_file *file;
    const struct st_tensor *master[TENSORS_MAX];
    size_t first[TENSORS_MAX + 1]; /* block of each, and how many there are */
    int count;
};

static void list_tensors(const struct st_file *file, struct tensors *all)
{
    *all = (struct tensors){.file = file};
    for (int i = 0; i < file->tensor_count; i++) {
        const struct st_tensor *tensor = &file->tensors[i];
        if (strncmp(tensor->name, "master/", 7) != 0)
            continue;
        size_t blocks = (tensor->count + OPTIM_QBLOCK - 1) / OPTIM_QBLOCK;
        all->master[all->count] = tensor;
        all->first[all->count + 1] = all->first[all->count] + blocks;
        all->count++;
    }
}

/* What blocks [begin, end) have of a tensor; false: nothing. */
static bool cut(
        const struct tensors *all, int t, size_t begin, size_t end,
        struct held *out)
{
    size_t from = begin > all->first[t] ? begin : all->first[t];
    size_t to = end < all->first[t + 1] ? end : all->first[t + 1];
    if (from >= to)
        return false;
    const struct st_tensor *tensor = all->master[t];
    *out = (struct held){.begin = (from - all->first[t]) * OPTIM_QBLOCK};
    size_t last = (to - all->first[t]) * OPTIM_QBLOCK;
    out->count = (last < tensor->count ? last : tensor->count) - out->begin;
    snprintf(
            out->name, sizeof out->name, "%.*s",
            (int)(strchr(tensor->name, '@') - tensor->name - 7),
            tensor->name + 7);
    return true;
}

static bool write_array(
        const struct tensors *all, const char *name, const struct held *held,
        struct st_writer *writer, int entry)
{
    char whole[256];
    snprintf(
            whole, sizeof whole, "%.*s@0", (int)(strrchr(name, '@') - name),
            name);
    const struct st_tensor *tensor = st_find(all->file, whole);
    size_t bytes = held->count * sizeof(float);
    char *data = malloc(bytes);
    bool ok = tensor && data &&
              st_read_bytes(
                      all->file, tensor, held->begin * sizeof(float), bytes,
                      data) == ZD_OK &&
              st_writer_add(writer, entry, data, bytes) == ZD_OK;
    free(data);
    return ok;
}

static bool write_shard(
        const struct tensors *all, const char *to, int shard, int shards,
        json_t *manifest)
{
    size_t blocks = all->first[all->count];
    size_t begin = blocks * (size_t)shard / (size_t)shards;
    size_t end = blocks * (size_t)(shard + 1) / (size_t)shards;
    static struct held held[TENSORS_MAX];
    static struct st_entry entries[TENSORS_MAX * KINDS];
    static char names[TENSORS_MAX * KINDS][256];
    char path[PATH_MAX], text[HELD_TEXT];
    int ranges = 0;
    struct st_writer *writer;
    struct manifest_file file = {.holds = json_array()};

    for (int t = 0; t < all->count; t++)
        ranges += cut(all, t, begin, end, &held[ranges]);
    for (int i = 0; i < ranges * KINDS; i++) {
        snprintf(
                names[i], sizeof names[i], "%s/%s@%zu",
                array_kind_name(kinds[i % KINDS]), held[i / KINDS].name,
                held[i / KINDS].begin);
        entries[i] = (struct st_entry){
                .name = names[i],
                .dtype = "F32",
                .dims = 1,
                .shape = {(int64_t)held[i / KINDS].count}};
    }
    snprintf(
            file.name, sizeof file.name, "shard-%05d-of-%05d.safetensors",
            shard + 1, shards);
    fs_join(path, sizeof path, to, file.name);
    bool ok = ranges &&
              st_writer_create(path, entries, ranges * KINDS, NULL, &writer) ==
                      ZD_OK;
    for (int i = 0; ok && i < ranges * KINDS; i++)
        ok = write_array(all, names[i], &held[i / KINDS], writer, i);
    for (int i = 0; ok && i < ranges * KINDS; i++)
        held_add(
                &held[i / KINDS], kinds[i % KINDS], "F32",
                st_writer_digest(writer, i));
    ok = ok && st_writer_finish(writer, file.digest, &file.bytes) == ZD_OK;
    file.by_parts = true;
    for (int i = 0; i < ranges; i++) {
        held_text(&held[i], text);
        json_array_append_new(file.holds, json_string(text));
    }
    manifest_add_file(manifest, manifest_file_json(&file));
    json_decref(file.holds);
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

bool reshard(const char *from, const char *to, int shards, int format)
{
    static struct tensors all;
    char path[PATH_MAX];
    struct st_file *file;
    json_t *manifest;
    fs_join(path, sizeof path, from, "shard-00001-of-00001.safetensors");
    if (fs_make_dirs(to) != ZD_OK || manifest_read(from, &manifest) != ZD_OK)
        return false;
    bool ok = st_open(path, &file) == ZD_OK;
    if (ok) {
        list_tensors(file, &all);
        ok = copy_others(from, to, manifest);
        for (int s = 0; ok && s < shards; s++)
            ok = write_shard(&all, to, s, shards, manifest);
        st_close(file);
    }
    json_object_set_new(manifest, "world", json_integer(shards));
    json_object_set_new(manifest, "format", json_integer(format));
    json_object_del(manifest, "manifest_xxh3_128");
    fs_join(path, sizeof path, to, CHECKPOINT_MANIFEST);
    manifest_seal(manifest);
    ok = ok && json_write_file(path, manifest) == ZD_OK;
    json_decref(manifest);
    return ok;
}
