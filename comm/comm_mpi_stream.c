#include "base/must.h"

#include "comm/comm_mpi.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* --- the door --------------------------------------------------------------
 */

enum zd_status mpi_check(int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    if (code == MPI_SUCCESS)
        return ZD_OK;
    MPI_Error_string(code, text, &length);
    return ZD_FAIL(ZD_ERR_PEER, "E0502", "%s failed: %.*s", call, length, text);
}

int mpi_peer(const struct comm *comm, int i)
{
    return i < comm->rank ? i : i + 1;
}

void comm_mpi_library(char *out, size_t bytes)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n")] = '\0';
    snprintf(out, bytes, "%s", text);
}

/* Data that is not summed is received in place, where only MPI's limit of 2^31
 * bytes per message matters. */
static const size_t IN_PLACE_CHUNK = (size_t)256 << 20;
/* Sends under way to one peer: 64 chunks of staging are 16 MiB. */
enum { SEND_DEPTH = 64 };

void stream_init(
        struct mpi_stream *stream, struct mpi *mpi, enum comm_op_kind kind)
{
    size_t peers = (size_t)mpi->base.size - 1;
    stream->mpi = mpi;
    stream->kind = kind;
    stream->tag = TAG_OPERATIONS + (int)kind;
    stream->windows[SEND].depth = SEND_DEPTH;
    if (kind == COMM_REDUCE_SCATTER) {
        stream->chunk_bytes = staging_chunk_bytes(mpi->base.size);
        stream->windows[RECEIVE].depth = STAGING_SLOTS;
    } else {
        stream->chunk_bytes = IN_PLACE_CHUNK;
        stream->windows[RECEIVE].depth = COMM_OPS_MAX;
    }
    ZD_EACH(window, stream->windows, 2) {
        size_t count = (size_t)window->depth * peers;
        window->requests = zd_must(malloc(count * sizeof(MPI_Request) + 1));
        for (size_t i = 0; i < count; i++)
            window->requests[i] = MPI_REQUEST_NULL;
    }
    stream->parts = zd_array(peers + 1, sizeof *stream->parts);
}

static void window_cancel(struct mpi_window *window, int peers)
{
    int count = window->requests ? window->depth * peers : 0;
    for (int i = 0; i < count; i++) {
        if (window->requests[i] == MPI_REQUEST_NULL)
            continue;
        /* after a failure only: the other side may never come */
        MPI_Cancel(&window->requests[i]);
        MPI_Request_free(&window->requests[i]);
    }
    free(window->requests);
}

void stream_fini(struct mpi_stream *stream)
{
    if (!stream->mpi)
        return;
    for (int d = 0; d < 2; d++)
        window_cancel(&stream->windows[d], stream->mpi->base.size - 1);
    free(stream->parts);
}

bool stream_op_is_done(const struct comm_op *op)
{
    return op->done[SEND] == op->rounds && op->done[RECEIVE] == op->rounds;
}

/* --- rounds --------------------------------------------------------------- */

struct piece {            /* of a shard: what one round moves */
    size_t offset, count; /* elements */
    int bytes;
};

static struct piece piece_of(
        const struct mpi_stream *stream, const struct comm_op *op, size_t round)
{
    size_t width = dtype_bytes(op->type);
    size_t per_round = stream->chunk_bytes / width;
    struct piece piece = {.offset = round * per_round};
    piece.count = op->count - piece.offset;
    if (piece.count > per_round)
        piece.count = per_round;
    piece.bytes = (int)(piece.count * width);
    return piece;
}

static MPI_Request *requests_of(
        const struct mpi_stream *stream, enum direction direction,
        uint64_t round)
{
    const struct mpi_window *window = &stream->windows[direction];
    return window->requests + (size_t)(round % (uint64_t)window->depth) *
                                      (size_t)(stream->mpi->base.size - 1);
}

/* Where the i-th peer's message of a round arrives. */
static char *slot_of(const struct mpi_stream *stream, uint64_t round, int i)
{
    size_t slot = (size_t)(round % STAGING_SLOTS);
    size_t peers = (size_t)stream->mpi->base.size - 1;
    return (char *)stream->mpi->base.staging +
           (slot * peers + (size_t)i) * stream->chunk_bytes;
}

/* The next message to each peer, or from it. */
static enum zd_status begin_round(
        struct mpi_stream *stream, enum direction direction,
        const struct comm_op *op)
{
    struct comm *comm = &stream->mpi->base;
    uint64_t round = stream->windows[direction].begun;
    struct piece piece = piece_of(stream, op, op->begun[direction]);
    MPI_Request *requests = requests_of(stream, direction, round);
    size_t width = dtype_bytes(op->type), offset = piece.offset * width;
    for (int i = 0; i < comm->size - 1; i++) {
        int peer = mpi_peer(comm, i);
        size_t shard = (size_t)peer * op->count * width;
        const char *from = (const char *)op->from + offset;
        char *to = (char *)op->to + shard + offset;
        if (op->kind != COMM_ALL_GATHER)
            from += shard;
        if (op->kind == COMM_REDUCE_SCATTER)
            to = slot_of(stream, round, i);
        if (direction == SEND)
            ZD_MPI(MPI_Isend, from, piece.bytes, MPI_BYTE, peer, stream->tag,
                   stream->mpi->world, &requests[i]);
        else
            ZD_MPI(MPI_Irecv, to, piece.bytes, MPI_BYTE, peer, stream->tag,
                   stream->mpi->world, &requests[i]);
    }
    return ZD_OK;
}

/* All of a round is here: add it up in rank order. */
static void sum_round(struct mpi_stream *stream, const struct comm_op *op)
{
    struct comm *comm = &stream->mpi->base;
    struct piece piece = piece_of(stream, op, op->done[RECEIVE]);
    size_t width = dtype_bytes(op->type);
    stream->parts[comm->rank] =
            (const char *)op->from +
            ((size_t)comm->rank * op->count + piece.offset) * width;
    for (int i = 0; i < comm->size - 1; i++)
        stream->parts[mpi_peer(comm, i)] =
                slot_of(stream, stream->windows[RECEIVE].done, i);
    sum_parts(
            (char *)op->to + piece.offset * width, op->type, op->accumulate,
            stream->parts, comm->size, comm->mesh.node, piece.count);
}

/* --- windows -------------------------------------------------------------- */

static struct comm_op *queued_op(
        const struct mpi_stream *stream, uint64_t place)
{
    return stream->queue[place % COMM_OPS_MAX];
}

/* Begin rounds as long as the window has room. */
static enum zd_status begin_rounds(
        struct mpi_stream *stream, enum direction direction, bool *moved)
{
    struct mpi_window *window = &stream->windows[direction];
    while (window->begin_op < stream->queued &&
           window->begun - window->done < (uint64_t)window->depth) {
        struct comm_op *op = queued_op(stream, window->begin_op);
        ZD_TRY(begin_round(stream, direction, op));
        window->begun++;
        /* at once: an operation that is done leaves the queue */
        if (++op->begun[direction] == op->rounds)
            window->begin_op++;
        *moved = true;
    }
    return ZD_OK;
}

/* Finish rounds, oldest first, as long as they have arrived. */
static enum zd_status finish_rounds(
        struct mpi_stream *stream, enum direction direction, bool *moved)
{
    struct mpi_window *window = &stream->windows[direction];
    while (window->done < window->begun) {
        struct comm_op *op = queued_op(stream, window->done_op);
        int arrived = 0;
        ZD_MPI(MPI_Testall, stream->mpi->base.size - 1,
               requests_of(stream, direction, window->done), &arrived,
               MPI_STATUSES_IGNORE);
        if (!arrived)
            break;
        if (direction == RECEIVE && stream->kind == COMM_REDUCE_SCATTER)
            sum_round(stream, op);
        window->done++;
        if (++op->done[direction] == op->rounds)
            window->done_op++;
        *moved = true;
        /* room for one more: keep the transport busy */
        ZD_TRY(begin_rounds(stream, direction, moved));
    }
    return ZD_OK;
}

enum zd_status stream_progress(struct mpi_stream *stream, bool *moved_out)
{
    ZD_TRY(finish_rounds(stream, RECEIVE, moved_out));
    return finish_rounds(stream, SEND, moved_out);
}

enum zd_status stream_begin(struct mpi_stream *stream, struct comm_op *op)
{
    size_t per_round = stream->chunk_bytes / dtype_bytes(op->type);
    bool moved = false;
    assert(op->kind != COMM_REDUCE_SCATTER || stream->mpi->base.staging);
    op->rounds = (op->count + per_round - 1) / per_round;
    if (op->rounds == 0)
        return ZD_OK;
    stream->queue[stream->queued++ % COMM_OPS_MAX] = op;
    ZD_TRY(begin_rounds(stream, RECEIVE, &moved));
    return begin_rounds(stream, SEND, &moved);
}
