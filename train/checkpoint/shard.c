/* shard.c - the arrays that a rank saves, and their file. */
#include "train/checkpoint/shard.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "train/checkpoint/holds.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* --- which ---------------------------------------------------------------- */

enum part { PART_VALUES, PART_SCALES, PART_BLOCKS };

/* One array of one range of this rank. */
struct piece {
    char name[ARRAY_NAME];
    const char *type; /* as safetensors names it */
    size_t count;     /* values */
    struct zero_range range;
    int number; /* of the range, in ZERO_SAVES */
    int lane;
    enum part part;
    enum array_kind kind;
};

static void add_piece(
        const struct checkpoint_writer *writer, struct piece *pieces,
        int *count, enum array_kind kind, const struct piece *piece)
{
    const struct zero_range *range = &piece->range;
    struct piece *out = &pieces[(*count)++];
    *out = *piece;
    out->kind = kind;
    array_name(
            out->name, kind, writer->plan->table.params[range->id].name,
            range->begin);
}

static void add_lane(
        const struct checkpoint_writer *writer, struct piece *pieces,
        int *count, const struct piece *weights, enum optim_lane lane)
{
    const struct zero_range *range = &weights->range;
    const struct param *param = &writer->plan->table.params[range->id];
    enum optim_format format = range->layout.lane[lane];
    struct piece piece = {
            .type = format_type(format),
            .count = range->count,
            .range = *range,
            .number = weights->number,
            .lane = lane};
    if (format == OPTIM_BLOCKS && range->begin == 0) { /* once */
        piece.part = PART_BLOCKS;
        piece.type = format_type(OPTIM_FP32);
        piece.count = (size_t)param->blocks.count;
        add_piece(writer, pieces, count, ARRAY_V_BLOCKS, &piece);
    }
    if (format == OPTIM_NONE || format == OPTIM_BLOCKS)
        return;
    add_piece(writer, pieces, count, ARRAY_M + lane, &piece);
    if (format != OPTIM_8BIT)
        return;
    piece.part = PART_SCALES;
    piece.type = format_type(OPTIM_FP32);
    piece.count = optim_scale_count(format, range->count);
    add_piece(writer, pieces, count, ARRAY_M_SCALE + lane, &piece);
}

enum { PIECES_PER_RANGE = 5 };

/* The arrays this rank saves; returns how many. */
static int list_pieces(
        const struct checkpoint_writer *writer, struct piece *pieces)
{
    int count = 0;
    bool moments = !writer->job->checkpoint.save_only_model;
    for (int i = 0; i < zero_range_count(writer->zero, ZERO_SAVES); i++) {
        struct zero_range range = zero_range_at(writer->zero, ZERO_SAVES, i);
        struct piece weights = {
                .type = dtype_safetensors_name(range.weight_type),
                .count = range.count,
                .range = range,
                .number = i,
                .lane = ZERO_WEIGHTS};
        add_piece(writer, pieces, &count, ARRAY_MASTER, &weights);
        for (int lane = 0; moments && lane < OPTIM_LANES; lane++)
            add_lane(writer, pieces, &count, &weights, (enum optim_lane)lane);
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
    size_t bytes = out->pieces[i].count * sizeof(float);
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
    bool scales = piece->part == PART_SCALES;
    void *room;
    size_t bytes;
    if (piece->part == PART_BLOCKS)
        return done ? ZD_OK : write_blocks(out, i);
    if (piece->lane == ZERO_WEIGHTS)
        bytes = count * dtype_bytes(range->weight_type);
    else if (scales)
        bytes = optim_scale_count(OPTIM_8BIT, count) * sizeof(float);
    else
        bytes = optim_lane_bytes(range->layout.lane[piece->lane], count);
    ZD_TRY(st_writer_room(out->file, i, bytes, &room));
    ZD_TRY(view->read(
            view->ctx, piece->number, piece->lane, done, count,
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
                .dtype = pieces[i].type,
                .dims = 1,
                .shape = {(int64_t)pieces[i].count}};
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
        struct held held = {.begin = range.begin, .count = range.count};
        snprintf(
                held.name, sizeof held.name, "%s",
                writer->plan->table.params[range.id].name);
        for (; i < count && pieces[i].range.id == range.id &&
               pieces[i].range.begin == range.begin;
             i++)
            held_add(
                    &held, pieces[i].kind, pieces[i].type,
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
    size_t most = PIECES_PER_RANGE *
                  (size_t)zero_range_count(writer->zero, ZERO_SAVES);
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

/* --- what they take ------------------------------------------------------- */

/* Bytes of all ranks' arrays of one tensor. */
static uint64_t tensor_bytes(const struct checkpoint_writer *writer, int id)
{
    const struct zero_plan *plan = &writer->plan->zero;
    const struct param *param = &plan->request.table->params[id];
    enum dtype compute = plan->request.dtype;
    bool none = plan->request.optim.master == OPTIM_MASTER_NONE;
    if (!param->trainable)
        return 0;
    uint64_t bytes = (none ? dtype_bytes(compute) : 4) * param->count;
    struct optim_layout layout = zero_layout_of(plan, id);
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        enum optim_format format = layout.lane[lane];
        if (writer->job->checkpoint.save_only_model)
            continue;
        bytes += optim_lane_bytes(format, param->count) +
                 4 * optim_scale_count(format, param->count);
        if (format == OPTIM_BLOCKS)
            bytes += 4 * (uint64_t)param->blocks.count;
    }
    return bytes;
}

uint64_t checkpoint_shard_bytes(const struct checkpoint_writer *writer)
{
    const struct param_table *table = &writer->plan->table;
    uint64_t bytes = 0;
    for (int id = 0; id < table->count; id++)
        bytes += tensor_bytes(writer, id);
    return bytes;
}
