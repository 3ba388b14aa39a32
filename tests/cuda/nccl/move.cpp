/* What operations do on their streams. */
#include "tests/cuda/nccl/internal.h"

extern "C" {
#include "base/number/dtype.h"
}

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

static const char *const kind_names[] = {
        "AllGather", "ReduceScatter", "Send/Recv"};

size_t type_bytes(ncclDataType_t type)
{
    switch (type) {
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    case ncclFloat32:
        return 4;
    default:
        return 0;
    }
}

void comm_fail(
        struct ncclComm *comm, ncclResult_t error, const char *format, ...)
{
    va_list args;
    std::lock_guard<std::mutex> hold(comm->lock);
    if (comm->error != ncclSuccess)
        return;
    comm->error = error;
    va_start(args, format);
    vsnprintf(comm->message, sizeof comm->message, format, args);
    va_end(args);
}

/* The half that is written before the next meeting, and read after it. */
static int next_half(struct ncclComm *comm)
{
    return (int)((comm->phase + 1) % 2);
}

static unsigned char *buffer_of(struct ncclComm *comm, int rank, int half)
{
    return comm->buffers + (size_t)rank * BUFFER_BYTES +
           (size_t)half * HALF_BYTES;
}

static void describe(
        char *out, size_t bytes, const struct description *description)
{
    snprintf(
            out, bytes, "%s #%llu of %llu elements of type %d",
            kind_names[description->kind],
            (unsigned long long)description->number,
            (unsigned long long)description->count, description->type);
}

static size_t largest_send(const struct operation *op)
{
    size_t most = 0;
    for (const struct transfer &t : op->transfers)
        most = std::max(most, t.bytes);
    return most;
}

static void enter(struct operation *op, int half)
{
    struct ncclComm *comm = op->comm;
    struct description *description =
            &comm->board->places[comm->rank].descriptions[half];
    *description = {op->number, op->kind,         op->type,
                    op->count,  largest_send(op), {}};
    for (const struct transfer &t : op->transfers)
        if (t.is_send)
            description->sends[t.peer] = t.bytes;
}

/* What is received is what the peer sends. */
static bool transfers_meet(struct operation *op, int half)
{
    struct ncclComm *comm = op->comm;
    for (const struct transfer &t : op->transfers) {
        unsigned long long sent = comm->board->places[t.peer]
                                          .descriptions[half]
                                          .sends[comm->rank];
        if (t.is_send || sent == t.bytes)
            continue;
        comm_fail(
                comm, ncclInvalidUsage,
                "rank %d receives %zu bytes of rank %d, which sends %llu",
                comm->rank, t.bytes, t.peer, sent);
        return false;
    }
    return true;
}

/* All ranks are in the same operation, or it fails on all. */
static bool is_the_same(struct operation *op, int half)
{
    struct ncclComm *comm = op->comm;
    const struct description *first =
            &comm->board->places[0].descriptions[half];
    for (int r = 1; r < comm->size; r++) {
        const struct description *other =
                &comm->board->places[r].descriptions[half];
        char a[128], b[128];
        if (memcmp(first, other, offsetof(struct description, most)) == 0)
            continue;
        while (failure_wanted("unequal", 0, comm->world_rank) &&
               !comm->is_aborted.load())
            usleep(1000);
        describe(a, sizeof a, first);
        describe(b, sizeof b, other);
        comm_fail(
                comm, ncclInvalidUsage, "rank 0 is in %s, rank %d in %s", a, r,
                b);
        return false;
    }
    return true;
}

/* --- sums ----------------------------------------------------------------- */

static enum dtype dtype_of(ncclDataType_t type)
{
    return type == ncclFloat32   ? DTYPE_FP32
           : type == ncclFloat16 ? DTYPE_FP16
                                 : DTYPE_BF16;
}

/* NCCL_STANDIN_SUMS=ring: as along a ring, from the rank behind the one that
 * keeps the sum, and rounded where it is passed on. */
static bool sums_in_rings(void)
{
    const char *sums = getenv("NCCL_STANDIN_SUMS");
    return sums && strcmp(sums, "ring") == 0;
}

/* to = the sum of the ranks' values at `place` of their buffers, in rank order,
 * in fp32, rounded once; or in a ring that ends at rank `last`. */
static void sum(
        struct operation *op, int half, unsigned char *to, size_t place,
        size_t count, int last)
{
    enum { BLOCK = 1024 };
    enum dtype type = dtype_of(op->type);
    size_t width = dtype_bytes(type);
    float total[BLOCK], value[BLOCK];
    uint16_t narrow[BLOCK];
    bool in_ring = sums_in_rings();
    int size = op->comm->size, first = in_ring ? (last + 1) % size : 0;
    for (size_t at = 0, n; at < count; at += n) {
        n = std::min(count - at, (size_t)BLOCK);
        for (int k = 0; k < size; k++) {
            int r = (first + k) % size;
            dtype_convert(
                    k == 0 ? total : value, DTYPE_FP32,
                    buffer_of(op->comm, r, half) + place + at * width, type, n);
            for (size_t i = 0; i < n && k > 0; i++)
                total[i] += value[i];
            if (in_ring && type != DTYPE_FP32) {
                dtype_convert(narrow, type, total, DTYPE_FP32, n);
                dtype_convert(total, DTYPE_FP32, narrow, type, n);
            }
        }
        dtype_convert(to + at * width, type, total, DTYPE_FP32, n);
    }
}

/* --- rounds --------------------------------------------------------------- */

/* Bytes of a piece of one round: of a whole message, or of one rank's part. */
static size_t piece_bytes(const struct operation *op)
{
    bool is_cut = op->kind == REDUCE_SCATTER || op->kind == POINTS;
    size_t bytes = HALF_BYTES / (is_cut ? (size_t)op->comm->size : 1);
    return bytes / 64 * 64;
}

static size_t rounds_of(const struct operation *op, int half)
{
    size_t bytes = op->count * type_bytes(op->type);
    for (int r = 0; r < op->comm->size && op->kind == POINTS; r++)
        bytes = std::max(
                bytes,
                (size_t)op->comm->board->places[r].descriptions[half].most);
    return (bytes + piece_bytes(op) - 1) / piece_bytes(op);
}

/* This rank's part of a round, into its buffer. at: bytes of a message. */
static void give(struct operation *op, int half, size_t at)
{
    struct ncclComm *comm = op->comm;
    size_t room = piece_bytes(op), bytes = op->count * type_bytes(op->type);
    unsigned char *own = buffer_of(comm, comm->rank, half);
    const char *from = (const char *)op->from;
    if (op->kind == POINTS) {
        for (const struct transfer &t : op->transfers)
            if (t.is_send && at < t.bytes)
                memcpy(own + (size_t)t.peer * room, (char *)t.data + at,
                       std::min(room, t.bytes - at));
        return;
    }
    if (at >= bytes)
        return;
    size_t piece = std::min(room, bytes - at);
    if (op->kind == REDUCE_SCATTER)
        for (size_t r = 0; r < (size_t)comm->size; r++)
            memcpy(own + r * room, from + r * bytes + at, piece);
    else
        memcpy(own, from + at, piece);
}

static void take(struct operation *op, int half, size_t at)
{
    struct ncclComm *comm = op->comm;
    size_t width = type_bytes(op->type), bytes = op->count * width;
    size_t room = piece_bytes(op), own = (size_t)comm->rank;
    if (op->kind == POINTS) {
        for (const struct transfer &t : op->transfers)
            if (!t.is_send && at < t.bytes)
                memcpy((char *)t.data + at,
                       buffer_of(comm, t.peer, half) + own * room,
                       std::min(room, t.bytes - at));
        return;
    }
    size_t piece = std::min(room, bytes - at);
    unsigned char *to = (unsigned char *)op->to + at;
    if (op->kind == REDUCE_SCATTER)
        sum(op, half, to, own * room, piece / width, comm->rank);
    else
        for (size_t r = 0; r < (size_t)comm->size; r++)
            memcpy(to + r * bytes, buffer_of(comm, (int)r, half), piece);
}

static void move(struct operation *op)
{
    struct ncclComm *comm = op->comm;
    size_t rounds = 1;
    for (size_t round = 0; round < rounds; round++) {
        int half = next_half(comm);
        enter(op, half);
        give(op, half, round * piece_bytes(op));
        if (!board_meet(comm))
            return;
        if (round == 0 && (!is_the_same(op, half) || !transfers_meet(op, half)))
            return;
        if (round == 0)
            rounds = rounds_of(op, half);
        if (round < rounds)
            take(op, half, round * piece_bytes(op));
    }
}

static void wait_for_abort(const struct ncclComm *comm)
{
    while (!comm->is_aborted.load())
        usleep(1000);
}

void operation_run(void *ctx)
{
    struct operation *op = (struct operation *)ctx;
    struct ncclComm *comm = op->comm;
    if (op->is_hung)
        wait_for_abort(comm);
    if (!comm->is_aborted.load())
        move(op);
    if (op->is_stuck)
        wait_for_abort(comm);
    comm->under_way.fetch_sub(1, std::memory_order_release);
    delete op;
}
