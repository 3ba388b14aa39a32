#include "zero/snapshot.h"

#include "base/device/populate.h"
#include "base/must.h"
#include "base/number/sizes.h"
#include "base/threads.h"
#include "zero/private.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    ALIGN = 64,
    LANES = OPTIM_LANES + 1,     /* ZERO_WEIGHTS too */
    PARTS = 2 * OPTIM_LANES + 1, /* most arrays of a range */
    HELPERS_MAX = 7
};

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* --- zero itself ---------------------------------------------------------- */

static enum zd_status read_live(
        const void *ctx, int range, int lane, size_t begin, size_t count,
        void *values, float *scales)
{
    const struct zero_range at = zero_range_at(ctx, ZERO_SAVES, range);
    return zero_range_move(
            ctx, &at, lane, begin, count, values, scales, ZERO_OUT);
}

static enum zd_status blocks_live(const void *ctx, int range, float *values)
{
    return zero_blocks_move(
            ctx, zero_range_at(ctx, ZERO_SAVES, range).id, values, ZERO_OUT);
}

struct zero_view zero_view_live(const struct zero *zero)
{
    return (struct zero_view){
            .ctx = zero, .read = read_live, .blocks = blocks_live};
}

/* --- how large ------------------------------------------------------------ */

/* An upper bound for an extent: tp cuts it into so many ranges, each of whole
 * qblocks, whose arrays begin at multiples of ALIGN. */
static size_t extent_bytes(
        const struct zero_plan *plan, const struct zero_extent *extent,
        bool moments)
{
    const struct param *param = &plan->request.table->params[extent->id];
    const struct optim_layout layout = zero_layout_of(plan, extent->id);
    int cuts = param->slice.range_count;
    size_t ranges = cuts ? (size_t)cuts : 1;
    size_t count = extent->count + ranges * OPTIM_QBLOCK;
    size_t bytes = ranges * PARTS * ALIGN +
                   count * dtype_bytes(plan_master_type(plan));
    for (int lane = 0; moments && lane < OPTIM_LANES; lane++)
        bytes += optim_lane_bytes(layout.lane[lane], count) +
                 optim_scale_count(layout.lane[lane], count) * sizeof(float);
    if (moments && layout.lane[OPTIM_V] == OPTIM_BLOCKS && extent->begin == 0)
        bytes += (size_t)param->blocks.count * sizeof(float);
    return bytes;
}

/* The blocks of all tensors: each rank has some of them. */
static size_t block_bytes(const struct zero_plan *plan, bool moments)
{
    size_t tensors = (size_t)plan->request.table->count;
    return moments && plan->block_count
                   ? plan->block_count * sizeof(float) + tensors * ALIGN
                   : 0;
}

struct measuring {
    bool moments;
    size_t most;
};

/* What the rank of a part saves, even if it holds everything. */
static void measure_copied(
        const struct zero_plan *plan, int part, void *context)
{
    struct measuring *m = context;
    size_t bytes = 0;
    for (int s = 0; s < plan->segment_count; s++) {
        size_t count = plan->segments[s].part_count;
        size_t begin = (size_t)part * count;
        struct zero_extent extent = {.id = -1};
        while (plan->segments[s].trainable &&
               zero_extent_next(plan, s, begin, begin + count, &extent))
            bytes += extent_bytes(plan, &extent, m->moments);
    }
    m->most = bytes > m->most ? bytes : m->most;
}

static void measure_on_write(
        const struct zero_plan *plan, int part, void *context)
{
    ZD_SCOPED(plan_request_free)
    struct offload_request request = plan_request_of(plan, part, NULL);
    size_t bytes = offload_snapshot_bytes(&request), *most = context;
    *most = bytes > *most ? bytes : *most;
}

void zero_snapshot_measure(
        const struct zero_plan *plan, bool moments,
        struct zero_snapshot_needs *needs)
{
    struct zero_plan cut = *plan;
    struct measuring copied = {.moments = moments};
    *needs = (struct zero_snapshot_needs){0};
    cut.states_cut = true; /* a rank saves its part at every stage */
    if (plan->states_on_host) {
        needs->copied = aligned(block_bytes(plan, moments));
        plan_parts_visit(plan, measure_on_write, &needs->on_write);
        return;
    }
    plan_parts_visit(&cut, measure_copied, &copied);
    needs->copied = aligned(copied.most);
}

/* --- a copy --------------------------------------------------------------- */

/* Offsets of a range's arrays in bytes; SIZE_MAX: none. */
struct places {
    size_t values[LANES], scales[LANES], blocks;
};

struct zero_snapshot {
    const struct zero *zero;
    struct offload *engine; /* the engine that copies on write; NULL: all is
                               copied at once */
    bool moments;
    bool backwards; /* updates follow the gradients, from the last range */
    char *memory;
    size_t room, bytes; /* of memory; copied by take */
    int count;
    const struct zero_range *ranges; /* of ZERO_SAVES */
    struct places *places;           /* by range; owned */
    struct populating *populating;   /* NULL: pages are not being faulted in */
    int helpers; /* copying threads in addition to OpenMP's */
};

static size_t scale_bytes(
        const struct zero_range *range, int lane, size_t count)
{
    return range_scale_count(range, lane, count) * sizeof(float);
}

static bool has_blocks(const struct zero_range *range)
{
    return range->begin == 0 && range->layout.lane[OPTIM_V] == OPTIM_BLOCKS;
}

static size_t place(struct zero_snapshot *snapshot, size_t bytes)
{
    size_t at = snapshot->bytes;
    if (!bytes)
        return SIZE_MAX;
    snapshot->bytes += aligned(bytes);
    return at;
}

static void place_range(struct zero_snapshot *snapshot, int i)
{
    const struct zero_range *range = &snapshot->ranges[i];
    struct places *places = &snapshot->places[i];
    bool on_write = snapshot->engine != NULL;
    for (int lane = 0; lane < LANES; lane++) {
        bool is_there =
                !on_write && (lane == ZERO_WEIGHTS || snapshot->moments);
        size_t count = is_there ? range->count : 0;
        places->values[lane] = place(
                snapshot, count ? range_value_bytes(range, lane, count) : 0);
        places->scales[lane] =
                place(snapshot, count ? scale_bytes(range, lane, count) : 0);
    }
    places->blocks =
            snapshot->moments && has_blocks(range)
                    ? place(snapshot,
                            zero_block_count(snapshot->zero, range->id) *
                                    sizeof(float))
                    : SIZE_MAX;
}

struct zero_snapshot *zero_snapshot_create(
        const struct zero *zero, bool moments, void *memory, size_t bytes)
{
    struct zero_snapshot *snapshot = zd_array(1, sizeof *snapshot);
    *snapshot = (struct zero_snapshot){
            .zero = zero,
            .engine = zero->offload.engine,
            .moments = moments,
            .backwards =
                    zero->plan->states_on_host &&
                    zero->plan->request.offload.clipping == OFFLOAD_CLIP_UNDO,
            .memory = memory,
            .room = bytes,
            .ranges = zero->ranges[ZERO_SAVES],
            .count = zero->range_count[ZERO_SAVES]};
    snapshot->places =
            zd_array((size_t)snapshot->count, sizeof *snapshot->places);
    for (int i = 0; i < snapshot->count; i++)
        place_range(snapshot, i);
    assert(snapshot->bytes <= bytes);
    if (snapshot->engine)
        offload_snapshot_create(
                snapshot->engine, snapshot->memory + snapshot->bytes,
                bytes - snapshot->bytes);
    return snapshot;
}

void zero_snapshot_destroy(struct zero_snapshot *snapshot)
{
    if (!snapshot)
        return;
    populate_end(snapshot->populating);
    free(snapshot->places);
    free(snapshot);
}

void zero_snapshot_help(struct zero_snapshot *snapshot, int helpers)
{
    snapshot->helpers = helpers < HELPERS_MAX ? helpers : HELPERS_MAX;
}

void zero_snapshot_warm(struct zero_snapshot *snapshot, bool beside)
{
    assert(!snapshot->populating);
    if (!beside)
        populate(snapshot->memory, snapshot->bytes);
    else
        snapshot->populating =
                populate_begin(snapshot->memory, snapshot->bytes);
}

static void *at(const struct zero_snapshot *snapshot, size_t place)
{
    return place == SIZE_MAX ? NULL : snapshot->memory + place;
}

static enum zd_status copy_part(
        const struct zero_snapshot *snapshot, int r, int lane, size_t begin,
        size_t count)
{
    const struct zero_range *range = &snapshot->ranges[r];
    char *values = at(snapshot, snapshot->places[r].values[lane]);
    char *scales = at(snapshot, snapshot->places[r].scales[lane]);
    if (scales)
        scales += scale_bytes(range, lane, begin);
    return zero_range_move(
            snapshot->zero, range, lane, begin, count,
            values + range_value_bytes(range, lane, begin), (void *)scales,
            ZERO_AWAY);
}

/* Copies that threads take in turn. */
struct sharing {
    const struct zero_snapshot *snapshot;
    _Atomic int next; /* next copy that no thread has taken */
    _Atomic bool failed;
};

/* As many elements at a time as an offload chunk has by default, so that a
 * packed chunk is unpacked only once. */
static enum zd_status copy_some(struct sharing *sharing)
{
    enum { CHUNK = 1 << 20 };
    const struct zero_snapshot *snapshot = sharing->snapshot;
    int mine = atomic_fetch_add(&sharing->next, 1), i = 0;
    for (int r = 0; r < snapshot->count; r++)
        for (int lane = 0; lane < LANES; lane++) {
            bool is_there = snapshot->places[r].values[lane] != SIZE_MAX;
            size_t all = is_there ? snapshot->ranges[r].count : 0;
            for (size_t done = 0; done < all; done += CHUNK) {
                if (i++ < mine)
                    continue;
                ZD_TRY(copy_part(
                        snapshot, r, lane, done, size_min(all - done, CHUNK)));
                mine = atomic_fetch_add(&sharing->next, 1);
            }
        }
    return ZD_OK;
}

static void *copy_thread(void *ctx)
{
    struct sharing *sharing = ctx;
    if (copy_some(sharing) != ZD_OK)
        atomic_store(&sharing->failed, true);
    return NULL;
}

/* One thread cannot saturate memory bandwidth: OpenMP's threads copy too, and
 * others on idle CPUs. */
static void copy_together(struct sharing *sharing)
{
    pthread_t helpers[HELPERS_MAX];
    int count = 0;
    while (count < sharing->snapshot->helpers &&
           thread_start(&helpers[count], "zerod-copy", copy_thread, sharing) ==
                   0)
        count++;
#pragma omp parallel
    copy_thread(sharing);
    for (int i = 0; i < count; i++)
        pthread_join(helpers[i], NULL);
}

/* Only this thread may use the GPU. */
static enum zd_status copy_parts(const struct zero_snapshot *snapshot)
{
    struct sharing sharing = {.snapshot = snapshot};
    if (device_backend() == DEVICE_CPU) {
        copy_together(&sharing);
        if (!atomic_load(&sharing.failed))
            return ZD_OK;
    }
    /* error records are per thread: repeat the failing copy here to get one */
    atomic_store(&sharing.next, 0);
    return copy_some(&sharing);
}

/* Tell the engine what it must copy before changing it. */
static void want_all(struct zero_snapshot *snapshot)
{
    if (!snapshot->engine)
        return;
    offload_snapshot_begin(snapshot->engine, snapshot->moments);
    ZD_EACH(range, snapshot->ranges, snapshot->count)
        offload_snapshot_want(
                snapshot->engine, range->extent,
                range_skip(snapshot->zero, range), range->count);
    offload_snapshot_open(snapshot->engine);
}

enum zd_status zero_snapshot_take(struct zero_snapshot *snapshot)
{
    populate_stop(snapshot->populating);
    ZD_TRY(copy_parts(snapshot));
    for (int i = 0; i < snapshot->count; i++) {
        float *blocks = at(snapshot, snapshot->places[i].blocks);
        if (blocks)
            ZD_TRY(zero_blocks_move(
                    snapshot->zero, snapshot->ranges[i].id, blocks, ZERO_OUT));
    }
    want_all(snapshot);
    return ZD_OK;
}

void zero_snapshot_leave(struct zero_snapshot *snapshot)
{
    if (snapshot->engine)
        offload_snapshot_end(snapshot->engine);
}

double zero_snapshot_waited(const struct zero_snapshot *snapshot)
{
    return snapshot->engine ? offload_snapshot_waited(snapshot->engine) : 0;
}

static enum zd_status read_copy(
        const void *ctx, int i, int lane, size_t begin, size_t count,
        void *values, float *scales)
{
    const struct zero_snapshot *snapshot = ctx;
    const struct zero_range *range = &snapshot->ranges[i];
    assert(lane == ZERO_WEIGHTS || snapshot->moments);
    if (snapshot->engine)
        return offload_snapshot_read(
                snapshot->engine,
                &(struct offload_lane){
                        .extent = range->extent,
                        .lane = lane,
                        .begin = range_skip(snapshot->zero, range) + begin,
                        .count = count,
                        .values = values,
                        .scales = scales});
    const char *from = at(snapshot, snapshot->places[i].values[lane]);
    const char *scale = at(snapshot, snapshot->places[i].scales[lane]);
    if (values && from)
        memcpy(values, from + range_value_bytes(range, lane, begin),
               range_value_bytes(range, lane, count));
    if (scales && scale)
        memcpy(scales, scale + scale_bytes(range, lane, begin),
               scale_bytes(range, lane, count));
    return ZD_OK;
}

static enum zd_status blocks_copy(const void *ctx, int i, float *values)
{
    const struct zero_snapshot *snapshot = ctx;
    memcpy(values, at(snapshot, snapshot->places[i].blocks),
           zero_block_count(snapshot->zero, snapshot->ranges[i].id) *
                   sizeof *values);
    return ZD_OK;
}

struct zero_view zero_snapshot_view(const struct zero_snapshot *snapshot)
{
    return (struct zero_view){
            .ctx = snapshot,
            .read = read_copy,
            .blocks = blocks_copy,
            .backwards = snapshot->backwards};
}
