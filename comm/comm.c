#include "base/must.h"
#include "comm/backend.h"

#include "base/copy.h"
#include "base/device/device_memory.h"
#include "zd_config.h"

#if ZD_HAVE_CUDA
#include "comm/sum_cuda.h"
#endif

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- what every rank knows ------------------------------------------------ */

int comm_rank(const struct comm *comm)
{
    return comm->rank;
}

int comm_size(const struct comm *comm)
{
    return comm->size;
}

int comm_local_rank(const struct comm *comm)
{
    return comm->local_rank;
}

int comm_local_size(const struct comm *comm)
{
    return comm->local_size;
}

const char *comm_host(const struct comm *comm)
{
    return comm->host;
}

const struct topology *comm_topology(const struct comm *comm)
{
    return comm->topology;
}

struct comm_counters comm_counters(const struct comm *comm)
{
    return comm->counters;
}

const char *comm_counter_name(int i)
{
    static const char *const names[COMM_COUNTERS] = {
            "reduce_scatter", "all_gather", "all_to_all", "all_reduce"};
    return names[i];
}

enum comm_transport comm_transport(const struct comm *comm)
{
    return comm->functions->transport;
}

struct mesh comm_mesh(const struct comm *comm)
{
    return comm->mesh;
}

/* --- levels --------------------------------------------------------------- */

static enum zd_status refuse_levels(int world)
{
    ZD_FAIL(ZD_ERR_CONFIG, "E1230",
            "comm.hierarchical = true: the %d ranks are not nodes of equal "
            "size with neighboring ranks",
            world);
    return zd_fail_help("comm.hierarchical = \"auto\"");
}

enum zd_status comm_node_size_expected(
        const struct comm_options *options, enum comm_transport transport,
        int world, int per_node, int *node_size_out)
{
    bool is_nccl = transport == COMM_TRANSPORT_NCCL;
    bool wanted = options->hierarchical == COMM_LEVELS_TWO ||
                  (options->hierarchical == COMM_LEVELS_AUTO && is_nccl);
    bool fits = mesh_has_nodes(world, per_node);
    *node_size_out = world;
    if (options->hierarchical == COMM_LEVELS_TWO && per_node > 0 && !fits)
        return refuse_levels(world);
    if (wanted && fits && per_node < world && (per_node > 1 || !is_nccl))
        *node_size_out = per_node;
    return ZD_OK;
}

enum zd_status comm_levels_settle(struct comm *comm, int node_ranks)
{
    const struct comm_options *options = &comm->options;
    if (options->ranks_per_node > 0)
        node_ranks = options->ranks_per_node;
    if (!mesh_has_nodes(comm->size, node_ranks))
        node_ranks = 0;
    comm->node_ranks = node_ranks;
    if (options->hierarchical == COMM_LEVELS_TWO) {
        if (!node_ranks)
            return refuse_levels(comm->size);
        comm->mesh = mesh_of(comm->size, node_ranks);
    }
    return ZD_OK;
}

/* --- multiprocessors ------------------------------------------------------ */

int comm_max_ctas(const struct comm_options *options, int multiprocessors)
{
    enum { LEAST = 8, MOST = 16 };
    int eighth = multiprocessors / 8;
    if (options->max_ctas != COMM_CTAS_AUTO)
        return options->max_ctas;
    return eighth < LEAST ? LEAST : eighth > MOST ? MOST : eighth;
}

/* --- staging -------------------------------------------------------------- */

/* A chunk fits a core's cache, where it is summed right after it arrived, and
 * is large enough to hide the cost of a message. With many ranks chunks shrink,
 * to bound the total. */
size_t staging_chunk_bytes(int size)
{
    const size_t chunk_max = 256 << 10, chunk_min = 4 << 10, total = 16 << 20;
    size_t share = total / STAGING_SLOTS / (size_t)(size > 1 ? size - 1 : 1);
    share = share / chunk_min * chunk_min;
    if (share > chunk_max)
        return chunk_max;
    return share < chunk_min ? chunk_min : share;
}

size_t comm_staging_bytes(int size)
{
    return (size_t)(size - 1) * STAGING_SLOTS * staging_chunk_bytes(size);
}

const char *comm_span_name(
        const char *group, const char *what, char out[COMM_SPAN_MAX])
{
    snprintf(
            out, COMM_SPAN_MAX, "comm.%s%s%s", group ? group : "",
            group ? "." : "", what);
    return out;
}

void comm_set_memory(struct comm *comm, const struct arena *arena)
{
    char name[COMM_SPAN_MAX];
    comm_span_name(comm->row.name, "staging", name);
    if (comm->functions->set_memory)
        comm->functions->set_memory(comm, arena);
    else if (arena && arena_plan_find(arena->plan, name))
        comm->staging = arena_span(arena, name);
}

/* A world of one needs none. */
size_t comm_scratch_values(int size)
{
    size_t scalars = (size_t)size * COMM_REDUCE_PIECE;
    return size > 1 && scalars < COMM_REDUCE_ARRAY ? COMM_REDUCE_ARRAY
                                                   : scalars;
}

/* --- life ----------------------------------------------------------------- */

void comm_base_init(
        struct comm *comm, const struct comm_functions *functions, int rank,
        int size, const struct comm_options *options)
{
    comm->functions = functions;
    comm->root = comm;
    comm->rank = rank;
    comm->size = size;
    comm->row = (struct comm_row){.stride = 1, .count = size};
    comm->options = *options;
    const char *nodes = getenv("ZEROD_TEST_RANKS_PER_NODE");
    if (nodes && comm->options.ranks_per_node == 0)
        comm->options.ranks_per_node = atoi(nodes);
    comm->mesh = mesh_of(size, 0);
    for (int i = 0; i < COMM_OPS_MAX; i++)
        comm->ops[i].slot = i;
    comm->reduce_scratch = zd_must(malloc(comm_scratch_values(size) * 8));
}

void comm_base_fini(struct comm *comm)
{
    if (comm->control || comm->root != comm)
        return;
    free(comm->topology);
    free(comm->reduce_scratch);
}

void comm_give_up(struct comm *comm)
{
    if (comm->watch)
        watch_give_up(comm->watch);
    if (comm->functions->give_up)
        comm->functions->give_up(comm);
}

/* --- collectives ---------------------------------------------------------- */

/* Round-robin, so that operations that are waited for in the order in which
 * they began have the same slots on all ranks, however begins and waits
 * interleave. */
static struct comm_op *take_op(struct comm *comm)
{
    for (int i = 0; i < COMM_OPS_MAX; i++) {
        uint64_t slot = (comm->begun + (uint64_t)i) % COMM_OPS_MAX;
        if (!comm->ops[slot].in_use)
            return &comm->ops[slot];
    }
    assert(!"more than COMM_OPS_MAX operations under way");
    return NULL;
}

/* Tells the watch what begins in a lane; without a kind nothing is sent. */
static void note_begun(
        const struct comm *comm, enum seat_lane lane, uint64_t number,
        enum seat_kind kind, const struct comm_op *op)
{
    const struct comm_row *row = &comm->row;
    struct seat_op seat = {
            .number = number, .kind = (uint8_t)kind, .lane = (uint8_t)lane};
    if (!comm->seat)
        return;
    if (op) {
        seat.type = (uint8_t)op->type;
        seat.bytes = op->count * dtype_bytes(op->type) * (size_t)comm->size;
    }
    if (comm->root != comm) {
        seat.first = (uint32_t)row->first;
        seat.stride = (uint32_t)row->stride;
        seat.count = (uint32_t)row->count;
        ZD_PRINT(seat.group, "%s", row->name);
    }
    seat_begin(comm->seat, &seat);
}

/* to += from, in fp32. */
static enum zd_status add_own(const struct comm *comm, const struct comm_op *op)
{
#if ZD_HAVE_CUDA
    if (comm->control && device_backend() == DEVICE_CUDA)
        return comm_add_cuda(NULL, op->to, op->from, op->count);
#endif
    sum_parts(op->to, DTYPE_FP32, true, &op->from, 1, 1, op->count);
    return ZD_OK;
}

/* Copies this rank's own contribution: its shard or part; in a world of one the
 * sum. */
static enum zd_status give_own(
        const struct comm *comm, const struct comm_op *op)
{
    size_t bytes = op->count * dtype_bytes(op->type);
    size_t place = (size_t)comm->rank * bytes;
    char *own = op->to;
    const char *from = op->from;
    if (op->accumulate)
        return add_own(comm, op);
    if (op->kind != COMM_REDUCE_SCATTER)
        own += place;
    if (op->kind == COMM_ALL_TO_ALL)
        from += place;
    if (own == from || !bytes)
        return ZD_OK;
    if (!comm->control)
        copy_past_cache(own, from, bytes);
    else if (comm->size == 1) /* with more, the back end does it */
        return device_move(own, from, bytes);
    return ZD_OK;
}

enum zd_status comm_part_begin(
        struct comm *comm, const struct comm_op *part, struct comm_op **op_out)
{
    struct comm_op *op = take_op(comm);
    int slot = op->slot;
    *op = *part;
    op->slot = slot;
    op->order = comm->begun++;
    if (op->kind != COMM_REDUCE_SCATTER || comm->size == 1)
        ZD_TRY(give_own(comm, op));
    if (comm->size > 1)
        ZD_TRY(comm->functions->begin(comm, op));
    op->in_use = true;
    *op_out = op;
    return ZD_OK;
}

enum zd_status comm_begin(
        struct comm *comm, const struct comm_op *request,
        struct comm_op **op_out)
{
    struct comm_op op = *request;
    assert(!op.accumulate || op.type == DTYPE_FP32);
    assert(op.kind != COMM_ALL_TO_ALL || op.from != op.to || op.count == 0);
    op.sequence = comm->root->next_sequence++;
    bool sends = comm->size > 1 && (!comm->control || op.count > 0);
    note_begun(
            comm, LANE_OPERATIONS, op.sequence + 1,
            sends ? SEAT_REDUCE_SCATTER + op.kind : SEAT_NOTHING, &op);
    comm->counters.bytes[op.kind] +=
            (uint64_t)(comm->size - 1) * op.count * dtype_bytes(op.type);
    return comm_part_begin(comm, &op, op_out);
}

enum zd_status comm_part_wait(struct comm *comm, struct comm_op *op)
{
    assert(op->in_use);
    enum zd_status status =
            comm->size > 1 ? comm->functions->wait(comm, op) : ZD_OK;
    op->in_use = false;
    return status;
}

enum zd_status comm_wait(struct comm *comm, struct comm_op *op)
{
    bool is_wait = comm->seat && !comm->control && comm->size > 1;
    if (is_wait)
        seat_wait_begin(comm->seat, LANE_OPERATIONS, op->sequence + 1);
    enum zd_status status = comm_part_wait(comm, op);
    if (is_wait)
        seat_wait_end(comm->seat);
    return status;
}

enum zd_status comm_progress(struct comm *comm)
{
    bool moves = comm->root->size > 1 && comm->functions->progress;
    return moves ? comm->functions->progress(comm) : ZD_OK;
}

/* --- messages ------------------------------------------------------------- */

/* Message 1 is that of joining (watch/watch.c). */
enum { FIRST_MESSAGE = 2 };

static bool is_watched(const struct comm *by)
{
    return by->seat && by->size > 1;
}

static uint64_t message_number(const struct comm *by)
{
    return by->root->messages - 1 + FIRST_MESSAGE;
}

static struct comm *number_message(struct comm *comm, enum seat_kind kind)
{
    struct comm *by = comm->control ? comm->control : comm;
    by->root->messages++;
    note_begun(
            by, LANE_MESSAGES, message_number(by),
            by->size > 1 ? kind : SEAT_NOTHING, NULL);
    return by;
}

static void wait_for_message(struct comm *by)
{
    if (is_watched(by))
        seat_wait_begin(by->seat, LANE_MESSAGES, message_number(by));
}

struct comm *comm_message_begin(struct comm *comm, enum seat_kind kind)
{
    struct comm *by = number_message(comm, kind);
    wait_for_message(by);
    return by;
}

void comm_message_end(struct comm *by)
{
    if (is_watched(by))
        seat_wait_end(by->seat);
}

/* The exchange of the message that was numbered last. */
static enum zd_status message_exchange(
        struct comm *comm, const struct exchange *exchange)
{
    struct comm *by = comm->control ? comm->control : comm;
    wait_for_message(by);
    enum zd_status status = by->functions->exchange(by, exchange);
    comm_message_end(by);
    return status;
}

/* --- sums of integers ----------------------------------------------------- */

static int64_t combine_i64(int64_t a, int64_t b, enum comm_reduction reduction)
{
    switch (reduction) {
    case COMM_SUM:
        return (int64_t)((uint64_t)a + (uint64_t)b); /* digests wrap */
    case COMM_MAX:
        return a > b ? a : b;
    case COMM_MIN:
        return a < b ? a : b;
    }
    return 0;
}

/* all: (size, count), in rank order. */
static void combine(
        int64_t *values, const int64_t *all, int size, size_t count,
        enum comm_reduction reduction)
{
    memcpy(values, all, count * sizeof *values);
    for (int r = 1; r < size; r++)
        for (size_t i = 0; i < count; i++)
            values[i] = combine_i64(
                    values[i], all[(size_t)r * count + i], reduction);
}

/* `count` values to and from every rank; strides are in values. */
static enum zd_status exchange_i64(
        struct comm *comm, const int64_t *from, size_t from_stride, int64_t *to,
        size_t to_stride, size_t count)
{
    const struct exchange exchange = {
            .from = from,
            .from_stride = from_stride * sizeof *from,
            .to = to,
            .to_stride = to_stride * sizeof *to,
            .bytes = count * sizeof *to,
            .traffic = TRAFFIC_STEP};
    ZD_TRY(message_exchange(comm, &exchange));
    comm->counters.bytes[COMM_ALL_REDUCE] +=
            (uint64_t)(comm->size - 1) * exchange.bytes;
    return ZD_OK;
}

/* Every rank receives all values of all ranks: the lowest latency. */
static enum zd_status reduce_scalars(
        struct comm *comm, int64_t *values, size_t count,
        enum comm_reduction reduction)
{
    int64_t *all = comm->reduce_scratch;
    for (size_t done = 0, piece; done < count; done += piece) {
        piece = count - done < COMM_REDUCE_PIECE ? count - done
                                                 : COMM_REDUCE_PIECE;
        ZD_TRY(exchange_i64(comm, values + done, 0, all, piece, piece));
        combine(values + done, all, comm->size, piece, reduction);
    }
    return ZD_OK;
}

/* For arrays: a reduce_scatter of parts, then an all_gather, in pieces. */
static enum zd_status reduce_parts(
        struct comm *comm, int64_t *values, size_t part,
        enum comm_reduction reduction)
{
    int64_t *all = comm->reduce_scratch;
    int64_t *mine = values + (size_t)comm->rank * part;
    size_t room = comm_scratch_values(comm->size) / (size_t)comm->size;
    for (size_t done = 0, piece; done < part; done += piece) {
        piece = part - done < room ? part - done : room;
        ZD_TRY(exchange_i64(comm, values + done, part, all, piece, piece));
        combine(mine + done, all, comm->size, piece, reduction);
    }
    for (size_t done = 0, piece; done < part; done += piece) {
        piece = part - done < COMM_REDUCE_ARRAY ? part - done
                                                : COMM_REDUCE_ARRAY;
        ZD_TRY(exchange_i64(comm, mine + done, 0, values + done, part, piece));
    }
    return ZD_OK;
}

/* Values of a rank's part; 0: these are scalars. */
static size_t part_of(int world, size_t count)
{
    return count > COMM_REDUCE_SCALARS ? count / (size_t)world : 0;
}

uint64_t comm_all_reduce_bytes(int world, size_t count)
{
    size_t part = part_of(world, count);
    uint64_t rest = count - part * (size_t)world;
    return (uint64_t)(world - 1) * sizeof(int64_t) * (2 * part + rest);
}

enum zd_status comm_all_reduce_i64(
        struct comm *comm, int64_t *values, size_t count,
        enum comm_reduction reduction)
{
    size_t part = part_of(comm->size, count);
    size_t parts = part * (size_t)comm->size;
    number_message(comm, SEAT_ALL_REDUCE);
    if (comm->size == 1)
        return ZD_OK;
    ZD_TRY(reduce_parts(comm, values, part, reduction));
    return reduce_scalars(comm, values + parts, count - parts, reduction);
}

/* --- control messages ----------------------------------------------------- */

enum zd_status comm_barrier(struct comm *comm)
{
    char here = 0;
    number_message(comm, SEAT_BARRIER);
    return comm_gather_again(comm, &here, sizeof here, comm->reduce_scratch);
}

enum zd_status comm_broadcast(
        struct comm *comm, void *data, size_t bytes, int root)
{
    struct comm *by = comm_message_begin(comm, SEAT_BROADCAST);
    enum zd_status status =
            comm->size > 1 && bytes > 0
                    ? by->functions->broadcast(by, data, bytes, root)
                    : ZD_OK;
    comm_message_end(by);
    return status;
}

enum zd_status comm_gather_all(
        struct comm *comm, const void *mine, size_t bytes, void *all)
{
    number_message(comm, SEAT_GATHER);
    return comm_gather_again(comm, mine, bytes, all);
}

enum zd_status comm_gather_again(
        struct comm *comm, const void *mine, size_t bytes, void *all)
{
    if (bytes == 0)
        return ZD_OK;
    if (comm->size == 1) {
        memmove(all, mine, bytes);
        return ZD_OK;
    }
    return message_exchange(
            comm, &(struct exchange){
                          .from = mine,
                          .to = all,
                          .to_stride = bytes,
                          .bytes = bytes,
                          .traffic = TRAFFIC_CONTROL});
}
