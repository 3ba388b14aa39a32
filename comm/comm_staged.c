/* Collectives on a device's memory through the host: pieces of an operation go
 * down into pinned memory, through the host's transport, and up again.
 *
 *   compute  --op begun--.                                .--waits for done--
 *   down                 '-> piece 0 | piece 1 | ..       |
 *   host                          piece 0 | piece 1 | ..  |
 *   up                                 piece 0 | piece 1 -'
 *
 * A round is one piece of one operation. Rounds pass the three stages in the
 * order in which they were begun, the same on all ranks; STAGED_SLOTS of them
 * are between the first and the last. The host advances the rounds of all the
 * rank's groups: without waiting in begin, comm_progress and other waits; in
 * comm_wait until the operation's last copy up is queued. Each group has its
 * own stages, streams and memory. */
#include "base/must.h"
#include "comm/backend.h"

#include <assert.h>
#include <stdlib.h>

struct round {
    struct comm_op *op;
    size_t first, count; /* elements of a shard */
    struct event *down, *up;
    struct comm_op *host_op;
};

struct staged {
    struct comm base;
    enum stream_mode mode;
    struct stream *down, *up;
    char *pinned;
    size_t piece_bytes;
    struct round slots[STAGED_SLOTS];
    uint64_t queued, hosted, finished; /* rounds that have reached this stage */
    struct comm_op *ops[COMM_OPS_MAX]; /* a ring; those with rounds */
    uint64_t begun, next; /* next: the operation whose rounds begin next */
    struct event *ready[COMM_OPS_MAX], *done[COMM_OPS_MAX]; /* by op->slot */
    struct event *last_up; /* of the last round that went up; borrowed */
    bool is_waiting;       /* the host waits for its oldest round */
};

static struct staged *staged_of(struct comm *comm)
{
    return (struct staged *)comm;
}

/* --- pinned memory -------------------------------------------------------- */

/* Large enough to hide the fixed costs of copies and messages. */
static size_t piece_bytes(int size, size_t shard_bytes)
{
    const size_t piece_max = 1 << 20, total = 64 << 20, unit = 4 << 10;
    size_t piece = total / STAGED_SLOTS / ((size_t)size + 1);
    if (piece > piece_max)
        piece = piece_max;
    if (piece > shard_bytes)
        piece = shard_bytes;
    return piece < unit ? unit : (piece + unit - 1) / unit * unit;
}

size_t staged_pinned_bytes(int size, size_t shard_bytes)
{
    return STAGED_SLOTS * ((size_t)size + 1) * piece_bytes(size, shard_bytes);
}

static char *slot_full(const struct staged *staged, uint64_t round)
{
    size_t size = (size_t)staged->base.size;
    return staged->pinned +
           round % STAGED_SLOTS * (size + 1) * staged->piece_bytes;
}

/* Elements of a shard that a round moves. An all_to_all's parts take a slot
 * twice: as copied down, and as received. */
static size_t round_most(const struct staged *staged, const struct comm_op *op)
{
    size_t size = (size_t)staged->base.size, bytes = staged->piece_bytes;
    if (op->kind == COMM_ALL_TO_ALL)
        bytes = bytes * (size + 1) / (2 * size);
    return bytes / dtype_bytes(op->type);
}

static char *slot_shard(const struct staged *staged, uint64_t round)
{
    return slot_full(staged, round) +
           (size_t)staged->base.size * staged->piece_bytes;
}

static struct round *round_of(struct staged *staged, uint64_t number)
{
    return &staged->slots[number % STAGED_SLOTS];
}

/* --- down ----------------------------------------------------------------- */

/* The slot where a round's pieces come down, and from which they go up. */
static char *slot_from(struct staged *staged, uint64_t number)
{
    bool gathers = round_of(staged, number)->op->kind == COMM_ALL_GATHER;
    return gathers ? slot_shard(staged, number) : slot_full(staged, number);
}

static char *slot_to(struct staged *staged, uint64_t number)
{
    const struct round *round = round_of(staged, number);
    size_t bytes = round->count * dtype_bytes(round->op->type);
    switch (round->op->kind) {
    case COMM_REDUCE_SCATTER:
        return slot_shard(staged, number);
    case COMM_ALL_TO_ALL:
        return slot_full(staged, number) + (size_t)staged->base.size * bytes;
    default:
        return slot_full(staged, number);
    }
}

/* The piece of every rank, one after the other. */
static enum zd_status copy_full(
        struct staged *staged, const struct round *round, char *host, bool down)
{
    const struct comm_op *op = round->op;
    struct comm *comm = &staged->base;
    size_t width = dtype_bytes(op->type), bytes = round->count * width;
    for (int r = 0; r < comm->size; r++) {
        size_t place = ((size_t)r * op->count + round->first) * width;
        char *mine = host + (size_t)r * bytes;
        if (down)
            ZD_TRY(stream_copy(
                    staged->down, mine, (const char *)op->from + place, bytes));
        else if (
                r != comm->rank ||
                (char *)op->to + (size_t)r * op->count * width != op->from)
            ZD_TRY(stream_copy(
                    staged->up, (char *)op->to + place, mine, bytes));
    }
    return ZD_OK;
}

static enum zd_status queue_down(struct staged *staged)
{
    uint64_t number = staged->queued;
    struct round *round = round_of(staged, number);
    struct comm_op *op = staged->ops[staged->next % COMM_OPS_MAX];
    size_t width = dtype_bytes(op->type);
    size_t piece = round_most(staged, op);
    round->op = op;
    round->first = op->begun[0] * piece;
    round->count = op->count - round->first;
    if (round->count > piece)
        round->count = piece;
    ZD_TRY(stream_wait(staged->down, staged->ready[op->slot]));
    ZD_TRY(stream_wait(staged->down, round->up)); /* the slot is free */
    if (op->kind != COMM_ALL_GATHER)
        ZD_TRY(copy_full(staged, round, slot_full(staged, number), true));
    if (op->kind == COMM_ALL_GATHER || op->accumulate) {
        const char *from = op->accumulate ? op->to : op->from;
        if (op->accumulate) /* the sum of earlier operations */
            ZD_TRY(stream_wait(staged->down, staged->last_up));
        ZD_TRY(stream_copy(
                staged->down, slot_shard(staged, number),
                from + round->first * width, round->count * width));
    }
    ZD_TRY(stream_record(staged->down, round->down));
    staged->queued++;
    if (++op->begun[0] == op->rounds)
        staged->next++;
    return ZD_OK;
}

/* An operation that accumulates must wait until earlier ones have written the
 * shard. */
static bool may_go_down(const struct staged *staged)
{
    if (staged->next == staged->begun ||
        staged->queued - staged->finished == STAGED_SLOTS)
        return false;
    const struct comm_op *op = staged->ops[staged->next % COMM_OPS_MAX];
    return !op->accumulate || op->begun[0] > 0 ||
           staged->finished == staged->queued;
}

/* --- host, up ------------------------------------------------------------- */

static enum zd_status begin_on_host(struct staged *staged)
{
    uint64_t number = staged->hosted;
    struct round *round = round_of(staged, number);
    const struct comm_op *op = round->op;
    struct comm_op part = {
            .kind = op->kind,
            .from = slot_from(staged, number),
            .to = slot_to(staged, number),
            .count = round->count,
            .type = op->type,
            .accumulate = op->accumulate};
    ZD_TRY(comm_part_begin(staged->base.control, &part, &round->host_op));
    staged->hosted++;
    return ZD_OK;
}

/* For the watch, this is a wait for the operation. */
static enum zd_status wait_on_host(struct staged *staged)
{
    struct round *round = round_of(staged, staged->finished);
    struct seat *seat = staged->base.seat;
    staged->is_waiting = true;
    seat_wait_begin(seat, LANE_OPERATIONS, round->op->sequence + 1);
    enum zd_status status =
            comm_part_wait(staged->base.control, round->host_op);
    seat_wait_end(seat);
    staged->is_waiting = false;
    return status;
}

static enum zd_status take_up(struct staged *staged)
{
    uint64_t number = staged->finished;
    struct round *round = round_of(staged, number);
    struct comm_op *op = round->op;
    size_t width = dtype_bytes(op->type);
    if (op->kind != COMM_REDUCE_SCATTER)
        ZD_TRY(copy_full(staged, round, slot_to(staged, number), false));
    else
        ZD_TRY(stream_copy(
                staged->up, (char *)op->to + round->first * width,
                slot_shard(staged, number), round->count * width));
    ZD_TRY(stream_record(staged->up, round->up));
    staged->last_up = round->up;
    staged->finished++;
    if (++op->done[0] == op->rounds)
        ZD_TRY(stream_record(staged->up, staged->done[op->slot]));
    return ZD_OK;
}

/* Whether the oldest round can finish without waiting. If the transport does
 * not know, the round is finished only when the caller waits. */
static enum zd_status has_arrived(struct staged *staged, bool *arrived_out)
{
    struct comm *control = staged->base.control;
    *arrived_out = false;
    if (staged->finished == staged->hosted || !control->functions->test)
        return ZD_OK;
    return control->functions->test(
            control, round_of(staged, staged->finished)->host_op, arrived_out);
}

/* Advance as far as possible without waiting. */
static enum zd_status move_on(struct staged *staged)
{
    bool arrived, moved;
    do {
        moved = false;
        while (may_go_down(staged))
            ZD_TRY(queue_down(staged));
        while (staged->hosted < staged->queued &&
               event_is_done(round_of(staged, staged->hosted)->down)) {
            ZD_TRY(begin_on_host(staged));
            moved = true;
        }
        ZD_TRY(has_arrived(staged, &arrived));
        if (arrived) {
            struct round *oldest = round_of(staged, staged->finished);
            ZD_TRY(comm_part_wait(staged->base.control, oldest->host_op));
            ZD_TRY(take_up(staged));
            moved = true;
        }
    } while (moved);
    return ZD_OK;
}

static enum zd_status staged_progress(struct comm *comm)
{
    for (struct comm *c = comm->root; c; c = c->next)
        if (!staged_of(c)->is_waiting)
            ZD_TRY(move_on(staged_of(c)));
    return ZD_OK;
}

/* --- collectives ---------------------------------------------------------- */

static enum zd_status staged_begin(struct comm *comm, struct comm_op *op)
{
    struct staged *staged = staged_of(comm);
    size_t piece = round_most(staged, op);
    assert(staged->pinned);
    op->rounds = (op->count + piece - 1) / piece;
    if (op->rounds == 0)
        return ZD_OK;
    ZD_TRY(stream_record(NULL, staged->ready[op->slot]));
    staged->ops[staged->begun++ % COMM_OPS_MAX] = op;
    return move_on(staged);
}

static enum zd_status staged_wait(struct comm *comm, struct comm_op *op)
{
    struct staged *staged = staged_of(comm);
    if (op->rounds == 0)
        return ZD_OK;
    for (;;) {
        ZD_TRY(staged_progress(comm));
        if (op->done[0] == op->rounds)
            break;
        if (staged->finished < staged->hosted) {
            ZD_TRY(wait_on_host(staged));
            ZD_TRY(take_up(staged));
        } else {
            ZD_TRY(event_wait(round_of(staged, staged->hosted)->down));
            ZD_TRY(begin_on_host(staged));
        }
    }
    return stream_wait(NULL, staged->done[op->slot]);
}

/* --- life ----------------------------------------------------------------- */

static void staged_set_memory(struct comm *comm, const struct arena *arena)
{
    struct staged *staged = staged_of(comm);
    char name[COMM_SPAN_MAX];
    if (!arena) /* host memory stays valid */
        return;
    comm_span_name(comm->row.name, "pinned", name);
    const struct arena_span *span = arena_plan_find(arena->plan, name);
    comm_set_memory(staged->base.control, arena);
    if (!span)
        return;
    staged->pinned = arena_span(arena, name);
    staged->piece_bytes = span->bytes / STAGED_SLOTS / ((size_t)comm->size + 1);
}

static void staged_destroy(struct comm *comm)
{
    struct staged *staged = staged_of(comm);
    stream_finish(staged->down);
    stream_finish(staged->up);
    for (int i = 0; i < COMM_OPS_MAX; i++) {
        event_destroy(staged->ready[i]);
        event_destroy(staged->done[i]);
    }
    for (int i = 0; i < STAGED_SLOTS; i++) {
        event_destroy(staged->slots[i].down);
        event_destroy(staged->slots[i].up);
    }
    stream_destroy(staged->down);
    stream_destroy(staged->up);
    if (comm->root == comm)
        comm->control->root->rounds = NULL;
    comm_base_fini(comm);
    free(staged);
}

static enum zd_status create_parts(struct staged *staged)
{
    if (staged->base.size == 1)
        return ZD_OK;
    ZD_TRY(stream_create("comm down", staged->mode, &staged->down));
    ZD_TRY(stream_create("comm up", staged->mode, &staged->up));
    for (int i = 0; i < COMM_OPS_MAX; i++) {
        ZD_TRY(event_create(&staged->ready[i]));
        ZD_TRY(event_create(&staged->done[i]));
    }
    for (int i = 0; i < STAGED_SLOTS; i++) {
        ZD_TRY(event_create(&staged->slots[i].down));
        ZD_TRY(event_create(&staged->slots[i].up));
    }
    return ZD_OK;
}

static enum zd_status staged_group(
        struct comm *parent, struct comm *control, const struct comm_row *row,
        struct comm **group_out)
{
    struct staged *staged = zd_array(1, sizeof *staged);
    comm_group_init(&staged->base, parent, control, row);
    staged->mode = staged_of(parent)->mode;
    *group_out = &staged->base;
    return create_parts(staged);
}

static const struct comm_functions staged_functions = {
        .group = staged_group,
        .begin = staged_begin,
        .wait = staged_wait,
        .progress = staged_progress,
        .set_memory = staged_set_memory,
        .transport = COMM_TRANSPORT_STAGED,
        .destroy = staged_destroy,
};

enum zd_status comm_staged_create(
        struct comm *control, enum stream_mode mode, struct comm **comm_out)
{
    struct staged *staged = zd_array(1, sizeof *staged);
    comm_device_init(&staged->base, control, &staged_functions);
    staged->mode = mode;
    control->root->rounds = &staged->base;
    enum zd_status status = create_parts(staged);
    if (status != ZD_OK) {
        staged_destroy(&staged->base);
        return status;
    }
    *comm_out = &staged->base;
    return ZD_OK;
}
