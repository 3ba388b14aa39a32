/* base.c - a quantized base model: each rank quantizes what it holds, or reads
 * codes that are stored quantized.
 *
 *   weight   | block | block | block | block |
 *   codes    |-- rank 0 --|-- rank 1 --|       cut at 256 bytes
 *   scales   |-- rank 0 --|-- rank 1 --|       likewise, in its own array
 *
 * A block's scale is computed by the rank whose codes contain the block's
 * start. All ranks learn all scales of the current weight (nested scales are
 * computed from all of them), and each keeps its own. With tensor parallelism
 * the weight is a slice (model/quantized/cut.h): if columns are cut, every
 * place quantizes whole rows; scales that all places hold come from the
 * first. */
#include "zero/private.h"

#include "base/must.h"
#include "base/number/sizes.h"
#include "model/quantized/base_digest.h"
#include "model/quantized/codes.h"
#include "model/quantized/cut.h"

#include <string.h>

/* One weight, and this rank's part of it. */
struct loading {
    struct zero *zero;
    int id;
    uint64_t *digest; /* of it, so far */
    struct codes_maker maker;
};

static const struct param_table *table_of(const struct loading *l)
{
    return l->zero->plan->request.table;
}

/* Of its codes. */
static size_t code_bytes(const struct loading *l, size_t count)
{
    return param_code_bytes(table_of(l), l->id, count);
}

/* Bytes of an array of the weight that lie in what this rank holds of a
 * segment: [begin, end) of the array, whose first byte is `first` of the
 * segment. */
struct part {
    size_t begin, end;
    char *at; /* where byte `begin` goes */
};

static struct part part_of(
        const struct zero *zero, int s, size_t first, size_t bytes)
{
    const struct zero_segment *segment = &zero->plan->segments[s];
    const struct segment_memory *memory = &zero->memory[s];
    size_t from = zero_segment_bytes(segment, memory->held_begin);
    size_t to = from + zero_segment_bytes(segment, memory->held_count);
    size_t begin = first > from ? first : from;
    size_t end = first + bytes < to ? first + bytes : to;
    if (begin >= end)
        return (struct part){0};
    return (struct part){
            begin - first, end - first, (char *)memory->shard + (begin - from)};
}

static enum zd_status put(
        const struct zero *zero, void *to, const void *from, size_t bytes)
{
    if (!zero->plan->params_on_host)
        return device_write(to, from, bytes);
    memcpy(to, from, bytes);
    return ZD_OK;
}

/* --- codes ---------------------------------------------------------------- */

/* Codes of a range of the whole weight that this rank makes. */
struct codes_part {
    const struct loading *l;
    struct codes_range range;
    struct part part;  /* of the slice's codes */
    size_t begin, end; /* elements of the whole weight: blocks that begin here
                          get scale and digest from this rank */
    size_t counted, counts; /* range of bytes whose digest is added */
    struct base_digest digest;
};

/* Copies the codes of [begin, end) that lie in the part: elements of one row,
 * or of rows that the slice has whole. */
static enum zd_status put_codes(
        const struct codes_part *c, size_t begin, size_t end, size_t first,
        const uint8_t *codes)
{
    const struct codes_range *r = &c->range;
    const struct param_table *table = table_of(c->l);
    size_t across = (size_t)c->l->maker.whole->columns;
    size_t packed = (size_t)param_codes_packed(table);
    int64_t row = (int64_t)(begin / across) - r->row + r->here;
    int64_t column = (int64_t)(begin % across) - r->column;
    size_t here = (size_t)(row * r->columns + column), count = end - begin;
    size_t from = c->part.begin * packed, to = c->part.end * packed;
    size_t last = here + count < to ? here + count : to;
    size_t skip = here < from ? from - here : 0;
    if (here + skip >= last)
        return ZD_OK;
    size_t at = code_bytes(c->l, here + skip);
    return put(
            c->l->zero, c->part.at + (at - c->part.begin),
            codes + code_bytes(c->l, begin + skip - first),
            code_bytes(c->l, last - (here + skip)));
}

static void count_codes(
        struct codes_part *c, size_t first, size_t count, const uint8_t *codes)
{
    size_t at = code_bytes(c->l, first);
    size_t end = at + code_bytes(c->l, count);
    size_t from = at > c->counted ? at : c->counted;
    size_t to = end < c->counts ? end : c->counts;
    if (from < to)
        base_digest_add(&c->digest, codes + (from - at), to - from);
}

static enum zd_status write_codes(
        void *ctx, size_t begin, size_t count, const uint8_t *codes)
{
    struct codes_part *c = ctx;
    const struct codes_range *r = &c->range;
    size_t across = (size_t)c->l->maker.whole->columns;
    size_t rows = (size_t)r->rows, columns = (size_t)r->columns;
    size_t row = (size_t)r->row, end = begin + count;
    if (columns == across) { /* rows are contiguous */
        columns *= rows;
        rows = 1;
    } else {
        row = begin / across;
        rows = quant_parts(end, across) - row;
    }
    count_codes(c, begin, count, codes);
    for (size_t at = row; at < row + rows; at++) {
        size_t from = at * across + (size_t)r->column, to = from + columns;
        from = from > begin ? from : begin;
        to = size_min(to, end);
        if (from < to)
            ZD_TRY(put_codes(c, from, to, begin, codes));
    }
    return ZD_OK;
}

/* The position in the whole weight of element `at` of the slice (or its end);
 * for cut columns as if they were the first, so that all ranks' parts are
 * contiguous. */
static size_t told_of(const struct codes_part *c, size_t at)
{
    const struct codes_range *r = &c->range;
    int64_t row = (int64_t)at / r->columns, column = (int64_t)at % r->columns;
    row -= r->here;
    if (row < 0)
        row = column = 0;
    if (row >= r->rows) {
        row = r->rows;
        column = 0;
    }
    return (size_t)((r->row + row) * c->l->maker.whole->columns + column);
}

/* The range to quantize: whole rows if columns are cut, extended to the end of
 * the last 256 bytes that share a digest. */
static enum zd_status make_range(struct codes_part *c, float *scales)
{
    const struct quant_matrix *whole = c->l->maker.whole;
    const struct codes_maker *maker = &c->l->maker;
    size_t packed = (size_t)param_codes_packed(table_of(c->l));
    size_t across = (size_t)whole->columns, begin = c->begin, end = c->end;
    size_t all = quant_matrix_count(whole);
    bool tells = c->range.is_owned;
    if (c->range.columns != whole->columns) {
        begin = begin / across * across;
        end = size_min(size_round_up(end, across), all);
    }
    c->counted = size_round_up(code_bytes(c->l, c->begin), BASE_DIGEST_BYTES);
    c->counts = size_round_up(code_bytes(c->l, c->end), BASE_DIGEST_BYTES);
    if (!tells)
        c->counts = 0;
    c->digest = base_digest_codes(c->l->maker.param->name, c->counted);
    if (c->counted < c->counts && end < c->counts * packed)
        end = size_min(c->counts * packed, all);
    ZD_TRY(codes_make(maker, begin, c->begin, write_codes, c, NULL));
    ZD_TRY(codes_make(
            maker, c->begin, c->end, write_codes, c, tells ? scales : NULL));
    ZD_TRY(codes_make(maker, c->end, end, write_codes, c, NULL));
    *c->l->digest += base_digest_end(&c->digest);
    return ZD_OK;
}

static enum zd_status make_codes(const struct loading *l, float *scales)
{
    const struct zero_request *request = &l->zero->plan->request;
    const struct param *param = &table_of(l)->params[l->id];
    const struct zero_place *place = &l->zero->plan->places[l->id];
    const struct zero_segment *segment =
            &l->zero->plan->segments[place->segment];
    struct codes_range ranges[SLICE_RANGES];
    int count = codes_ranges(
            param, l->maker.whole, request->config->tp.place, ranges);
    size_t packed = (size_t)segment->format.packed;
    struct part part = part_of(
            l->zero, place->segment, zero_segment_bytes(segment, place->offset),
            code_bytes(l, param->count));
    for (int i = 0; i < count; i++) {
        struct codes_part c = {.l = l, .range = ranges[i], .part = part};
        c.begin = told_of(&c, size_min(part.begin * packed, param->count));
        c.end = told_of(&c, size_min(part.end * packed, param->count));
        if (c.begin < c.end)
            ZD_TRY(make_range(&c, scales));
    }
    return ZD_OK;
}

/* --- scales --------------------------------------------------------------- */

/* Each scale is set on one rank and 0 on the others, so the integer sum of the
 * bits is the scale. Replicas that hold the same do this separately. */
static enum zd_status share_scales(
        struct zero *zero, float *scales, size_t words)
{
    _Static_assert(2 * sizeof *scales == sizeof(int64_t), "two in a word");
    bool of_all = zero->plan->params_on_host;
    struct comm *holders[] = {
            of_all ? zero->comm : zero->groups[ZERO_SHARD],
            of_all ? NULL : zero->groups[ZERO_TP]};
    for (int i = 0; i < 2; i++)
        if (holders[i] && comm_size(holders[i]) > 1)
            ZD_TRY(comm_all_reduce_i64(
                    holders[i], (int64_t *)(void *)scales, words, COMM_SUM));
    return ZD_OK;
}

static enum zd_status keep_scales(const struct loading *l, float *scales)
{
    const struct param_table *table = table_of(l);
    const struct zero_place *place = &l->zero->plan->places[l->id];
    size_t whole = param_whole_scale_bytes(table, l->id);
    size_t own = param_scale_bytes(table, l->id);
    bool is_first = comm_rank(l->zero->comm) == 0;
    struct part part =
            part_of(l->zero, place->scales_segment, place->scales, own);
    if (part.begin == part.end && !is_first)
        return ZD_OK;
    ZD_FREED char *decoding = zd_array(whole, 1);
    ZD_FREED char *slice = zd_array(own, 1);
    const char *from = decoding;
    ZD_TRY(codes_finish(&l->maker, scales, decoding));
    if (is_first) {
        struct base_digest digest = base_digest_scales(l->maker.param->name, 0);
        base_digest_add(&digest, decoding, whole);
        *l->digest += base_digest_end(&digest);
    }
    if (table->params[l->id].slice.range_count > 0) {
        codes_cut_scales(table, l->id, decoding, scales, slice);
        from = slice;
    }
    return part.begin < part.end ? put(l->zero, part.at, from + part.begin,
                                       part.end - part.begin)
                                 : ZD_OK;
}

/* --- all ------------------------------------------------------------------ */

/* After a failure a rank still takes part in the sums, so that the others do
 * not wait for it, but does nothing else. */
static enum zd_status load_weight(
        const struct loading *l, enum zd_status status)
{
    size_t words = (param_whole_scale_count(table_of(l), l->id) + 1) / 2;
    ZD_FREED int64_t *room = zd_array(words, sizeof *room); /* two in a word */
    float *scales = (float *)(void *)room;
    ZD_THEN(status, make_codes(l, scales));
    if (!codes_are_stored(&l->maker)) {
        enum zd_status shared = share_scales(l->zero, scales, words);
        status = status == ZD_OK ? shared : status;
    }
    ZD_THEN(status, keep_scales(l, scales));
    return status;
}

enum zd_status base_load(
        struct zero *zero, const struct weight_source *source,
        uint64_t *digests, enum zd_status so_far)
{
    const struct param_table *table = zero->plan->request.table;
    for (int id = 0; id < table->count; id++) {
        if (!param_is_quantized(table, id))
            continue;
        uint64_t unwanted = 0;
        bool counts = digests && zero_counts_held(zero);
        struct loading l = {
                zero, id, counts ? &digests[id] : &unwanted,
                codes_maker_of(table, source, id)};
        so_far = load_weight(&l, so_far);
    }
    return so_far;
}
