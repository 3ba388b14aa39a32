/* Cases of the suite: collectives. */
#include "tests/comm/suite_cases.h"
#include "tests/comm/suite_data.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Below a vector, odd, and on both sides of the chunk of a message. */
static const size_t counts[] = {0, 1, 3, 17, 1024, 70001};
enum { COUNTS = sizeof counts / sizeof counts[0] };

enum kind { SCATTER, GATHER };

/* Of the host, of the device (the same on the CPU), and what it shall be. */
struct array {
    char *host, *device, *want;
    size_t bytes;
};

/* An operation and its arrays; in_place: the shard is this rank's part of
 * full. */
struct trial {
    struct comm *comm;
    enum kind kind;
    size_t count;
    enum dtype type;
    bool in_place, adds;
    size_t mine; /* bytes before this rank's part */
    struct array full, shard;
    struct comm_op *op;
};

static struct array array_of(size_t bytes)
{
    return (struct array){
            .host = calloc(bytes + 1, 1),
            .want = calloc(bytes + 1, 1),
            .bytes = bytes};
}

static void array_up(struct array *array)
{
    array->device = data_up(array->host, array->bytes);
}

/* Looks at it for the last time. */
static bool array_end(const struct comm *comm, struct array *array)
{
    data_look(array->host, array->device, array->bytes);
    data_drop(array->host, array->device, array->bytes);
    bool holds =
            CHECK(comm, memcmp(array->host, array->want, array->bytes) == 0);
    free(array->host);
    free(array->want);
    return holds;
}

static struct trial trial_of(
        struct comm *comm, enum kind kind, size_t count, enum dtype type,
        bool in_place)
{
    size_t size = (size_t)comm_size(comm), rank = (size_t)comm_rank(comm);
    size_t part = count * dtype_bytes(type);
    struct trial t = {
            .comm = comm,
            .kind = kind,
            .count = count,
            .type = type,
            .in_place = in_place,
            .mine = rank * part,
            .full = array_of(size * part),
            .shard = array_of(part)};
    if (kind == SCATTER) {
        data_fill(t.full.host, type, (int)rank, 0, size * count);
        memcpy(t.full.want, t.full.host, t.full.bytes);
        data_expect_sum(
                in_place ? t.full.want + t.mine : t.shard.want, type, comm,
                rank * count, count, NULL);
    } else {
        for (size_t r = 0; r < size; r++)
            data_fill(t.full.want + r * part, type, (int)r, 0, count);
        memcpy(in_place ? t.full.host + t.mine : t.shard.host,
               t.full.want + t.mine, part);
        memcpy(t.shard.want, t.shard.host, part);
    }
    array_up(&t.full);
    array_up(&t.shard);
    return t;
}

static bool trial_begin(struct trial *t)
{
    char *shard = t->in_place ? t->full.device + t->mine : t->shard.device;
    enum zd_status status =
            t->kind == SCATTER ? comm_reduce_scatter_begin(
                                         t->comm, t->full.device, shard,
                                         t->count, t->type, t->adds, &t->op)
                               : comm_all_gather_begin(
                                         t->comm, shard, t->full.device,
                                         t->count, t->type, &t->op);
    return CHECK(t->comm, status == ZD_OK);
}

static bool trial_wait(struct trial *t)
{
    return CHECK(t->comm, comm_wait(t->comm, t->op) == ZD_OK);
}

static bool trial_end(struct trial *t)
{
    return array_end(t->comm, &t->full) & array_end(t->comm, &t->shard);
}

/* --- cases ---------------------------------------------------------------- */

static bool try_all(struct comm *comm, enum kind kind)
{
    bool holds = true;
    for (int c = 0; c < COUNTS; c++)
        for (int k = 0; k < DATA_TYPES; k++)
            for (int in_place = 0; in_place < 2; in_place++) {
                enum dtype type = data_types[k];
                /* the long one once for each type is enough */
                if (counts[c] >= 70001 && in_place != (type == DTYPE_BF16))
                    continue;
                struct trial t =
                        trial_of(comm, kind, counts[c], type, in_place);
                holds &= trial_begin(&t) && trial_wait(&t);
                holds &= trial_end(&t);
            }
    return holds;
}

bool case_reduce_scatter(struct comm *comm)
{
    return try_all(comm, SCATTER);
}

bool case_all_gather(struct comm *comm)
{
    return try_all(comm, GATHER);
}

/* Three micro-batches; at_once: none is waited for before all are begun. */
static bool accumulate_one(struct comm *comm, size_t count, bool at_once)
{
    enum { MICROS = 3 };
    struct trial t = trial_of(comm, SCATTER, count, DTYPE_FP32, false);
    struct comm_op *op[MICROS];
    bool holds = true;
    t.adds = true;
    data_drop(t.shard.host, t.shard.device, t.shard.bytes);
    data_fill(t.shard.host, DTYPE_FP32, 1000 + comm_rank(comm), 0, count);
    memcpy(t.shard.want, t.shard.host, t.shard.bytes);
    array_up(&t.shard);
    for (int micro = 0; micro < MICROS; micro++) {
        data_expect_sum(
                t.shard.want, DTYPE_FP32, comm, (size_t)comm_rank(comm) * count,
                count, (const float *)(void *)t.shard.want);
        holds &= trial_begin(&t);
        op[micro] = t.op;
        holds &= at_once || trial_wait(&t);
    }
    for (int micro = 0; at_once && micro < MICROS; micro++)
        holds &= CHECK(comm, comm_wait(comm, op[micro]) == ZD_OK);
    return holds & trial_end(&t);
}

bool case_reduce_scatter_accumulates(struct comm *comm)
{
    bool holds = true;
    for (int c = 0; c < COUNTS; c++)
        for (int at_once = 0; at_once < 2; at_once++)
            holds &= accumulate_one(comm, counts[c], at_once);
    return holds;
}

/* As many operations as may be under way, of both kinds and many sizes, waited
 * for in another order than they were begun. */
bool case_many_at_once(struct comm *comm)
{
    struct trial trials[COMM_OPS_MAX];
    bool holds = true;
    for (size_t round = 0; round < 3; round++) {
        for (size_t k = 0; k < COMM_OPS_MAX; k++) {
            trials[k] = trial_of(
                    comm, k % 3 == 1 ? GATHER : SCATTER,
                    k * 997 * (k % 5 == 0 ? 10 : 1), DTYPE_FP32, false);
            holds &= trial_begin(&trials[k]);
            holds &= CHECK(comm, comm_progress(comm) == ZD_OK);
        }
        for (size_t i = 0; i < COMM_OPS_MAX; i++)
            holds &= trial_wait(&trials[(i * 7 + round) % COMM_OPS_MAX]);
        for (size_t k = 0; k < COMM_OPS_MAX; k++)
            holds &= trial_end(&trials[k]);
    }
    return holds;
}

/* A rolling window, as training has it: one begun, the one before waited for;
 * places in the pool are used again and again, and ranks are late in turn. */
bool case_one_ahead_with_late_ranks(struct comm *comm)
{
    enum { DEPTH = 3, STEPS = 40 };
    struct trial trials[DEPTH];
    bool holds = true;
    for (int step = 0; step < STEPS + DEPTH - 1; step++) {
        struct trial *next = &trials[step % DEPTH];
        struct trial *done = &trials[(step + 1) % DEPTH];
        if (step % comm_size(comm) == comm_rank(comm))
            usleep(500);
        if (step < STEPS) {
            *next = trial_of(comm, SCATTER, 3000, DTYPE_FP32, false);
            holds &= trial_begin(next);
        }
        if (step >= DEPTH - 1)
            holds &= trial_wait(done) & trial_end(done);
    }
    return holds;
}

bool case_counters_follow_the_formula(struct comm *comm)
{
    enum { COUNT = 70001 };
    uint64_t others = (uint64_t)comm_size(comm) - 1;
    int64_t scalars[300] = {0};
    bool holds = true;
    for (int k = 0; k < DATA_TYPES; k++) {
        uint64_t wire = others * COUNT * dtype_bytes(data_types[k]);
        struct comm_counters before = comm_counters(comm);
        for (int kind = SCATTER; kind <= GATHER; kind++) {
            struct trial t = trial_of(
                    comm, (enum kind)kind, COUNT, data_types[k], false);
            holds &= trial_begin(&t) && trial_wait(&t);
            holds &= trial_end(&t);
        }
        holds &= comm_all_reduce_i64(comm, scalars, 300, COMM_SUM) == ZD_OK;
        struct comm_counters after = comm_counters(comm);
        holds &= CHECK(
                comm, after.reduce_scatter - before.reduce_scatter == wire);
        holds &= CHECK(comm, after.all_gather - before.all_gather == wire);
        holds &= CHECK(
                comm, after.all_reduce - before.all_reduce == others * 300 * 8);
    }
    return holds;
}
