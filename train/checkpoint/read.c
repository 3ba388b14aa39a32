/* read.c - the arrays of an open checkpoint, read back for any cut. */
#include "base/must.h"
#include "train/checkpoint/index.h"
#include "train/checkpoint/pieces.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

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
    size_t per = index_elements_per_value(r->kind);
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
    size_t per = index_elements_per_value(r->kind);
    struct slice_run part = {.begin = begin};
    ZD_TRY(index_wake(r->checkpoint, r->piece));
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
    size_t end =
            piece->begin + piece->count * index_elements_per_value(r->kind);
    if (piece->columns.count)
        index_shape(r->checkpoint, piece->name, shape);
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
    struct piece *piece = index_first(checkpoint, kind, range->name);
    const struct piece *end = checkpoint->pieces + checkpoint->piece_count;
    enum zd_status status = ZD_OK;
    measure(&r);
    for (; status == ZD_OK && r.found < r.wanted && piece && piece < end &&
           index_compare(piece, kind, range->name) == 0;
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
    return index_first(checkpoint, ARRAY_MASTER, name) != NULL;
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
            index_first(checkpoint, array_of_lane(lane), name);
    if (!piece)
        return lane == OPTIM_V && index_first(checkpoint, ARRAY_V_BLOCKS, name)
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
    struct piece *piece = index_first(checkpoint, ARRAY_V_BLOCKS, name);
    if (piece && piece->begin == 0) {
        ZD_TRY(index_wake(checkpoint, piece));
        if (piece->count == count)
            return read_values(
                    checkpoint, piece, 0, count, format_type(OPTIM_FP32), out);
    }
    return ZD_FAIL(
            ZD_ERR_DATA, "E0809", "%s: %s of %s has not all %zu blocks",
            checkpoint->path, array_kind_name(ARRAY_V_BLOCKS), name, count);
}
