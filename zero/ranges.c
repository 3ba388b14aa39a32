/* ranges.c - weights and states from outside: what a rank saves and what it
 * must be given, read and written in pieces. */
#include "zero/private.h"

#include "base/copy.h"
#include "base/must.h"
#include "base/progress.h"
#include "model/quantized/base_digest.h"
#include "model/slice.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* --- the lists ------------------------------------------------------------ */

static bool trains(const struct zero *zero, int segment)
{
    return zero->plan->request.train && zero->plan->segments[segment].trainable;
}

/* The states' extent that has element `offset` of the segment. */
static int extent_of(const struct zero *zero, int segment, size_t offset)
{
    for (int i = 0; i < zero->extent_count; i++) {
        const struct state_extent *at = &zero->extents[i].at;
        if (at->segment == segment && at->extent.offset <= offset &&
            offset < at->extent.offset + at->extent.count)
            return i;
    }
    assert(false);
    return -1;
}

static struct zero_range range_of(
        const struct zero *zero, int s, const struct zero_extent *extent)
{
    const struct zero_plan *plan = zero->plan;
    struct zero_range range = {
            .id = extent->id,
            .begin = extent->begin,
            .count = extent->count,
            .trains = trains(zero, s),
            .weight_type = plan->request.dtype,
            .layout = zero_layout_of(plan, extent->id),
            .segment = s,
            .extent = -1,
            .offset = extent->offset};
    if (range.trains) {
        range.weight_type = plan_master_type(plan);
        range.extent = extent_of(zero, s, extent->offset);
    }
    return range;
}

/* Ranges of one kind, while they are listed. */
struct range_list {
    struct zero *zero;
    enum zero_ranges_of which;
    size_t room;
};

static void add_range(struct range_list *list, struct zero_range range)
{
    int *count = &list->zero->range_count[list->which];
    struct zero_range **ranges = &list->zero->ranges[list->which];
    ZD_GROW(*ranges, list->room, *count + 1);
    (*ranges)[(*count)++] = range;
}

/* The ranges of a tp slice's extent that this rank saves. */
static void add_saved(struct range_list *list, const struct zero_range *range)
{
    const struct zero_request *request = &list->zero->plan->request;
    const struct param *param = &request->table->params[range->id];
    struct slice_run run = {.begin = range->begin};
    if (param->slice.by_column) {
        add_range(list, *range);
        return;
    }
    while (param_slice_next(param, range->begin + range->count, &run)) {
        struct zero_range saved = *range;
        if (run.is_padding || (run.is_shared && request->config->tp.place > 0))
            continue;
        saved.begin = run.begin;
        saved.count = run.count;
        saved.offset += run.begin - range->begin;
        add_range(list, saved);
    }
}

/* A rank saves its parts of the trainable tensors, even at stage 0, where it
 * holds all of them. Frozen tensors stay in the model's files: on resume each
 * rank reads its shard, and the shards are gathered. */
static void list_ranges(struct zero *zero, enum zero_ranges_of which)
{
    const struct zero_plan *plan = zero->plan;
    struct range_list list = {zero, which, 0};
    for (int s = 0; s < plan->segment_count; s++) {
        const struct segment_memory *memory = &zero->memory[s];
        size_t part = plan->segments[s].part_count;
        size_t begin = (size_t)zero->part * part, end = begin + part;
        struct zero_extent extent = {.id = -1};
        if (which == ZERO_SAVES && !trains(zero, s))
            continue;
        if (plan->segments[s].array >= ZERO_CODES)
            continue; /* base.c */
        if (which == ZERO_HOLDS) {
            bool states = trains(zero, s);
            begin = states ? memory->state_begin : memory->held_begin;
            end = begin + (states ? memory->state_count : memory->held_count);
        }
        while (zero_extent_next(plan, s, begin, end, &extent)) {
            struct zero_range range = range_of(zero, s, &extent);
            if (which == ZERO_SAVES)
                add_saved(&list, &range);
            else
                add_range(&list, range);
        }
    }
}

void ranges_create(struct zero *zero)
{
    for (int which = 0; which < ZERO_RANGES; which++)
        list_ranges(zero, (enum zero_ranges_of)which);
}

void ranges_destroy(struct zero *zero)
{
    for (int which = 0; which < ZERO_RANGES; which++)
        free(zero->ranges[which]);
}

int zero_range_count(const struct zero *zero, enum zero_ranges_of which)
{
    return zero->range_count[which];
}

struct zero_range zero_range_at(
        const struct zero *zero, enum zero_ranges_of which, int i)
{
    return zero->ranges[which][i];
}

/* --- reading and writing -------------------------------------------------- */

static enum zd_status move(
        enum zero_way way, bool on_host, void *here, void *caller, size_t bytes)
{
    void *to = way == ZERO_IN ? here : caller,
         *from = way == ZERO_IN ? caller : here;
    if (way == ZERO_AWAY && (on_host || device_backend() == DEVICE_CPU))
        copy_past_cache(to, from, bytes);
    else if (on_host)
        memcpy(to, from, bytes);
    else
        return way == ZERO_IN ? device_write(to, from, bytes)
                              : device_read(to, from, bytes);
    return ZD_OK;
}

/* Trainable host parameters belong to the offload engine. */
static bool weights_on_host(
        const struct zero *zero, const struct zero_range *range)
{
    return !range->trains && zero->plan->params_on_host;
}

static char *weights_at(
        const struct zero *zero, const struct zero_range *range, size_t begin)
{
    const struct segment_memory *memory = &zero->memory[range->segment];
    size_t first = range->trains ? memory->state_begin : memory->held_begin;
    void *base = memory->master ? memory->master : memory->shard;
    return (char *)base +
           (range->offset - first + begin) * dtype_bytes(range->weight_type);
}

/* The same for every lane. */
static struct lane_memory memory_of(
        const struct zero *zero, const struct zero_range *range, int lane,
        size_t begin, size_t count)
{
    if (lane == ZERO_WEIGHTS)
        return (struct lane_memory){
                .values = weights_at(zero, range, begin),
                .count = count,
                .on_host = weights_on_host(zero, range)};
    return states_lane(
            zero, &zero->extents[range->extent], lane,
            range_skip(zero, range) + begin, count);
}

size_t range_value_bytes(const struct zero_range *range, int lane, size_t count)
{
    return lane == ZERO_WEIGHTS
                   ? count * dtype_bytes(range->weight_type)
                   : optim_lane_bytes(range->layout.lane[lane], count);
}

size_t range_scale_count(const struct zero_range *range, int lane, size_t count)
{
    return lane == ZERO_WEIGHTS
                   ? 0
                   : optim_scale_count(range->layout.lane[lane], count);
}

_Static_assert((int)ZERO_WEIGHTS == (int)OPTIM_LANES, "the engine's master");

enum zd_status zero_range_move(
        const struct zero *zero, const struct zero_range *range, int lane,
        size_t begin, size_t count, void *values, float *scales,
        enum zero_way way)
{
    if (range->trains && zero->plan->states_on_host)
        return offload_move(
                zero->offload.engine,
                &(struct offload_lane){
                        .extent = range->extent,
                        .lane = lane,
                        .begin = range_skip(zero, range) + begin,
                        .count = count,
                        .values = values,
                        .scales = scales,
                        .writes = way == ZERO_IN});
    assert(begin % OPTIM_QBLOCK == 0 && begin + count <= range->count);
    ZD_TRY(paged_finish(zero));
    for (size_t done = 0; done < count;) {
        struct lane_memory here =
                memory_of(zero, range, lane, begin + done, count - done);
        if (values)
            ZD_TRY(
                    move(way, here.on_host, here.values,
                         (char *)values + range_value_bytes(range, lane, done),
                         range_value_bytes(range, lane, here.count)));
        if (scales && here.scales)
            ZD_TRY(
                    move(way, here.on_host, here.scales,
                         scales + range_scale_count(range, lane, done),
                         range_scale_count(range, lane, here.count) *
                                 sizeof *scales));
        done += here.count;
    }
    return ZD_OK;
}

size_t zero_block_count(const struct zero *zero, int id)
{
    const struct zero_plan *plan = zero->plan;
    if (zero_layout_of(plan, id).lane[OPTIM_V] != OPTIM_BLOCKS)
        return 0;
    return (size_t)plan->request.table->params[id].blocks.count;
}

enum zd_status zero_blocks_move(
        const struct zero *zero, int id, float *values, enum zero_way way)
{
    return move(
            way, zero->plan->states_on_host,
            zero->block_v + zero->plan->places[id].blocks, values,
            zero_block_count(zero, id) * sizeof *values);
}

enum zd_status zero_states_clear(struct zero *zero)
{
    ZD_TRY(paged_finish(zero));
    if (zero->plan->states_on_host) /* wait first: an update may be reading v */
        ZD_TRY(offload_states_clear(zero->offload.engine));
    return states_clear(zero);
}

/* --- parameters from masters ---------------------------------------------- */

/* This rank's parameters, rounded from the masters of its part of the states.
 */
static enum zd_status round_segment(struct zero *zero, int s)
{
    const struct zero_plan *plan = zero->plan;
    const struct segment_memory *memory = &zero->memory[s];
    bool whole = !plan->states_cut;
    if (!trains(zero, s) || !plan_has_master(plan) || plan->states_on_host)
        return ZD_OK;
    return optim_device()->convert(
            whole ? memory->full : memory->part, plan->request.dtype,
            memory->master, DTYPE_FP32, memory->state_count);
}

enum zd_status zero_ranges_loaded(struct zero *zero)
{
    ZD_TRY(params_gather_finish(zero));
    ZD_TRY(comm_finish(zero->groups[ZERO_REPLICATE]));
    ZD_TRY(comm_finish(zero->groups[ZERO_SHARD]));
    for (int s = 0; s < zero->plan->segment_count; s++)
        ZD_TRY(round_segment(zero, s));
    if (zero->plan->states_on_host) {
        ZD_TRY(offload_masters_written(zero->offload.engine));
        ZD_TRY(offload_finish(zero->offload.engine));
        zero->offload.updates++;
    }
    return params_gather(zero);
}

/* --- loading -------------------------------------------------------------- */

enum {
    LIMIT = 1 << 20, /* elements in memory at a time: an offload chunk */
    PIECE = 1 << 16, /* .. that a thread reads at a time: in fp32 they fit a
                        second-level cache */
};

struct load { /* of part of a range, in pieces */
    const struct weight_source *source;
    const struct zero_range *range;
    const struct param *param;
    size_t begin, count; /* of the range's tensor */
    float *wide;
    uint16_t *narrow; /* NULL: not rounded */
    uint64_t *digest; /* of the tensor, so far; NULL: not wanted */
    bool is_first;    /* first place of tp: it counts shared elements */
};

/* Adds the digests of blocks of 256 elements of the whole tensor that begin in
 * the run, and may end after it. */
static enum zd_status add_digest(
        const struct load *load, const struct slice_run *run,
        const float *values)
{
    float block[ZERO_ALIGN];
    const char *name = load->param->name;
    size_t whole = param_whole_count(load->param);
    size_t end = run->whole + run->count, last = end / ZERO_ALIGN * ZERO_ALIGN;
    size_t first = (run->whole + ZERO_ALIGN - 1) / ZERO_ALIGN * ZERO_ALIGN;
    uint64_t sum = 0;
    if (end == whole)
        last = end;
    if (first < last)
        sum = base_digest_values(
                name, first, values + (first - run->whole), last - first);
    if (first <= last && last < end) {
        size_t left = whole - last;
        size_t count = left < ZERO_ALIGN ? left : ZERO_ALIGN;
        ZD_TRY(load->source->read(
                load->source->ctx, load->range->id, last, count, block));
        sum += base_digest_values(name, last, block, count);
    }
    __atomic_fetch_add(load->digest, sum, __ATOMIC_RELAXED);
    return ZD_OK;
}

static enum zd_status load_run(
        const struct load *load, const struct slice_run *run, float *values)
{
    if (run->is_padding) {
        memset(values, 0, run->count * sizeof *values);
        return ZD_OK;
    }
    ZD_TRY(load->source->read(
            load->source->ctx, load->range->id, run->whole, run->count,
            values));
    bool counts = load->digest && (load->is_first || !run->is_shared);
    return counts ? add_digest(load, run, values) : ZD_OK;
}

static enum zd_status load_piece(const struct load *load, size_t at)
{
    size_t left = load->count - at, count = left < PIECE ? left : PIECE;
    struct slice_run run = {.begin = load->begin + at};
    while (param_slice_next(load->param, load->begin + at + count, &run))
        ZD_TRY(load_run(load, &run, load->wide + (run.begin - load->begin)));
    if (load->narrow)
        dtype_convert(
                load->narrow + at, load->range->weight_type, load->wide + at,
                DTYPE_FP32, count);
    return ZD_OK;
}

/* Uses all threads: one thread reads a file, or generates random numbers, more
 * slowly than the device can be written. */
static enum zd_status load_pieces(const struct load *load)
{
    int failed = 0;
#pragma omp parallel for schedule(dynamic) reduction(+ : failed)
    for (size_t at = 0; at < load->count; at += PIECE)
        failed += load_piece(load, at) != ZD_OK;
    /* an error's record is its thread's: once more, for this one's */
    for (size_t at = 0; failed && at < load->count; at += PIECE)
        ZD_TRY(load_piece(load, at));
    return ZD_OK;
}

/* Each value counts once: rank 0 counts what every rank holds whole, and the
 * first replica counts a shard; load_run handles places of tp. */
static uint64_t *digest_of(
        const struct zero *zero, const struct zero_range *range,
        uint64_t *digests)
{
    bool counts = !range->trains            ? zero_counts_held(zero)
                  : !zero->plan->states_cut ? zero->part == 0
                                            : true;
    return digests && counts ? &digests[range->id] : NULL;
}

static enum zd_status load_range(
        struct zero *zero, const struct zero_range *range,
        const struct weight_source *source, uint64_t *digest, float *wide,
        uint16_t *narrow)
{
    const struct zero_request *request = &zero->plan->request;
    bool rounds = range->weight_type != DTYPE_FP32;
    for (size_t done = 0; done < range->count; done += LIMIT) {
        size_t left = range->count - done;
        size_t count = left < LIMIT ? left : LIMIT;
        ZD_TRY(load_pieces(&(struct load){
                .source = source,
                .range = range,
                .param = &request->table->params[range->id],
                .begin = range->begin + done,
                .count = count,
                .wide = wide,
                .narrow = rounds ? narrow : NULL,
                .digest = digest,
                .is_first = request->config->tp.place == 0}));
        progress_completed(); /* also when weights are generated, not read */
        ZD_TRY(zero_range_move(
                zero, range, ZERO_WEIGHTS, done, count,
                rounds ? (void *)narrow : wide, NULL, ZERO_IN));
    }
    return ZD_OK;
}

static enum zd_status load_weights(
        struct zero *zero, const struct weight_source *source,
        uint64_t *digests)
{
    ZD_FREED float *wide = zd_must(malloc(LIMIT * sizeof *wide));
    ZD_FREED uint16_t *narrow = zd_must(malloc(LIMIT * sizeof *narrow));
    ZD_EACH(range, zero->ranges[ZERO_HOLDS], zero->range_count[ZERO_HOLDS])
        ZD_TRY(load_range(
                zero, range, source, digest_of(zero, range, digests), wide,
                narrow));
    return ZD_OK;
}

enum zd_status zero_load(
        struct zero *zero, const struct weight_source *source,
        uint64_t *digests)
{
    size_t count = (size_t)zero->plan->request.table->count;
    /* agree first, so that a file that one rank cannot read does not leave the
     * others in a gather */
    enum zd_status status = zero_states_clear(zero);
    if (digests)
        memset(digests, 0, count * sizeof *digests);
    ZD_THEN(status, load_weights(zero, source, digests));
    status = base_load(zero, source, digests, status);
    ZD_TRY(comm_agree(zero->comm, status));
    if (digests)
        ZD_TRY(comm_all_reduce_i64(
                zero->comm, (int64_t *)digests, count, COMM_SUM));
    return zero_ranges_loaded(zero);
}
