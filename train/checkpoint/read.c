/* read.c - an open checkpoint: which file holds which run of
 * elements of which tensor, read back for any cut. */
#include "base/file/fs.h"
#include "base/log.h"
#include "base/must.h"
#include "train/checkpoint/arrays.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/pieces.h"

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* --- files ---------------------------------------------------------------- */

/* A file with arrays. Its header is read when it is first wanted. */
struct shard {
    char *path;           /* owned */
    uint64_t bytes;       /* as the manifest says */
    struct st_file *file; /* NULL: not read yet */
};

/* One array of one shard: elements [begin, begin+count) of a tensor. */
struct piece {
    enum array_kind kind;
    char *name; /* tensor; owned */
    size_t begin, count;
    char type[12]; /* as safetensors names it */
    int shard;
    const struct st_tensor *tensor; /* NULL: its shard was not read yet */
};

struct checkpoint {
    char *path;
    json_t *manifest;
    struct shard *shards;
    int shard_count;
    struct piece *pieces; /* sorted by kind, name, begin */
    size_t piece_count, piece_capacity;
};

/* The shard can be read from, and its header is known; it is the only one that
 * is open. */
static enum zd_status wake_shard(
        const struct checkpoint *checkpoint, struct shard *shard)
{
    if (shard->file && shard->file->fd >= 0)
        return ZD_OK;
    for (int i = 0; i < checkpoint->shard_count; i++)
        if (checkpoint->shards[i].file)
            st_rest(checkpoint->shards[i].file);
    ZD_TRY(shard->file ? st_wake(shard->file)
                       : st_open(shard->path, &shard->file));
    return manifest_check_bytes(
            shard->path, shard->file->file_bytes, shard->bytes);
}

/* --- arrays --------------------------------------------------------------- */

/* Elements of the tensor that one value of this kind stands for. */
static size_t elements_per_value(enum array_kind kind)
{
    return kind == ARRAY_M_SCALE || kind == ARRAY_V_SCALE ? OPTIM_QBLOCK : 1;
}

/* Of Adam-mini's blocks the manifest does not say how many there are. */
static const size_t COUNT_UNKNOWN = SIZE_MAX;

static int compare_to(
        const struct piece *piece, enum array_kind kind, const char *name)
{
    int order = (int)piece->kind - (int)kind;
    return order ? order : strcmp(piece->name, name);
}

static int compare_pieces(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    int order = compare_to(x, y->kind, y->name);
    return order ? order : (x->begin > y->begin) - (x->begin < y->begin);
}

/* The piece's tensor is known and can be read. */
static enum zd_status wake_piece(
        const struct checkpoint *checkpoint, struct piece *piece)
{
    char name[ARRAY_NAME];
    struct shard *shard = &checkpoint->shards[piece->shard];
    ZD_TRY(wake_shard(checkpoint, shard));
    if (piece->tensor)
        return ZD_OK;
    array_name(name, piece->kind, piece->name, piece->begin);
    const struct st_tensor *tensor = st_find(shard->file, name);
    if (!tensor || strcmp(tensor->dtype, piece->type) != 0 ||
        (piece->count != COUNT_UNKNOWN && tensor->count != piece->count))
        return ZD_FAIL(
                ZD_ERR_DATA, "E0808",
                "%s does not hold %s as the manifest says", shard->path, name);
    piece->count = tensor->count;
    piece->tensor = tensor;
    return ZD_OK;
}

static enum zd_status fail_held(const struct shard *shard, const char *text)
{
    return ZD_FAIL(
            ZD_ERR_DATA, "E0802", "the manifest says of %s: %.200s",
            shard->path, text ? text : "(no text)");
}

/* The arrays of an entry of the manifest (arrays.h). */
static enum zd_status add_pieces(
        struct checkpoint *checkpoint, int shard, const char *text)
{
    struct held held;
    if (!held_parse(text, &held))
        return fail_held(&checkpoint->shards[shard], text);
    for (int i = 0; i < held.array_count; i++) {
        enum array_kind kind = held.arrays[i].kind;
        size_t per = elements_per_value(kind);
        if (held.begin % per != 0)
            return fail_held(&checkpoint->shards[shard], text);
        checkpoint->pieces = zd_grow(
                checkpoint->pieces, &checkpoint->piece_capacity,
                checkpoint->piece_count + 1, sizeof *checkpoint->pieces);
        struct piece *piece = &checkpoint->pieces[checkpoint->piece_count++];
        *piece = (struct piece){
                .kind = kind,
                .name = zd_must(strdup(held.name)),
                .begin = held.begin,
                .count = kind == ARRAY_V_BLOCKS ? COUNT_UNKNOWN
                                                : (held.count + per - 1) / per,
                .shard = shard};
        strcpy(piece->type, held.arrays[i].type);
    }
    return ZD_OK;
}

static enum zd_status list_shards(struct checkpoint *checkpoint)
{
    size_t i, k;
    json_t *entry, *text;
    const json_t *files = json_object_get(checkpoint->manifest, "files");
    checkpoint->shards =
            zd_array(json_array_size(files), sizeof *checkpoint->shards);
    json_array_foreach(files, i, entry)
    {
        char path[PATH_MAX];
        const char *name = json_string_at(entry, "name");
        if (strncmp(name, "shard-", 6) != 0)
            continue;
        fs_join(path, sizeof path, checkpoint->path, name);
        int shard = checkpoint->shard_count++;
        checkpoint->shards[shard] = (struct shard){
                .path = zd_must(strdup(path)),
                .bytes = (uint64_t)json_integer_at(entry, "bytes")};
        json_array_foreach(json_object_get(entry, "holds"), k, text)
                ZD_TRY(add_pieces(checkpoint, shard, json_string_value(text)));
    }
    if (checkpoint->piece_count > 1)
        qsort(checkpoint->pieces, checkpoint->piece_count,
              sizeof *checkpoint->pieces, compare_pieces);
    return ZD_OK;
}

enum zd_status checkpoint_open(
        const char *path, enum checkpoint_check check, struct checkpoint **out)
{
    enum zd_status status;
    struct checkpoint *checkpoint;
    bool is_there;
    ZD_TRY(fs_look(path, &is_there));
    if (!is_there)
        return ZD_FAIL(ZD_ERR_NO_INPUT, "E0801", "no checkpoint at %s", path);
    if (!fs_is_dir(path))
        return ZD_FAIL(
                ZD_ERR_DATA, "E0801", "%s is not a checkpoint: not a folder",
                path);
    checkpoint = zd_array(1, sizeof *checkpoint);
    checkpoint->path = zd_must(strdup(path));
    status = manifest_open(path, check, &checkpoint->manifest);
    if (status == ZD_OK)
        status = list_shards(checkpoint);
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
    for (size_t i = 0; i < checkpoint->piece_count; i++)
        free(checkpoint->pieces[i].name);
    for (int i = 0; i < checkpoint->shard_count; i++) {
        st_close(checkpoint->shards[i].file);
        free(checkpoint->shards[i].path);
    }
    free(checkpoint->shards);
    free(checkpoint->pieces);
    json_decref(checkpoint->manifest);
    free(checkpoint->path);
    free(checkpoint);
}

const char *checkpoint_path(const struct checkpoint *checkpoint)
{
    return checkpoint->path;
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
static struct piece *first_piece(
        const struct checkpoint *checkpoint, enum array_kind kind,
        const char *name)
{
    size_t low = 0, high = checkpoint->piece_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (compare_to(&checkpoint->pieces[middle], kind, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < checkpoint->piece_count &&
                 compare_to(&checkpoint->pieces[low], kind, name) == 0;
    return found ? &checkpoint->pieces[low] : NULL;
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
    const struct st_file *file = checkpoint->shards[piece->shard].file;
    size_t first = skip / per, count = (take + per - 1) / per;
    if (!type)
        return st_read_float(file, tensor, first, count, (float *)out);
    if (strcmp(tensor->dtype, type) != 0)
        return fail_type(checkpoint, piece->kind, piece->name);
    size_t bytes = tensor->count ? tensor->bytes / tensor->count : 0;
    return st_read_bytes(file, tensor, first * bytes, count * bytes, out);
}

/* Elements [begin, begin+count) of (kind, name), wherever they lie; `out` has
 * value_bytes for each value. */
static enum zd_status read_run(
        const struct checkpoint *checkpoint, enum array_kind kind,
        const char *name, size_t begin, size_t count, const char *type,
        size_t value_bytes, void *out)
{
    size_t at = begin, end = begin + count, per = elements_per_value(kind);
    struct piece *piece = first_piece(checkpoint, kind, name);
    const struct piece *pieces_end =
            checkpoint->pieces + checkpoint->piece_count;

    for (; piece && piece < pieces_end && at < end; piece++) {
        if (compare_to(piece, kind, name) != 0 || piece->begin > at)
            break; /* a gap */
        size_t skip = at - piece->begin;
        if (piece->count != COUNT_UNKNOWN && piece->count * per <= skip)
            continue;
        ZD_TRY(wake_piece(checkpoint, piece));
        if (piece->count * per <= skip)
            continue; /* only now its count is known */
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

bool pieces_trained(const struct checkpoint *checkpoint, const char *name)
{
    return first_piece(checkpoint, ARRAY_MASTER, name) != NULL;
}

enum zd_status pieces_read_weights(
        const struct checkpoint *checkpoint, const char *name, size_t begin,
        size_t count, float *out)
{
    return read_run(
            checkpoint, ARRAY_MASTER, name, begin, count, NULL, sizeof *out,
            out);
}

/* --- lanes ---------------------------------------------------------------- */

enum optim_format pieces_format(
        const struct checkpoint *checkpoint, enum optim_lane lane,
        const char *name)
{
    const struct piece *piece =
            first_piece(checkpoint, array_of_lane(lane), name);
    if (!piece)
        return lane == OPTIM_V && first_piece(checkpoint, ARRAY_V_BLOCKS, name)
                       ? OPTIM_BLOCKS
                       : OPTIM_NONE;
    enum optim_format format = format_of_type(piece->type);
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
            checkpoint, array_of_lane(lane), name, begin, count,
            format_type(format), optim_lane_bytes(format, 1), values));
    if (format != OPTIM_8BIT)
        return ZD_OK;
    return read_run(
            checkpoint, array_scale_of_lane(lane), name, begin, count,
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
