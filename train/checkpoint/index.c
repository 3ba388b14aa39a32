#include "train/checkpoint/index.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "train/checkpoint/manifest.h"

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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

size_t index_elements_per_value(enum array_kind kind)
{
    return kind == ARRAY_M_SCALE || kind == ARRAY_V_SCALE ? OPTIM_QBLOCK : 1;
}

/* Of Adam-mini's blocks the manifest does not say how many there are. */
static const size_t COUNT_UNKNOWN = SIZE_MAX;

int index_compare(
        const struct piece *piece, enum array_kind kind, const char *name)
{
    int order = (int)piece->kind - (int)kind;
    return order ? order : strcmp(piece->name, name);
}

static int compare_pieces(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    int order = index_compare(x, y->kind, y->name);
    order = order ? order : columns_compare(&x->columns, &y->columns);
    return order ? order : (x->begin > y->begin) - (x->begin < y->begin);
}

enum zd_status index_wake(
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

bool index_shape(
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
        if (index_elements_per_value(held->arrays[i].kind) > 1 ||
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
    if (!index_shape(checkpoint, held->name, shape) ||
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
    size_t per = index_elements_per_value(array->kind);
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
        if (held.begin % index_elements_per_value(held.arrays[i].kind) != 0)
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
        size_t per = index_elements_per_value(pieces[first].kind);
        for (end = first + 1;
             end < count &&
             !index_compare(
                     &pieces[end], pieces[first].kind, pieces[first].name);
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

struct train_state checkpoint_state(const struct checkpoint *checkpoint)
{
    return manifest_state(checkpoint->manifest);
}

struct piece *index_first(
        const struct checkpoint *checkpoint, enum array_kind kind,
        const char *name)
{
    size_t low = 0, high = checkpoint->piece_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (index_compare(&checkpoint->pieces[middle], kind, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < checkpoint->piece_count &&
                 index_compare(&checkpoint->pieces[low], kind, name) == 0;
    return found ? &checkpoint->pieces[low] : NULL;
}
