/* pieces.c - which file of a checkpoint has which elements of which tensor, and
 * those read back for any cut. */
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

/* A file with arrays. Its header is read when it is first wanted. */
struct shard {
    char *path;           /* owned */
    uint64_t bytes;       /* as the manifest says */
    struct st_file *file; /* NULL: not read yet */
};

/* One array of one shard: elements [begin, begin+count) of a tensor, or of some
 * of its columns. */
struct piece {
    enum array_kind kind;
    char *name; /* tensor; owned */
    struct columns columns;
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
    struct piece *pieces; /* sorted by kind, name, columns, begin */
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

/* The order of a piece and those of (kind, name); 0: it is one of them. */
static int compare(
        const struct piece *piece, enum array_kind kind, const char *name)
{
    int order = (int)piece->kind - (int)kind;
    return order ? order : strcmp(piece->name, name);
}

static int compare_pieces(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    int order = compare(x, y->kind, y->name);
    order = order ? order : columns_compare(&x->columns, &y->columns);
    return order ? order : (x->begin > y->begin) - (x->begin < y->begin);
}

/* The piece's tensor is known and can be read. */
static enum zd_status wake(
        const struct checkpoint *checkpoint, struct piece *piece)
{
    char name[ARRAY_NAME];
    struct shard *shard = &checkpoint->shards[piece->shard];
    ZD_TRY(wake_shard(checkpoint, shard));
    if (piece->tensor)
        return ZD_OK;
    array_name(name, piece->kind, piece->name, &piece->columns, piece->begin);
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

/* Rows and columns of a tensor, as the manifest says. */
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

/* Do the columns lie in the tensor, and the elements in their matrix? Each
 * block that shares a scale must be one of the tensor. */
static bool columns_are_sound(
        const struct checkpoint *checkpoint, const struct held *held)
{
    int64_t shape[2];
    const struct columns *columns = &held->columns;
    if (!columns->count)
        return true;
    if (!shape_of(checkpoint, held->name, shape) ||
        columns->ranges[columns->count - 1].end > shape[1] ||
        held->begin % OPTIM_QBLOCK != 0)
        return false;
    struct param matrix = columns_matrix(columns, shape);
    bool codes = has_codes(held);
    for (int i = 0; codes && i < columns->count; i++)
        if (columns->ranges[i].begin % OPTIM_QBLOCK != 0 ||
            columns->ranges[i].end % OPTIM_QBLOCK != 0)
            return false;
    return (!codes || shape[1] % OPTIM_QBLOCK == 0) &&
           held->begin + held->count <=
                   (size_t)matrix.shape[0] * (size_t)matrix.shape[1];
}

static void add_piece(
        struct checkpoint *checkpoint, const struct held *held,
        const struct held_array *array, int shard)
{
    size_t per = elements_per_value(array->kind);
    checkpoint->pieces =
            zd_grow(checkpoint->pieces, &checkpoint->piece_capacity,
                    checkpoint->piece_count + 1, sizeof *checkpoint->pieces);
    struct piece *piece = &checkpoint->pieces[checkpoint->piece_count++];
    *piece = (struct piece){
            .kind = array->kind,
            .name = zd_must(strdup(held->name)),
            .columns = held->columns,
            .begin = held->begin,
            .count = (held->count + per - 1) / per,
            .shard = shard};
    strcpy(piece->type, array->type);
    if (array->kind == ARRAY_V_BLOCKS) {
        piece->columns.count = 0;
        piece->count = COUNT_UNKNOWN;
    }
}

/* The arrays of an entry of the manifest (arrays.h). */
static enum zd_status add_pieces(
        struct checkpoint *checkpoint, int shard, const char *text)
{
    struct held held;
    if (!held_parse(text, &held) || !columns_are_sound(checkpoint, &held))
        return fail_held(&checkpoint->shards[shard], text);
    for (int i = 0; i < held.array_count; i++) {
        if (held.begin % elements_per_value(held.arrays[i].kind) != 0)
            return fail_held(&checkpoint->shards[shard], text);
        add_piece(checkpoint, &held, &held.arrays[i], shard);
    }
    return ZD_OK;
}

/* --- each element once ---------------------------------------------------- */

static enum zd_status fail_twice(
        const struct checkpoint *checkpoint, const struct piece *piece)
{
    return ZD_FAIL(
            ZD_ERR_DATA, "E0802",
            "%s/" CHECKPOINT_MANIFEST ": two arrays hold the same elements of "
            "%s of %s",
            checkpoint->path, array_kind_name(piece->kind), piece->name);
}

static int compare_ranges(const void *a, const void *b)
{
    const int64_t *x = a, *y = b; /* the first column, and the end */
    return (*x > *y) - (*x < *y);
}

/* Of the pieces of a tensor: do those of other columns have other elements? */
static bool columns_are_apart(const struct piece *pieces, size_t count)
{
    size_t used = 0;
    if (!pieces[0].columns.count)
        return !pieces[count - 1].columns.count;
    bool apart = true;
    int64_t(*ranges)[2] = zd_array(count * SLICE_RANGES, sizeof *ranges);
    for (size_t i = 0; i < count; i++) {
        const struct columns *columns = &pieces[i].columns;
        if (i && columns_compare(columns, &pieces[i - 1].columns) == 0)
            continue;
        for (int k = 0; k < columns->count; k++, used++) {
            ranges[used][0] = columns->ranges[k].begin;
            ranges[used][1] = columns->ranges[k].end;
        }
    }
    qsort(ranges, used, sizeof *ranges, compare_ranges);
    for (size_t i = 1; i < used; i++)
        apart = apart && ranges[i - 1][1] <= ranges[i][0];
    free(ranges);
    return apart;
}

static enum zd_status check_once(const struct checkpoint *checkpoint)
{
    const struct piece *pieces = checkpoint->pieces;
    size_t count = checkpoint->piece_count;
    for (size_t first = 0, end; first < count; first = end) {
        size_t per = elements_per_value(pieces[first].kind);
        for (end = first + 1;
             end < count &&
             !compare(&pieces[end], pieces[first].kind, pieces[first].name);
             end++) {
            const struct piece *before = &pieces[end - 1];
            if (columns_compare(&pieces[end].columns, &before->columns) == 0 &&
                (before->count == COUNT_UNKNOWN ||
                 before->count > (pieces[end].begin - before->begin) / per))
                return fail_twice(checkpoint, before);
        }
        if (!columns_are_apart(&pieces[first], end - first))
            return fail_twice(checkpoint, &pieces[first]);
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
    return check_once(checkpoint);
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

const json_t *checkpoint_base(const struct checkpoint *checkpoint)
{
    const json_t *base = json_object_get(checkpoint->manifest, "base");
    return json_is_object(base) ? base : NULL;
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
        if (compare(&checkpoint->pieces[middle], kind, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < checkpoint->piece_count &&
                 compare(&checkpoint->pieces[low], kind, name) == 0;
    return found ? &checkpoint->pieces[low] : NULL;
}

/* --- reading -------------------------------------------------------------- */

static enum zd_status fail_type(
        const struct checkpoint *checkpoint, enum array_kind kind,
        const char *name)
{
    return ZD_FAIL(
            ZD_ERR_DATA, "E0808", "%s: %s of %s has an unexpected type",
            checkpoint->path, array_kind_name(kind), name);
}

/* Values first .. first + count - 1 of a piece: fp32 whatever they are, or with
 * `type` the bytes of values that must be it. */
static enum zd_status read_values(
        const struct checkpoint *checkpoint, const struct piece *piece,
        size_t first, size_t count, const char *type, void *out)
{
    const struct st_tensor *tensor = piece->tensor;
    const struct st_file *file = checkpoint->shards[piece->shard].file;
    if (!type)
        return st_read_float(file, tensor, first, count, out);
    if (strcmp(tensor->dtype, type) != 0)
        return fail_type(checkpoint, piece->kind, piece->name);
    size_t bytes = tensor->count ? tensor->bytes / tensor->count : 0;
    return st_read_bytes(file, tensor, first * bytes, count * bytes, out);
}

/* What is read, of all pieces that have some of it. */
struct reading {
    const struct checkpoint *checkpoint;
    enum array_kind kind;
    const struct param *slice;
    size_t begin, end; /* of it */
    const char *type;
    size_t value_bytes; /* of each value in `out` */
    char *out;
    size_t whole, whole_end; /* elements of the tensor between which it lies */
    size_t wanted, found;    /* elements */
    /* the piece at hand */
    struct piece *piece;
    struct param matrix; /* its columns */
    size_t last;         /* element of it before which the last wanted one is */
    /* values of a piece that many short runs are taken from */
    char *window; /* NULL: none yet; owned */
    const struct piece *window_of;
    size_t window_first, window_end;
};

/* Bytes. Runs of this length or more are read by themselves, so that no other
 * bytes are. Shorter ones, of columns, are copied out of one read of the whole
 * stretch: that takes less time than a call for each. */
enum { LONG_RUN = 512, WINDOW = 1 << 18 };

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

/* Values of the piece, from its value `first` on, into the place of element
 * `at` of what is wanted. */
static enum zd_status take_values(
        struct reading *r, size_t first, size_t count, size_t at)
{
    size_t bytes = r->value_bytes, most = WINDOW / bytes;
    size_t per = elements_per_value(r->kind);
    size_t end = (r->last - r->piece->begin + per - 1) / per;
    char *out = r->out + at / per * bytes;
    if (count * bytes >= LONG_RUN || first + count >= end)
        return read_values(r->checkpoint, r->piece, first, count, r->type, out);
    r->window = r->window ? r->window : zd_must(malloc(WINDOW));
    if (r->window_of != r->piece || first < r->window_first ||
        first + count > r->window_end) {
        r->window_of = r->piece;
        r->window_first = first;
        r->window_end = end - first < most ? end : first + most;
        ZD_TRY(read_values(
                r->checkpoint, r->piece, first, r->window_end - first, r->type,
                r->window));
    }
    memcpy(out, r->window + (first - r->window_first) * bytes, count * bytes);
    return ZD_OK;
}

/* What piece and run have in common: elements [begin, end) of the piece's
 * matrix. */
static enum zd_status take_run(
        struct reading *r, const struct slice_run *run, size_t begin,
        size_t end)
{
    size_t per = elements_per_value(r->kind);
    struct slice_run part = {.begin = begin};
    ZD_TRY(wake(r->checkpoint, r->piece));
    while (param_slice_next(&r->matrix, end, &part)) {
        size_t at = run->begin - r->begin + (part.whole - run->whole);
        assert(at % per == 0 && part.begin % per == 0);
        ZD_TRY(take_values(
                r, (part.begin - r->piece->begin) / per,
                (part.count + per - 1) / per, at));
        r->found += part.count;
    }
    return ZD_OK;
}

static enum zd_status take_piece(struct reading *r, struct piece *piece)
{
    int64_t shape[2] = {1, 1};
    size_t end = piece->begin + piece->count * elements_per_value(r->kind);
    if (piece->columns.count)
        shape_of(r->checkpoint, piece->name, shape);
    r->piece = piece;
    r->matrix = columns_matrix(&piece->columns, shape);
    r->last = columns_before(&r->matrix, r->whole_end);
    r->last = r->last < end ? r->last : end;
    if (piece->begin >= r->last)
        return ZD_OK;
    struct slice_run run = {.begin = r->begin};
    while (param_slice_next(r->slice, r->end, &run)) {
        if (run.is_padding)
            continue;
        size_t from = columns_before(&r->matrix, run.whole);
        size_t to = columns_before(&r->matrix, run.whole + run.count);
        if (from >= r->last)
            break;
        from = from > piece->begin ? from : piece->begin;
        to = to < r->last ? to : r->last;
        if (from < to)
            ZD_TRY(take_run(r, &run, from, to));
    }
    return ZD_OK;
}

/* All of a range, wherever it lies: piece by piece, because one shard is open
 * at a time. */
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
    struct piece *piece = first_piece(checkpoint, kind, range->name);
    const struct piece *end = checkpoint->pieces + checkpoint->piece_count;
    enum zd_status status = ZD_OK;
    measure(&r);
    for (; status == ZD_OK && r.found < r.wanted && piece && piece < end &&
           compare(piece, kind, range->name) == 0;
         piece++)
        status = take_piece(&r, piece);
    free(r.window);
    ZD_TRY(status);
    if (r.found == r.wanted)
        return ZD_OK;
    return ZD_FAIL(
            ZD_ERR_DATA, "E0809",
            "%s: %s of %s lacks %zu of the elements from %zu to %zu",
            checkpoint->path, array_kind_name(kind), range->name,
            r.wanted - r.found, r.whole, r.whole_end);
}

bool pieces_trained(const struct checkpoint *checkpoint, const char *name)
{
    return first_piece(checkpoint, ARRAY_MASTER, name) != NULL;
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
    struct piece *piece = first_piece(checkpoint, ARRAY_V_BLOCKS, name);
    if (piece && piece->begin == 0) {
        ZD_TRY(wake(checkpoint, piece));
        if (piece->count == count)
            return read_values(
                    checkpoint, piece, 0, count, format_type(OPTIM_FP32), out);
    }
    return ZD_FAIL(
            ZD_ERR_DATA, "E0809", "%s: %s of %s has not all %zu blocks",
            checkpoint->path, array_kind_name(ARRAY_V_BLOCKS), name, count);
}
