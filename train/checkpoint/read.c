/* read.c - an open checkpoint: which file holds which run of
 * elements of which tensor, read back for any cut. */
#include "base/file/fs.h"
#include "base/log.h"
#include "base/must.h"
#include "train/checkpoint/holds.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/names.h"
#include "train/checkpoint/pieces.h"
#include "train/checkpoint/shards.h"

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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
    struct shards *shards;
    struct piece *pieces; /* sorted by kind, name, begin */
    int piece_count;
};

/* Elements of the tensor that one value of this kind stands for. */
static size_t elements_per_value(enum array_kind kind)
{
    return kind == ARRAY_M_SCALE || kind == ARRAY_V_SCALE ? OPTIM_QBLOCK : 1;
}

/* Of Adam-mini's blocks the manifest does not say how many there are. */
static const size_t COUNT_UNKNOWN = SIZE_MAX;

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

/* The piece's tensor is known and can be read. */
static enum zd_status wake_piece(
        const struct checkpoint *checkpoint, struct piece *piece)
{
    char name[ARRAY_NAME];
    struct shard *shard = &checkpoint->shards->list[piece->shard];
    ZD_TRY(shards_wake(checkpoint->shards, shard));
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

/* --- which shard has what ------------------------------------------------- */

struct list { /* of pieces, as it grows */
    struct piece *pieces;
    size_t count, capacity;
};

static void add_piece(
        struct list *list, const struct piece *piece, const char *name)
{
    list->pieces =
            zd_grow(list->pieces, &list->capacity, list->count + 1,
                    sizeof *list->pieces);
    list->pieces[list->count] = *piece;
    list->pieces[list->count++].name = zd_must(strdup(name));
}

/* How many values stand for so many elements. */
static size_t values_of(enum array_kind kind, size_t count)
{
    size_t per = elements_per_value(kind);
    return kind == ARRAY_V_BLOCKS ? COUNT_UNKNOWN : (count + per - 1) / per;
}

static enum zd_status fail_held(const struct shard *shard, const char *text)
{
    return ZD_FAIL(
            ZD_ERR_DATA, "E0802", "the manifest says of %s: %.200s",
            shard->path, text ? text : "(no text)");
}

static enum zd_status take_held(
        const struct shard *shard, int index, const char *text,
        struct list *list)
{
    struct held held;
    if (!held_parse(text, &held))
        return fail_held(shard, text);
    for (int i = 0; i < held.array_count; i++) {
        const struct held_array *array = &held.arrays[i];
        struct piece piece = {
                .kind = array->kind,
                .begin = held.begin,
                .count = values_of(array->kind, held.count),
                .shard = index};
        if (piece.begin % elements_per_value(piece.kind) != 0)
            return fail_held(shard, text);
        snprintf(piece.type, sizeof piece.type, "%s", array->type);
        add_piece(list, &piece, held.name);
    }
    return ZD_OK;
}

static enum zd_status list_pieces(
        struct checkpoint *checkpoint, const json_t *entry, int index,
        struct list *list)
{
    size_t i;
    json_t *text;
    struct shards *shards = checkpoint->shards;
    const json_t *holds = json_object_get(entry, "holds");
    json_array_foreach(holds, i, text) ZD_TRY(take_held(
            &shards->list[index], index, json_string_value(text), list));
    return ZD_OK;
}

static enum zd_status list_shards(struct checkpoint *checkpoint)
{
    size_t i;
    json_t *entry;
    struct list list = {.count = 0};
    enum zd_status status = ZD_OK;
    const json_t *files = json_object_get(checkpoint->manifest, "files");
    struct shards *shards;

    checkpoint->shards = shards = shards_create(json_array_size(files));
    json_array_foreach(files, i, entry)
    {
        char path[PATH_MAX];
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (strncmp(name, "shard-", 6) != 0 || status != ZD_OK)
            continue;
        fs_join(path, sizeof path, checkpoint->path, name);
        json_int_t bytes = json_integer_value(json_object_get(entry, "bytes"));
        int index = shards_add(shards, path, (uint64_t)bytes);
        status = list_pieces(checkpoint, entry, index, &list);
    }
    if (status == ZD_OK && list.count > 1)
        qsort(list.pieces, list.count, sizeof *list.pieces, compare_pieces);
    checkpoint->pieces = list.pieces;
    checkpoint->piece_count = (int)list.count;
    return status;
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
    status = manifest_read(path, &checkpoint->manifest);
    if (status == ZD_OK && check != CHECKPOINT_TRUSTED)
        status = manifest_check_files(
                path, checkpoint->manifest, check == CHECKPOINT_DIGESTS);
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
    for (int i = 0; i < checkpoint->piece_count; i++)
        free(checkpoint->pieces[i].name);
    shards_close(checkpoint->shards);
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
    struct piece *piece = &checkpoint->pieces[low];
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
    const struct st_file *file = checkpoint->shards->list[piece->shard].file;
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
    const struct piece *pieces_end = checkpoint->pieces + checkpoint->piece_count;

    for (; piece && piece < pieces_end && at < end; piece++) {
        if (piece->kind != kind || strcmp(piece->name, name) != 0)
            break;
        if (piece->begin > at)
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
    const struct piece *piece = first_piece(checkpoint, ARRAY_M + lane, name);
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
