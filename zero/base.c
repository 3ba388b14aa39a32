/* base.c - a base in codes: each rank makes what it holds, or reads it where it
 * is stored so.
 *
 *   weight   | block | block | block | block |
 *   codes    |-- rank 0 --|-- rank 1 --|       cut at 256 bytes
 *   scales   |-- rank 0 --|-- rank 1 --|       likewise, in its own array
 *
 * A block's scale is told by the rank in whose codes the block begins. All
 * ranks learn all scales of the weight at hand (nested ones are made of all of
 * them), and keep what lies in their part. */
#include "zero/private.h"

#include "base/must.h"
#include "model/quantized/base_digest.h"
#include "model/quantized/codes.h"

#include <stdlib.h>
#include <string.h>

/* One weight, and this rank's part of it. */
struct loading {
    struct zero *zero;
    int id;
    uint64_t *digest; /* of it, so far */
};

static const struct param_table *table_of(const struct loading *l)
{
    return l->zero->plan->request.table;
}

static const char *name_of(const struct loading *l)
{
    return table_of(l)->params[l->id].name;
}

/* Scales, two in a word. */
static size_t word_count(const struct param_table *table, int id)
{
    return (param_scale_count(table, id) + 1) / 2;
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

struct codes_part {
    const struct loading *l;
    struct part part;
    struct base_digest digest;
};

static enum zd_status write_codes(
        void *ctx, size_t begin, size_t count, const uint8_t *codes)
{
    struct codes_part *c = ctx;
    size_t at = param_code_bytes(table_of(c->l), c->l->id, begin);
    size_t bytes = param_code_bytes(table_of(c->l), c->l->id, count);
    base_digest_add(&c->digest, codes, bytes);
    return put(c->l->zero, c->part.at + (at - c->part.begin), codes, bytes);
}

static enum zd_status make_codes(
        const struct loading *l, struct codes_maker *maker, float *scales)
{
    const struct zero_place *place = &l->zero->plan->places[l->id];
    const struct zero_segment *segment =
            &l->zero->plan->segments[place->segment];
    size_t count = table_of(l)->params[l->id].count;
    size_t packed = (size_t)segment->format.packed;
    struct codes_part c = {
            .l = l,
            .part =
                    part_of(l->zero, place->segment,
                            zero_segment_bytes(segment, place->offset),
                            param_code_bytes(table_of(l), l->id, count))};
    size_t end = c.part.end * packed;
    c.digest = base_digest_codes(name_of(l), c.part.begin);
    ZD_TRY(codes_make(
            maker, l->id, c.part.begin * packed, end < count ? end : count,
            write_codes, &c, scales));
    *l->digest += base_digest_end(&c.digest);
    return ZD_OK;
}

/* --- scales --------------------------------------------------------------- */

/* Each is some rank's alone, and nothing on the others: sums of their bits are
 * the bits. Replicas do the same, each for itself, where they hold the same. */
static enum zd_status share_scales(
        struct zero *zero, float *scales, size_t words)
{
    _Static_assert(2 * sizeof *scales == sizeof(int64_t), "two in a word");
    struct comm *holders =
            zero->plan->params_on_host ? zero->comm : zero->groups[ZERO_SHARD];
    if (!holders || comm_size(holders) == 1)
        return ZD_OK;
    return comm_all_reduce_i64(
            holders, (int64_t *)(void *)scales, words, COMM_SUM);
}

static enum zd_status keep_scales(
        const struct loading *l, const struct codes_maker *maker,
        const float *scales, char *decoding)
{
    const struct zero_place *place = &l->zero->plan->places[l->id];
    struct part part =
            part_of(l->zero, place->scales_segment, place->scales,
                    param_scale_bytes(table_of(l), l->id));
    if (part.begin == part.end)
        return ZD_OK;
    struct base_digest digest = base_digest_scales(name_of(l), part.begin);
    ZD_TRY(codes_finish(maker, l->id, scales, decoding));
    base_digest_add(&digest, decoding + part.begin, part.end - part.begin);
    *l->digest += base_digest_end(&digest);
    return put(l->zero, part.at, decoding + part.begin, part.end - part.begin);
}

/* --- all ------------------------------------------------------------------ */

/* Memory for the largest weight. */
struct rooms {
    int64_t *scales; /* of all its blocks, two in a word */
    char *decoding;
};

static void rooms_take(const struct param_table *table, struct rooms *rooms)
{
    size_t words = 0, bytes = 0;
    for (int id = 0; id < table->count; id++) {
        if (!param_is_quantized(table, id))
            continue;
        size_t own = word_count(table, id);
        size_t decoding = param_scale_bytes(table, id);
        words = own > words ? own : words;
        bytes = decoding > bytes ? decoding : bytes;
    }
    rooms->scales = zd_must(malloc((words + 1) * sizeof *rooms->scales));
    rooms->decoding = zd_must(malloc(bytes + 1));
}

/* After a failure a rank still takes part in the sums, so that the others do
 * not wait for it, but does nothing else. */
static enum zd_status load_weight(
        const struct loading *l, struct codes_maker *maker,
        const struct rooms *rooms, bool is_shared, enum zd_status status)
{
    size_t words = word_count(table_of(l), l->id);
    float *scales = (float *)(void *)rooms->scales;
    memset(rooms->scales, 0, words * sizeof *rooms->scales);
    if (status == ZD_OK)
        status = make_codes(l, maker, scales);
    if (is_shared) {
        enum zd_status shared = share_scales(l->zero, scales, words);
        status = status == ZD_OK ? shared : status;
    }
    if (status == ZD_OK)
        status = keep_scales(l, maker, scales, rooms->decoding);
    return status;
}

enum zd_status base_load(
        struct zero *zero, const struct weight_source *source,
        uint64_t *digests, enum zd_status so_far)
{
    const struct param_table *table = zero->plan->request.table;
    struct rooms rooms = {0};
    if (!table->codes)
        return so_far;
    rooms_take(table, &rooms);
    struct codes_maker *maker = codes_maker_create(table, source);
    for (int id = 0; id < table->count; id++) {
        if (!param_is_quantized(table, id))
            continue;
        uint64_t unwanted = 0;
        bool counts = digests && zero_counts_held(zero);
        struct loading l = {zero, id, counts ? &digests[id] : &unwanted};
        so_far = load_weight(
                &l, maker, &rooms, !codes_are_stored(maker, id), so_far);
    }
    codes_maker_destroy(maker);
    free(rooms.scales);
    free(rooms.decoding);
    return so_far;
}
