/* read.c - an open checkpoint: which file holds which run of
 * elements of which tensor, read back for any cut. */
#include "base/file/fs.h"
#include "base/log.h"
#include "base/must.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/names.h"
#include "train/checkpoint/pieces.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* One array of one file: elements [begin, begin+count) of a tensor. */
struct piece {
    enum array_kind kind;
    char *name; /* tensor; owned */
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

/* Elements of the tensor that one value of this kind stands for. */
static size_t elements_per_value(enum array_kind kind)
{
    return kind == ARRAY_M_SCALE || kind == ARRAY_V_SCALE ? OPTIM_QBLOCK : 1;
}

static int compare_pieces(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    int order = (int)x->kind - (int)y->kind;
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
    piece->kind = slash && at > slash ? array_kind_of(
                                                tensor->name,
                                                (size_t)(slash - tensor->name))
                                      : ARRAY_KINDS;
    if (piece->kind != ARRAY_KINDS)
        piece->begin = strtoull(at + 1, &end, 10);
    if (piece->kind == ARRAY_KINDS || *end || at[1] == '\0' ||
        tensor->dims != 1 ||
        piece->begin % elements_per_value(piece->kind) != 0)
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
    bool is_there;
    ZD_TRY(fs_look(path, &is_there));
    if (!is_there)
        return ZD_FAIL(ZD_ERR_NO_INPUT, "E0801", "no checkpoint at %s", path);
    if (!fs_is_dir(path))
        return ZD_FAIL(
                ZD_ERR_DATA, "E0801", "%s is no checkpoint: not a folder",
                path);
    checkpoint = calloc(1, sizeof *checkpoint);
    if (!checkpoint)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    checkpoint->path = zd_must(strdup(path));
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
        const struct checkpoint *checkpoint, enum array_kind kind,
        const char *name)
{
    int low = 0, high = checkpoint->piece_count;
    while (low < high) {
        int middle = (low + high) / 2;
        const struct piece *piece = &checkpoint->pieces[middle];
        int order = (int)piece->kind - (int)kind;
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
    bool found = piece->kind == kind && strcmp(piece->name, name) == 0;
    return found ? piece : NULL;
}

static enum zd_status fail_type(
        const struct checkpoint *checkpoint, enum array_kind kind,
        const char *name)
{
    return ZD_FAIL(
            ZD_ERR_DATA, "E0808", "%s: %s of %s has an unexpected type",
            checkpoint->path, array_kind_name(kind), name);
}

/* Values of a piece from its element `skip` on, for `take` elements: fp32
 * whatever they are, or with `type` the bytes of values that must be it. */
static enum zd_status read_piece(
        const struct checkpoint *checkpoint, const struct piece *piece,
        size_t skip, size_t take, const char *type, char *out)
{
    size_t per = elements_per_value(piece->kind);
    const struct st_tensor *tensor = piece->tensor;
    size_t first = skip / per, count = (take + per - 1) / per;
    if (!type)
        return st_read_float(piece->file, tensor, first, count, (float *)out);
    if (strcmp(tensor->dtype, type) != 0)
        return fail_type(checkpoint, piece->kind, piece->name);
    size_t bytes = tensor->count ? tensor->bytes / tensor->count : 0;
    return st_read_bytes(
            piece->file, tensor, first * bytes, count * bytes, out);
}

/* Elements [begin, begin+count) of (kind, name), wherever they lie; `out` has
 * value_bytes for each value. */
static enum zd_status read_run(
        const struct checkpoint *checkpoint, enum array_kind kind,
        const char *name, size_t begin, size_t count, const char *type,
        size_t value_bytes, void *out)
{
    size_t at = begin, end = begin + count, per = elements_per_value(kind);
    const struct piece *piece = first_piece(checkpoint, kind, name);
    const struct piece *behind = checkpoint->pieces + checkpoint->piece_count;

    for (; piece && piece < behind && at < end; piece++) {
        if (piece->kind != kind || strcmp(piece->name, name) != 0)
            break;
        if (piece->begin > at)
            break; /* a gap */
        if (piece->begin + piece->count * per <= at)
            continue;
        size_t skip = at - piece->begin;
        size_t take = piece->count * per - skip;
        if (take > end - at)
            take = end - at;
        ZD_TRY(read_piece(
                checkpoint, piece, skip, take, type,
                (char *)out + (at - begin) / per * value_bytes));
        at += take;
    }
    if (at < end)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0809", "%s: %s of %s lacks elements from %zu",
                checkpoint->path, array_kind_name(kind), name, at);
    return ZD_OK;
}

enum zd_status pieces_read_weights(
        const struct checkpoint *checkpoint, const char *name, size_t begin,
        size_t count, float *out)
{
    enum array_kind kind = first_piece(checkpoint, ARRAY_MASTER, name)
                                   ? ARRAY_MASTER
                                   : ARRAY_FROZEN;
    return read_run(
            checkpoint, kind, name, begin, count, NULL, sizeof *out, out);
}

/* --- lanes ---------------------------------------------------------------- */

enum optim_format pieces_format(
        const struct checkpoint *checkpoint, enum optim_lane lane,
        const char *name)
{
    const struct piece *piece = first_piece(checkpoint, ARRAY_M + lane, name);
    if (!piece)
        return lane == OPTIM_V && first_piece(checkpoint, ARRAY_V_BLOCKS, name)
                       ? OPTIM_BLOCKS
                       : OPTIM_NONE;
    enum optim_format format = format_of_type(piece->tensor->dtype);
    /* reading it says what is wrong */
    return format == OPTIM_NONE ? OPTIM_FP32 : format;
}

enum zd_status pieces_read_lane(
        const struct checkpoint *checkpoint, enum optim_lane lane,
        const char *name, size_t begin, size_t count, void *values,
        float *scales)
{
    enum optim_format format = pieces_format(checkpoint, lane, name);
    ZD_TRY(read_run(
            checkpoint, ARRAY_M + lane, name, begin, count, format_type(format),
            optim_lane_bytes(format, 1), values));
    if (format != OPTIM_8BIT)
        return ZD_OK;
    return read_run(
            checkpoint, ARRAY_M_SCALE + lane, name, begin, count,
            format_type(OPTIM_FP32), sizeof *scales, scales);
}

enum zd_status pieces_read_blocks(
        const struct checkpoint *checkpoint, const char *name, size_t count,
        float *out)
{
    return read_run(
            checkpoint, ARRAY_V_BLOCKS, name, 0, count, format_type(OPTIM_FP32),
            sizeof *out, out);
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
    return pieces_read_weights(
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
