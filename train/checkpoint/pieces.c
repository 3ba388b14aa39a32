/* pieces.c - finds which file of a checkpoint has which elements of a tensor,
 * and reads any range. */
#include "train/checkpoint/pieces.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "train/checkpoint/arrays.h"
#include "train/checkpoint/manifest.h"

#include <assert.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A file with arrays. Its header is read at first use. */
struct shard {
    char *path;           /* owned */
    uint64_t bytes;       /* from the manifest */
    struct st_file *file; /* NULL: header not read yet */
};

/* An entry of the manifest: a range of a tensor in one shard, and its arrays
 * there. */
struct piece {
    struct held held;
    int shard;
};

/* Opens the shard and reads its header; closes any other shard. */
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

/* Elements of the tensor per value of this kind. */
static size_t elements_per_value(enum array_kind kind)
{
    return kind == ARRAY_M_SCALE || kind == ARRAY_V_SCALE ? OPTIM_QBLOCK : 1;
}

static int compare_pieces(const void *a, const void *b)
{
    const struct held *x = &((const struct piece *)a)->held;
    const struct held *y = &((const struct piece *)b)->held;
    int order = strcmp(x->name, y->name);
    order = order ? order : columns_compare(&x->columns, &y->columns);
    return order ? order : (x->begin > y->begin) - (x->begin < y->begin);
}

/* The array of this kind; NULL: none. */
static const struct held_array *array_of(
        const struct piece *piece, enum array_kind kind)
{
    const struct held *held = &piece->held;
    for (int i = 0; i < held->array_count; i++)
        if (held->arrays[i].kind == kind)
            return &held->arrays[i];
    return NULL;
}

/* Finds an array in its shard and opens the shard. */
static enum zd_status find_tensor(
        const struct checkpoint *checkpoint, const struct piece *piece,
        const struct held_array *array, const struct st_tensor **out)
{
    char name[ARRAY_NAME];
    const struct held *held = &piece->held;
    struct shard *shard = &checkpoint->shards[piece->shard];
    size_t per = elements_per_value(array->kind);
    ZD_TRY(wake_shard(checkpoint, shard));
    array_name(name, array->kind, held->name, &held->columns, held->begin);
    const struct st_tensor *tensor = st_find(shard->file, name);
    /* the manifest does not have the number of Adam-mini's blocks */
    if (!tensor || strcmp(tensor->dtype, array->type) != 0 ||
        (array->kind != ARRAY_V_BLOCKS &&
         tensor->count != (held->count + per - 1) / per))
        return ZD_BAD(
                "E0808", "%s does not hold %s as the manifest says",
                shard->path, name);
    *out = tensor;
    return ZD_OK;
}

/* A tensor's rows and columns from the manifest. */
static bool shape_of(
        const struct checkpoint *checkpoint, const char *name, int64_t shape[2])
{
    const json_t *tensors = json_object_get(checkpoint->manifest, "tensors");
    const json_t *sizes = json_object_get(tensors, name);
    shape[0] = json_integer_value(json_array_get(sizes, 0));
    shape[1] = json_integer_value(json_array_get(sizes, 1));
    return shape[0] > 0 && shape[1] > 0 && shape[1] <= INT64_MAX / shape[0];
}

static bool has_codes(const struct held *held)
{
    for (int i = 0; i < held->array_count; i++)
        if (elements_per_value(held->arrays[i].kind) > 1 ||
            strcmp(held->arrays[i].type, format_type(OPTIM_8BIT)) == 0)
            return true;
    return false;
}

/* Are the columns within the tensor, and the elements within their matrix? Each
 * qblock must be one of the tensor's. */
static bool is_sound(
        const struct checkpoint *checkpoint, const struct held *held)
{
    int64_t shape[2];
    const struct columns *columns = &held->columns;
    bool codes = has_codes(held);
    if (held->begin % OPTIM_QBLOCK != 0 && (columns->count || codes))
        return false;
    if (!columns->count)
        return true;
    if (!shape_of(checkpoint, held->name, shape) ||
        columns->ranges[columns->count - 1].end > shape[1])
        return false;
    struct param matrix = columns_matrix(columns, shape);
    for (int i = 0; codes && i < columns->count; i++)
        if (columns->ranges[i].begin % OPTIM_QBLOCK != 0 ||
            columns->ranges[i].end % OPTIM_QBLOCK != 0)
            return false;
    return (!codes || shape[1] % OPTIM_QBLOCK == 0) &&
           held->begin + held->count <=
                   (size_t)matrix.shape[0] * (size_t)matrix.shape[1];
}

/* --- each element once ---------------------------------------------------- */

static int compare_ranges(const void *a, const void *b)
{
    const int64_t *x = a, *y = b; /* first column and end */
    return (*x > *y) - (*x < *y);
}

/* Are the column sets of a tensor's pieces either equal or disjoint? */
static bool columns_are_apart(const struct piece *pieces, size_t count)
{
    size_t used = 0;
    if (!pieces[0].held.columns.count)
        return !pieces[count - 1].held.columns.count;
    bool apart = true;
    ZD_FREED int64_t(*ranges)[2] =
            zd_array(count * SLICE_RANGES, sizeof *ranges);
    for (size_t i = 0; i < count; i++) {
        const struct columns *columns = &pieces[i].held.columns;
        if (i && columns_compare(columns, &pieces[i - 1].held.columns) == 0)
            continue;
        for (int k = 0; k < columns->count; k++, used++) {
            ranges[used][0] = columns->ranges[k].begin;
            ranges[used][1] = columns->ranges[k].end;
        }
    }
    qsort(ranges, used, sizeof *ranges, compare_ranges);
    for (size_t i = 1; i < used; i++)
        apart = apart && ranges[i - 1][1] <= ranges[i][0];
    return apart;
}

/* The number of pieces of a tensor, from `first` on. */
static size_t count_of(const struct checkpoint *checkpoint, size_t first)
{
    const struct piece *pieces = checkpoint->pieces;
    size_t end = first;
    while (end < checkpoint->piece_count &&
           strcmp(pieces[end].held.name, pieces[first].held.name) == 0)
        end++;
    return end - first;
}

static enum zd_status check_once(const struct checkpoint *checkpoint)
{
    size_t count;
    for (size_t at = 0; at < checkpoint->piece_count; at += count) {
        const struct piece *pieces = checkpoint->pieces + at;
        count = count_of(checkpoint, at);
        bool apart = columns_are_apart(pieces, count);
        for (size_t i = 1; i < count; i++) {
            const struct held *before = &pieces[i - 1].held;
            const struct held *held = &pieces[i].held;
            apart = apart &&
                    (columns_compare(&held->columns, &before->columns) != 0 ||
                     before->begin + before->count <= held->begin);
        }
        if (!apart)
            return ZD_BAD(
                    "E0802",
                    "%s/" CHECKPOINT_MANIFEST ": two ranges hold the same "
                    "elements of %s",
                    checkpoint->path, pieces->held.name);
    }
    return ZD_OK;
}

static enum zd_status add_piece(
        struct checkpoint *checkpoint, int shard, const char *text)
{
    struct piece piece = {.shard = shard};
    if (!held_parse(text, &piece.held) || !is_sound(checkpoint, &piece.held))
        return ZD_BAD(
                "E0802", "the manifest says of %s: %.200s",
                checkpoint->shards[shard].path, text ? text : "(no text)");
    ZD_GROW(checkpoint->pieces, checkpoint->piece_capacity,
            checkpoint->piece_count + 1);
    checkpoint->pieces[checkpoint->piece_count++] = piece;
    return ZD_OK;
}

static enum zd_status list_shards(struct checkpoint *checkpoint)
{
    const json_t *files = json_object_get(checkpoint->manifest, "files");
    checkpoint->shards =
            zd_array(json_array_size(files), sizeof *checkpoint->shards);
    JSON_EACH(entry, files) {
        const char *name = json_string_at(entry, "name");
        if (strncmp(name, "shard-", 6) != 0)
            continue;
        int shard = checkpoint->shard_count++;
        checkpoint->shards[shard] = (struct shard){
                .path = zd_must(strdup(fs_in(checkpoint->path, name).text)),
                .bytes = (uint64_t)json_integer_at(entry, "bytes")};
        JSON_EACH(text, json_object_get(entry, "holds"))
            ZD_TRY(add_piece(checkpoint, shard, json_string_value(text)));
    }
    if (checkpoint->piece_count > 1)
        qsort(checkpoint->pieces, checkpoint->piece_count,
              sizeof *checkpoint->pieces, compare_pieces);
    return check_once(checkpoint);
}

enum zd_status checkpoint_open(
        const char *path, enum checkpoint_check check, struct checkpoint **out)
{
    bool is_there;
    ZD_TRY(fs_look(path, &is_there));
    if (!is_there)
        return ZD_FAIL(ZD_ERR_NO_INPUT, "E0801", "no checkpoint at %s", path);
    if (!fs_is_dir(path))
        return ZD_BAD("E0801", "%s is not a checkpoint: not a folder", path);
    struct checkpoint *checkpoint = zd_array(1, sizeof *checkpoint);
    checkpoint->path = zd_must(strdup(path));
    enum zd_status status = manifest_open(path, check, &checkpoint->manifest);
    ZD_THEN(status, list_shards(checkpoint));
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

const json_t *checkpoint_base(const struct checkpoint *checkpoint)
{
    const json_t *base = json_object_get(checkpoint->manifest, "base");
    return json_is_object(base) ? base : NULL;
}

struct train_state checkpoint_state(const struct checkpoint *checkpoint)
{
    return manifest_state(checkpoint->manifest);
}

/* The first piece of a tensor that has an array of this kind, and the number of
 * pieces from it on; NULL: none. */
static const struct piece *first_piece(
        const struct checkpoint *checkpoint, enum array_kind kind,
        const char *name, size_t *count_out)
{
    size_t low = 0, high = checkpoint->piece_count;
    const struct piece *pieces = checkpoint->pieces;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(pieces[middle].held.name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < checkpoint->piece_count &&
           strcmp(pieces[low].held.name, name) == 0;
         low++)
        if (array_of(&pieces[low], kind)) {
            *count_out = count_of(checkpoint, low);
            return &pieces[low];
        }
    *count_out = 0;
    return NULL;
}

/* --- reading -------------------------------------------------------------- */

/* A range to read, from all pieces that overlap it. */
struct reading {
    const struct checkpoint *checkpoint;
    enum array_kind kind;
    const struct param *slice;
    size_t begin, end;  /* of it */
    const char *type;   /* required type of values; NULL: convert to fp32 */
    size_t value_bytes; /* per value in `out` */
    char *out;
    size_t whole, whole_end; /* its bounds in elements of the tensor */
    size_t wanted, found;    /* elements */
    /* the current piece */
    const struct piece *piece;
    const struct st_tensor *tensor; /* NULL: not found yet */
    struct param matrix;            /* the piece's columns */
};

static void measure(struct reading *r)
{
    struct slice_run run = {.begin = r->begin};
    while (param_slice_next(r->slice, r->end, &run)) {
        if (run.is_padding)
            continue;
        r->whole = r->wanted ? r->whole : run.whole;
        r->whole_end = run.whole + run.count;
        r->wanted += run.count;
    }
}

static enum zd_status read_values(
        const struct reading *r, size_t first, size_t count, void *out)
{
    const struct st_tensor *tensor = r->tensor;
    const struct checkpoint *checkpoint = r->checkpoint;
    const struct st_file *file = checkpoint->shards[r->piece->shard].file;
    if (!r->type)
        return st_read_float(file, tensor, first, count, out);
    if (strcmp(tensor->dtype, r->type) != 0)
        return ZD_BAD(
                "E0808", "%s: %s of %s has an unexpected type",
                checkpoint->path, array_kind_name(r->kind),
                r->piece->held.name);
    return st_read_bytes(
            file, tensor, first * r->value_bytes, count * r->value_bytes, out);
}

/* Reads the intersection of piece and run: elements [begin, end) of the piece's
 * matrix. */
static enum zd_status take_run(
        struct reading *r, const struct slice_run *run, size_t begin,
        size_t end)
{
    size_t per = elements_per_value(r->kind);
    struct slice_run part = {.begin = begin};
    if (!r->tensor)
        ZD_TRY(find_tensor(
                r->checkpoint, r->piece, array_of(r->piece, r->kind),
                &r->tensor));
    while (param_slice_next(&r->matrix, end, &part)) {
        size_t at = run->begin - r->begin + (part.whole - run->whole);
        assert(at % per == 0 && part.begin % per == 0);
        ZD_TRY(read_values(
                r, (part.begin - r->piece->held.begin) / per,
                (part.count + per - 1) / per,
                r->out + at / per * r->value_bytes));
        r->found += part.count;
    }
    return ZD_OK;
}

static enum zd_status take_piece(struct reading *r, const struct piece *piece)
{
    int64_t shape[2] = {1, 1};
    const struct held *held = &piece->held;
    if (held->columns.count)
        shape_of(r->checkpoint, held->name, shape);
    r->piece = piece;
    r->tensor = NULL;
    r->matrix = columns_matrix(&held->columns, shape);
    size_t last = columns_before(&r->matrix, r->whole_end);
    size_t end = held->begin + held->count;
    end = end < last ? end : last;
    struct slice_run run = {.begin = r->begin};
    while (held->begin < end && param_slice_next(r->slice, r->end, &run)) {
        if (run.is_padding)
            continue;
        size_t from = columns_before(&r->matrix, run.whole);
        size_t to = columns_before(&r->matrix, run.whole + run.count);
        if (from >= end)
            break;
        from = from > held->begin ? from : held->begin;
        to = to < end ? to : end;
        if (from < to)
            ZD_TRY(take_run(r, &run, from, to));
    }
    return ZD_OK;
}

/* Reads a whole range piece by piece, because only one shard is open at a time.
 */
static enum zd_status read_range(
        const struct checkpoint *checkpoint, enum array_kind kind,
        const struct pieces_range *range, const char *type, size_t value_bytes,
        void *out)
{
    static const struct param whole = {.shape = {1, 1}};
    struct reading r = {
            .checkpoint = checkpoint,
            .kind = kind,
            .slice = range->slice ? range->slice : &whole,
            .begin = range->begin,
            .end = range->begin + range->count,
            .type = type,
            .value_bytes = value_bytes,
            .out = out};
    size_t count;
    const struct piece *pieces =
            first_piece(checkpoint, kind, range->name, &count);
    measure(&r);
    for (size_t i = 0; i < count && r.found < r.wanted; i++)
        if (array_of(&pieces[i], kind))
            ZD_TRY(take_piece(&r, &pieces[i]));
    if (r.found == r.wanted)
        return ZD_OK;
    return ZD_BAD(
            "E0809", "%s: %s of %s lacks %zu of the elements from %zu to %zu",
            checkpoint->path, array_kind_name(kind), range->name,
            r.wanted - r.found, r.whole, r.whole_end);
}

bool pieces_trained(const struct checkpoint *checkpoint, const char *name)
{
    size_t count;
    return first_piece(checkpoint, ARRAY_MASTER, name, &count) != NULL;
}

enum zd_status pieces_read_weights(
        const struct checkpoint *checkpoint, const struct pieces_range *range,
        float *out)
{
    return read_range(checkpoint, ARRAY_MASTER, range, NULL, sizeof *out, out);
}

/* --- lanes ---------------------------------------------------------------- */

enum optim_format pieces_format(
        const struct checkpoint *checkpoint, enum optim_lane lane,
        const char *name)
{
    size_t count;
    enum array_kind kind = array_of_lane(lane);
    const struct piece *piece = first_piece(checkpoint, kind, name, &count);
    if (piece) {
        enum optim_format format = format_of_type(array_of(piece, kind)->type);
        /* reading reports the problem */
        return format == OPTIM_NONE ? OPTIM_FP32 : format;
    }
    bool has_blocks = lane == OPTIM_V &&
                      first_piece(checkpoint, ARRAY_V_BLOCKS, name, &count);
    return has_blocks ? OPTIM_BLOCKS : OPTIM_NONE;
}

enum zd_status pieces_read_lane(
        const struct checkpoint *checkpoint, enum optim_lane lane,
        const struct pieces_range *range, void *values, float *scales)
{
    enum optim_format format = pieces_format(checkpoint, lane, range->name);
    ZD_TRY(read_range(
            checkpoint, array_of_lane(lane), range, format_type(format),
            optim_lane_bytes(format, 1), values));
    if (format != OPTIM_8BIT)
        return ZD_OK;
    return read_range(
            checkpoint, array_scale_of_lane(lane), range,
            format_type(OPTIM_FP32), sizeof *scales, scales);
}

enum zd_status pieces_read_blocks(
        const struct checkpoint *checkpoint, const char *name, size_t count,
        float *out)
{
    size_t pieces;
    struct reading r = {
            .checkpoint = checkpoint,
            .kind = ARRAY_V_BLOCKS,
            .type = format_type(OPTIM_FP32),
            .value_bytes = sizeof *out,
            .piece = first_piece(checkpoint, ARRAY_V_BLOCKS, name, &pieces)};
    if (r.piece && r.piece->held.begin == 0) {
        ZD_TRY(find_tensor(
                checkpoint, r.piece, array_of(r.piece, ARRAY_V_BLOCKS),
                &r.tensor));
        if (r.tensor->count == count)
            return read_values(&r, 0, count, out);
    }
    return ZD_BAD(
            "E0809", "%s: %s of %s has not all %zu blocks", checkpoint->path,
            array_kind_name(ARRAY_V_BLOCKS), name, count);
}
