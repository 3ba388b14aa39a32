/* checkpoint_read.c - an open checkpoint: which file holds which run of
 * elements of which tensor, read back for any cut. */
#include "base/fs.h"
#include "base/log.h"
#include "train/checkpoint.h"
#include "train/manifest.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* One array of one file: elements [begin, begin+count) of a tensor. */
struct piece {
    const char *kind; /* "master" | "m" | "v" | "frozen" */
    char *name;       /* tensor; owned */
    size_t begin, count;
    const struct st_file *file;
    const struct st_tensor *tensor;
};

struct checkpoint {
    char *path;
    json_t *manifest;
    struct st_file **files;
    int file_count;
    struct piece *pieces; /* sorted by kind, name, begin */
    int piece_count;
};

static const char *const kinds[] = {"frozen", "m", "master", "v"};

static int compare_pieces(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    int order = strcmp(x->kind, y->kind);
    if (!order)
        order = strcmp(x->name, y->name);
    if (!order)
        order = (x->begin > y->begin) - (x->begin < y->begin);
    return order;
}

/* "m/NAME@BEGIN" */
static enum zd_status parse_piece(
        const struct st_file *file, const struct st_tensor *tensor,
        struct piece *piece)
{
    const char *slash = strchr(tensor->name, '/');
    const char *at = strrchr(tensor->name, '@');
    char *end = NULL;

    memset(piece, 0, sizeof *piece);
    for (size_t i = 0; slash && at > slash && i < 4; i++)
        if (strlen(kinds[i]) == (size_t)(slash - tensor->name) &&
            memcmp(kinds[i], tensor->name, strlen(kinds[i])) == 0)
            piece->kind = kinds[i];
    if (piece->kind)
        piece->begin = strtoull(at + 1, &end, 10);
    if (!piece->kind || *end || at[1] == '\0' || tensor->dims != 1)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0808",
                "%s holds an array named %s that "
                "is no part of a checkpoint",
                file->path, tensor->name);
    piece->name = strndup(slash + 1, (size_t)(at - slash - 1));
    piece->count = tensor->count;
    piece->file = file;
    piece->tensor = tensor;
    return piece->name ? ZD_OK
                       : ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
}

static enum zd_status open_shards(struct checkpoint *checkpoint)
{
    size_t i;
    json_t *entry;
    const json_t *files = json_object_get(checkpoint->manifest, "files");
    size_t capacity = 0;

    checkpoint->files =
            calloc(json_array_size(files), sizeof(struct st_file *));
    if (!checkpoint->files)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    json_array_foreach(files, i, entry)
    {
        char path[PATH_MAX];
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (strncmp(name, "shard-", 6) != 0)
            continue;
        fs_join(path, sizeof path, checkpoint->path, name);
        ZD_TRY(st_open(path, &checkpoint->files[checkpoint->file_count]));
        capacity += (size_t)checkpoint->files[checkpoint->file_count++]
                            ->tensor_count;
    }
    checkpoint->pieces = calloc(capacity + 1, sizeof *checkpoint->pieces);
    if (!checkpoint->pieces)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    for (int f = 0; f < checkpoint->file_count; f++) {
        const struct st_file *file = checkpoint->files[f];
        for (int t = 0; t < file->tensor_count; t++)
            ZD_TRY(parse_piece(
                    file, &file->tensors[t],
                    &checkpoint->pieces[checkpoint->piece_count++]));
    }
    qsort(checkpoint->pieces, (size_t)checkpoint->piece_count,
          sizeof *checkpoint->pieces, compare_pieces);
    return ZD_OK;
}

enum zd_status checkpoint_open(
        const char *path, bool full, struct checkpoint **out)
{
    enum zd_status status;
    struct checkpoint *checkpoint;
    if (!fs_exists(path))
        return ZD_FAIL(ZD_ERR_NO_INPUT, "E0801", "no checkpoint at %s", path);
    if (!fs_is_dir(path))
        return ZD_FAIL(
                ZD_ERR_DATA, "E0801", "%s is no checkpoint: not a folder",
                path);
    checkpoint = calloc(1, sizeof *checkpoint);
    if (!checkpoint)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    checkpoint->path = strdup(path);
    status = manifest_read(path, &checkpoint->manifest);
    if (status == ZD_OK)
        status = manifest_check_files(path, checkpoint->manifest, full);
    if (status == ZD_OK)
        status = open_shards(checkpoint);
    if (status != ZD_OK) {
        checkpoint_close(checkpoint);
        return status;
    }
    *out = checkpoint;
    return ZD_OK;
}

void checkpoint_close(struct checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    for (int i = 0; i < checkpoint->piece_count; i++)
        free(checkpoint->pieces[i].name);
    for (int i = 0; i < checkpoint->file_count; i++)
        st_close(checkpoint->files[i]);
    free(checkpoint->pieces);
    free(checkpoint->files);
    json_decref(checkpoint->manifest);
    free(checkpoint->path);
    free(checkpoint);
}

const json_t *checkpoint_manifest(const struct checkpoint *checkpoint)
{
    return checkpoint->manifest;
}

struct train_state checkpoint_state(const struct checkpoint *checkpoint)
{
    return manifest_state(checkpoint->manifest);
}

/* The first piece of (kind, name), or NULL; the others follow it. */
static const struct piece *first_piece(
        const struct checkpoint *checkpoint, const char *kind, const char *name)
{
    int low = 0, high = checkpoint->piece_count;
    while (low < high) {
        int middle = (low + high) / 2;
        const struct piece *piece = &checkpoint->pieces[middle];
        int order = strcmp(piece->kind, kind);
        if (!order)
            order = strcmp(piece->name, name);
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == checkpoint->piece_count)
        return NULL;
    const struct piece *piece = &checkpoint->pieces[low];
    bool found =
            strcmp(piece->kind, kind) == 0 && strcmp(piece->name, name) == 0;
    return found ? piece : NULL;
}

/* Elements [begin, begin+count) of (kind, name), wherever they lie. */
static enum zd_status read_run(
        const struct checkpoint *checkpoint, const char *kind, const char *name,
        size_t begin, size_t count, float *out)
{
    size_t at = begin, end = begin + count;
    const struct piece *piece = first_piece(checkpoint, kind, name);
    const struct piece *behind = checkpoint->pieces + checkpoint->piece_count;

    for (; piece && piece < behind && at < end; piece++) {
        if (strcmp(piece->kind, kind) != 0 || strcmp(piece->name, name) != 0)
            break;
        if (piece->begin > at)
            break; /* a gap */
        if (piece->begin + piece->count <= at)
            continue;
        size_t skip = at - piece->begin;
        size_t take = piece->count - skip;
        if (take > end - at)
            take = end - at;
        ZD_TRY(st_read_float(
                piece->file, piece->tensor, skip, take, out + (at - begin)));
        at += take;
    }
    if (at < end)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0809", "%s: %s of %s lacks elements from %zu",
                checkpoint->path, kind, name, at);
    return ZD_OK;
}

static enum zd_status read_weight(
        const struct checkpoint *checkpoint, const char *name, size_t begin,
        size_t count, float *out)
{
    const char *kind =
            first_piece(checkpoint, "master", name) ? "master" : "frozen";
    return read_run(checkpoint, kind, name, begin, count, out);
}

/* Moments of a tensor that was frozen when this was saved begin at nothing. */
static enum zd_status read_moments(
        const struct checkpoint *checkpoint, const char *name,
        const struct zero_range *range)
{
    if (!first_piece(checkpoint, "m", name)) {
        memset(range->m, 0, range->count * sizeof *range->m);
        memset(range->v, 0, range->count * sizeof *range->v);
        return ZD_OK;
    }
    ZD_TRY(read_run(
            checkpoint, "m", name, range->begin, range->count, range->m));
    return read_run(
            checkpoint, "v", name, range->begin, range->count, range->v);
}

static enum zd_status load_frozen(
        const struct checkpoint *checkpoint, const char *name,
        struct zero *zero, int i, size_t begin, size_t count)
{
    float *values = malloc(count * sizeof *values);
    if (!values)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    enum zd_status status = read_weight(checkpoint, name, begin, count, values);
    if (status == ZD_OK)
        zero_range_set_frozen(zero, i, values);
    free(values);
    return status;
}

enum zd_status checkpoint_load(
        const struct checkpoint *checkpoint, const struct param_table *table,
        struct zero *zero, bool *has_moments_out)
{
    *has_moments_out =
            json_is_true(json_object_get(checkpoint->manifest, "moments"));
    for (int i = 0; i < zero_range_count(zero); i++) {
        struct zero_range range = zero_range_at(zero, i);
        const char *name = table->params[range.id].name;
        if (range.master)
            ZD_TRY(read_weight(
                    checkpoint, name, range.begin, range.count, range.master));
        else
            ZD_TRY(load_frozen(
                    checkpoint, name, zero, i, range.begin, range.count));
        if (range.m)
            ZD_TRY(read_moments(checkpoint, name, &range));
    }
    return ZD_OK;
}

/* --- as a source of weights ----------------------------------------------- */

struct source {
    const struct checkpoint *checkpoint;
    const struct param_table *table;
};

static enum zd_status source_read(
        void *ctx, int id, size_t begin, size_t count, float *out)
{
    const struct source *source = ctx;
    return read_weight(
            source->checkpoint, source->table->params[id].name, begin, count,
            out);
}

enum zd_status checkpoint_source(
        const struct checkpoint *checkpoint, const struct param_table *table,
        struct weight_source *source_out)
{
    struct source *source = malloc(sizeof *source);
    if (!source)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    *source = (struct source){checkpoint, table};
    *source_out = (struct weight_source){
            .read = source_read, .close = free, .ctx = source};
    return ZD_OK;
}
