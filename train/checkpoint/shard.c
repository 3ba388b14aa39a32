/* shard.c - the arrays that a rank saves, and their file. */
#include "train/checkpoint/saving.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "train/checkpoint/arrays.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* --- which ---------------------------------------------------------------- */

/* One array of one range of this rank. */
struct piece {
    char name[ARRAY_NAME];
    enum array_kind kind;
    struct array_shape shape;
    struct zero_range range;
    struct columns columns;
    size_t begin; /* of them, or of the whole tensor */
    int number;   /* of the range, in ZERO_SAVES */
};

/* Where a range begins in the tensor that files know. */
static size_t begin_of(
        const struct param *param, const struct columns *columns,
        const struct zero_range *range)
{
    struct slice_run run = {.begin = range->begin};
    param_slice_next(param, range->begin + range->count, &run);
    assert(columns->count || run.count == range->count);
    return columns->count ? range->begin : run.whole;
}

/* The arrays this rank saves, those of a range together; returns how many. */
static int list_pieces(
        const struct checkpoint_writer *writer, struct piece *pieces)
{
    int count = 0;
    int kinds = writer->job->checkpoint.save_only_model ? 1 : ARRAY_KINDS;
    for (int i = 0; i < zero_range_count(writer->zero, ZERO_SAVES); i++) {
        struct zero_range range = zero_range_at(writer->zero, ZERO_SAVES, i);
        const struct param *param =
                &writer->plan->zero.request.table->params[range.id];
        struct columns columns = columns_of(&param->slice);
        size_t begin = begin_of(param, &columns, &range);
        bool is_first = range.begin == 0 &&
                        !writer->plan->zero.request.config->tp.place;
        size_t blocks = is_first ? (size_t)param->blocks.count : 0;
        for (int kind = ARRAY_MASTER; kind < kinds; kind++) {
            struct piece *piece = &pieces[count];
            *piece = (struct piece){
                    .kind = (enum array_kind)kind,
                    .range = range,
                    .columns = columns,
                    .begin = begin,
                    .number = i,
                    .shape = array_shape(
                            (enum array_kind)kind, range.weight_type,
                            &range.layout, range.count, blocks)};
            array_name(piece->name, piece->kind, param->name, &columns, begin);
            count += piece->shape.values > 0;
        }
    }
    return count;
}

/* --- writing them --------------------------------------------------------- */

/* Elements that are copied out of zero at a time; a multiple of 256. As many as
 * a chunk of offload has by default, so that one on a disk is read once. */
enum { CHUNK = 1 << 20 };
_Static_assert(CHUNK * sizeof(float) <= ST_ROOM_MAX, "an element's most");

struct output {
    const struct zero_view *view;
    const struct piece *pieces;
    int count;
    struct st_writer *file;
};

static enum zd_status write_blocks(const struct output *out, int i)
{
    const struct zero_view *view = out->view;
    size_t bytes = out->pieces[i].shape.bytes;
    float *v = zd_must(malloc(bytes));
    enum zd_status status = view->blocks(view->ctx, out->pieces[i].number, v);
    if (status == ZD_OK)
        status = st_writer_add(out->file, i, v, bytes);
    free(v);
    return status;
}

/* What stands for elements done .. done + count - 1 of its range. */
static enum zd_status write_part(
        const struct output *out, int i, size_t done, size_t count)
{
    const struct zero_view *view = out->view;
    const struct piece *piece = &out->pieces[i];
    const struct zero_range *range = &piece->range;
    bool scales = piece->kind == ARRAY_M_SCALE || piece->kind == ARRAY_V_SCALE;
    if (piece->kind == ARRAY_V_BLOCKS)
        return done ? ZD_OK : write_blocks(out, i);
    size_t bytes =
            array_shape(
                    piece->kind, range->weight_type, &range->layout, count, 0)
                    .bytes;
    void *room = st_writer_room(out->file, i, bytes);
    ZD_TRY(view->read(
            view->ctx, piece->number, array_lane(piece->kind), done, count,
            scales ? NULL : room, scales ? room : NULL));
    return st_writer_add(out->file, i, room, bytes);
}

/* The pieces first .. end - 1 are a range's: the same part of each, then the
 * next, as updates come to them. */
static enum zd_status write_range(const struct output *out, int first, int end)
{
    const struct zero_range *range = &out->pieces[first].range;
    for (size_t done = 0; done < range->count; done += CHUNK) {
        size_t left = range->count - done;
        for (int i = first; i < end; i++)
            ZD_TRY(write_part(out, i, done, left < CHUNK ? left : CHUNK));
    }
    return ZD_OK;
}

static enum zd_status write_ranges(const struct output *out)
{
    bool backwards = out->view->backwards;
    const struct piece *pieces = out->pieces;
    for (int done = 0, first, end; done < out->count; done += end - first) {
        first = backwards ? out->count - done - 1 : done;
        end = first + 1;
        while (first > 0 && pieces[first - 1].number == pieces[first].number)
            first--;
        while (end < out->count && pieces[end].number == pieces[first].number)
            end++;
        ZD_TRY(write_range(out, first, end));
    }
    return ZD_OK;
}

static enum zd_status create_file(
        const char *path, const struct piece *pieces, int count,
        struct st_writer **out)
{
    struct st_entry *entries = zd_array((size_t)count, sizeof *entries);
    for (int i = 0; i < count; i++)
        entries[i] = (struct st_entry){
                .name = pieces[i].name,
                .dtype = pieces[i].shape.type,
                .dims = 1,
                .shape = {(int64_t)pieces[i].shape.values}};
    enum zd_status status = st_writer_create(path, entries, count, NULL, out);
    free(entries);
    return status;
}

/* What the manifest says of the file. */
static json_t *holds_json(
        const struct checkpoint_writer *writer, const struct piece *pieces,
        int count, const struct st_writer *out)
{
    char text[HELD_TEXT];
    json_t *holds = json_array();
    for (int i = 0; i < count;) {
        struct zero_range range = pieces[i].range;
        struct held held = {
                .columns = pieces[i].columns,
                .begin = pieces[i].begin,
                .count = range.count};
        snprintf(
                held.name, sizeof held.name, "%s",
                writer->plan->zero.request.table->params[range.id].name);
        for (int number = pieces[i].number;
             i < count && pieces[i].number == number; i++)
            held_add(
                    &held, pieces[i].kind, pieces[i].shape.type,
                    st_writer_digest(out, i));
        held_text(&held, text);
        json_array_append_new(holds, json_string(text));
    }
    return holds;
}

static enum zd_status write_pieces(
        const struct checkpoint_writer *writer, const struct zero_view *view,
        const char *path, const struct piece *pieces, int count,
        struct manifest_file *file)
{
    struct st_writer *out = NULL;
    ZD_TRY(create_file(path, pieces, count, &out));
    enum zd_status status = write_ranges(&(struct output){
            .view = view, .pieces = pieces, .count = count, .file = out});
    if (status == ZD_OK) {
        file->by_parts = true;
        file->holds = holds_json(writer, pieces, count, out);
        status = st_writer_finish(out, file->digest, &file->bytes);
    } else {
        st_writer_abandon(out);
    }
    if (status != ZD_OK) {
        json_decref(file->holds);
        file->holds = NULL;
    }
    return status;
}

enum zd_status checkpoint_write_shard(
        const struct checkpoint_writer *writer, const struct zero_view *view,
        const char *dir, struct manifest_file *file)
{
    enum zd_status status;
    char path[PATH_MAX];
    size_t most =
            ARRAY_KINDS * (size_t)zero_range_count(writer->zero, ZERO_SAVES);
    struct piece *pieces = zd_array(most, sizeof *pieces);

    memset(file, 0, sizeof *file);
    snprintf(
            file->name, sizeof file->name, "shard-%05d-of-%05d.safetensors",
            comm_rank(writer->comm) + 1, comm_size(writer->comm));
    fs_join(path, sizeof path, dir, file->name);
    status = write_pieces(
            writer, view, path, pieces, list_pieces(writer, pieces), file);
    free(pieces);
    return status;
}
