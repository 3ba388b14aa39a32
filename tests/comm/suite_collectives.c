/* Cases of the suite: collectives. */
#include "base/device/device_memory.h"
#include "tests/comm/suite_cases.h"
#include "tests/comm/suite_data.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Below a vector, odd, and on both sides of the chunk of a message. */
static const size_t counts[] = {0, 1, 3, 17, 1024, 70001};
enum { COUNTS = sizeof counts / sizeof counts[0] };

/* The long one once for each type is enough. */
static bool is_worth_it(size_t count, enum dtype type, bool in_place)
{
    return count < 70001 || in_place == (type == DTYPE_BF16);
}

/* --- cases ---------------------------------------------------------------- */

static bool reduce_scatter_one(
        struct comm *comm, size_t count, enum dtype type, bool in_place)
{
    size_t width = dtype_bytes(type), size = (size_t)comm_size(comm);
    size_t mine = (size_t)comm_rank(comm) * count;
    char *full = malloc(size * count * width + 1);
    char *before = malloc(size * count * width + 1);
    char *shard = malloc(count * width + 1), *want = malloc(count * width + 1);
    char *to = in_place ? full + mine * width : shard;
    struct comm_op *op;
    data_fill(full, type, comm_rank(comm), 0, size * count);
    memcpy(before, full, size * count * width);
    data_expect_sum(want, type, comm, mine, count, NULL);
    char *d_full = data_up(full, size * count * width);
    char *d_shard = data_up(shard, count * width);
    bool holds =
            CHECK(comm, comm_reduce_scatter_begin(
                                comm, d_full,
                                in_place ? d_full + mine * width : d_shard,
                                count, type, false, &op) == ZD_OK);
    holds = holds && CHECK(comm, comm_wait(comm, op) == ZD_OK);
    data_look(full, d_full, size * count * width);
    data_look(shard, d_shard, count * width);
    data_drop(full, d_full, size * count * width);
    data_drop(shard, d_shard, count * width);
    holds = holds && CHECK(comm, memcmp(to, want, count * width) == 0);
    if (in_place)
        memcpy(before + mine * width, want, count * width);
    holds = holds &&
            CHECK(comm, memcmp(full, before, size * count * width) == 0);
    free(full);
    free(before);
    free(shard);
    free(want);
    return holds;
}

bool case_reduce_scatter(struct comm *comm)
{
    bool holds = true;
    for (int c = 0; c < COUNTS; c++)
        for (int t = 0; t < DATA_TYPES; t++)
            for (int in_place = 0; in_place < 2; in_place++)
                if (is_worth_it(counts[c], data_types[t], in_place))
                    holds &= reduce_scatter_one(
                            comm, counts[c], data_types[t], in_place);
    return holds;
}

/* Three micro-batches; at_once: none is waited for before all are begun. */
static bool accumulate_one(struct comm *comm, size_t count, bool at_once)
{
    enum { MICROS = 3 };
    size_t size = (size_t)comm_size(comm);
    size_t mine = (size_t)comm_rank(comm) * count;
    float *full = malloc((size * count + 1) * sizeof *full);
    float *shard = malloc((count + 1) * sizeof *shard);
    float *want = malloc((count + 1) * sizeof *want);
    struct comm_op *op[MICROS];
    bool holds = true;
    data_fill(full, DTYPE_FP32, comm_rank(comm), 0, size * count);
    data_fill(shard, DTYPE_FP32, 1000 + comm_rank(comm), 0, count);
    float *d_full = data_up(full, size * count * sizeof *full);
    float *d_shard = data_up(shard, count * sizeof *shard);
    for (int micro = 0; micro < MICROS; micro++) {
        data_expect_sum(
                want, DTYPE_FP32, comm, mine, count, micro ? want : shard);
        holds &=
                CHECK(comm, comm_reduce_scatter_begin(
                                    comm, d_full, d_shard, count, DTYPE_FP32,
                                    true, &op[micro]) == ZD_OK);
        if (at_once)
            continue;
        holds &= CHECK(comm, comm_wait(comm, op[micro]) == ZD_OK);
        data_look(shard, d_shard, count * sizeof *shard);
        holds &= CHECK(comm, memcmp(shard, want, count * sizeof *want) == 0);
    }
    for (int micro = 0; at_once && micro < MICROS; micro++)
        holds &= CHECK(comm, comm_wait(comm, op[micro]) == ZD_OK);
    data_look(shard, d_shard, count * sizeof *shard);
    holds &= CHECK(comm, memcmp(shard, want, count * sizeof *want) == 0);
    data_drop(full, d_full, size * count * sizeof *full);
    data_drop(shard, d_shard, count * sizeof *shard);
    free(full);
    free(shard);
    free(want);
    return holds;
}

bool case_reduce_scatter_accumulates(struct comm *comm)
{
    bool holds = true;
    for (int c = 0; c < COUNTS; c++)
        for (int at_once = 0; at_once < 2; at_once++)
            holds &= accumulate_one(comm, counts[c], at_once);
    return holds;
}

static bool all_gather_one(
        struct comm *comm, size_t count, enum dtype type, bool in_place)
{
    size_t width = dtype_bytes(type), size = (size_t)comm_size(comm);
    size_t mine = (size_t)comm_rank(comm) * count;
    char *full = calloc(size * count * width + 1, 1);
    char *want = malloc(size * count * width + 1);
    char *shard = malloc(count * width + 1);
    struct comm_op *op;
    data_fill(shard, type, comm_rank(comm), 0, count);
    for (size_t r = 0; r < size; r++)
        data_fill(want + r * count * width, type, (int)r, 0, count);
    if (in_place)
        memcpy(full + mine * width, shard, count * width);
    char *d_full = data_up(full, size * count * width);
    char *d_shard = data_up(shard, count * width);
    bool holds = CHECK(
            comm, comm_all_gather_begin(
                          comm, in_place ? d_full + mine * width : d_shard,
                          d_full, count, type, &op) == ZD_OK);
    holds = holds && CHECK(comm, comm_wait(comm, op) == ZD_OK);
    data_look(full, d_full, size * count * width);
    data_drop(full, d_full, size * count * width);
    data_drop(shard, d_shard, count * width);
    holds = holds && CHECK(comm, memcmp(full, want, size * count * width) == 0);
    free(full);
    free(want);
    free(shard);
    return holds;
}

bool case_all_gather(struct comm *comm)
{
    bool holds = true;
    for (int c = 0; c < COUNTS; c++)
        for (int t = 0; t < DATA_TYPES; t++)
            for (int in_place = 0; in_place < 2; in_place++)
                if (is_worth_it(counts[c], data_types[t], in_place))
                    holds &= all_gather_one(
                            comm, counts[c], data_types[t], in_place);
    return holds;
}

/* As many operations as may be under way, of both kinds and many sizes, waited
 * for in another order than they were begun. */
bool case_many_at_once(struct comm *comm)
{
    size_t size = (size_t)comm_size(comm), rank = (size_t)comm_rank(comm);
    float *full[COMM_OPS_MAX], *shard[COMM_OPS_MAX], *want[COMM_OPS_MAX];
    float *d_full[COMM_OPS_MAX], *d_shard[COMM_OPS_MAX];
    struct comm_op *op[COMM_OPS_MAX];
    size_t count[COMM_OPS_MAX];
    bool holds = true;
    for (int round = 0; round < 3; round++) {
        for (size_t k = 0; k < COMM_OPS_MAX; k++) {
            count[k] = k * 997 * (k % 5 == 0 ? 10 : 1);
            full[k] = calloc(size * count[k] + 1, sizeof **full);
            shard[k] = calloc(count[k] + 1, sizeof **shard);
            want[k] = calloc(size * count[k] + 1, sizeof **want);
            if (k % 3 == 1) {
                data_fill(shard[k], DTYPE_FP32, (int)rank, 0, count[k]);
                for (size_t r = 0; r < size; r++)
                    data_fill(
                            want[k] + r * count[k], DTYPE_FP32, (int)r, 0,
                            count[k]);
                d_full[k] = data_up(full[k], size * count[k] * sizeof **full);
                d_shard[k] = data_up(shard[k], count[k] * sizeof **shard);
                holds &= CHECK(
                        comm, comm_all_gather_begin(
                                      comm, d_shard[k], d_full[k], count[k],
                                      DTYPE_FP32, &op[k]) == ZD_OK);
            } else {
                data_fill(full[k], DTYPE_FP32, (int)rank, 0, size * count[k]);
                data_expect_sum(
                        want[k], DTYPE_FP32, comm, rank * count[k], count[k],
                        NULL);
                d_full[k] = data_up(full[k], size * count[k] * sizeof **full);
                d_shard[k] = data_up(shard[k], count[k] * sizeof **shard);
                holds &= CHECK(
                        comm, comm_reduce_scatter_begin(
                                      comm, d_full[k], d_shard[k], count[k],
                                      DTYPE_FP32, false, &op[k]) == ZD_OK);
            }
            holds &= CHECK(comm, comm_progress(comm) == ZD_OK);
        }
        for (size_t i = 0; i < COMM_OPS_MAX; i++) {
            size_t k = (i * 7 + (size_t)round) % COMM_OPS_MAX;
            holds &= CHECK(comm, comm_wait(comm, op[k]) == ZD_OK);
            data_look(full[k], d_full[k], size * count[k] * sizeof **full);
            data_look(shard[k], d_shard[k], count[k] * sizeof **shard);
            if (k % 3 == 1)
                holds &= CHECK(
                        comm, memcmp(full[k], want[k],
                                     size * count[k] * sizeof **full) == 0);
            else
                holds &=
                        CHECK(comm, memcmp(shard[k], want[k],
                                           count[k] * sizeof **shard) == 0);
        }
        for (size_t k = 0; k < COMM_OPS_MAX; k++) {
            data_drop(full[k], d_full[k], size * count[k] * sizeof **full);
            data_drop(shard[k], d_shard[k], count[k] * sizeof **shard);
            free(full[k]);
            free(shard[k]);
            free(want[k]);
        }
    }
    return holds;
}

/* A rolling window, as training has it: one begun, the one before waited for;
 * places in the pool are used again and again, and ranks are late in turn. */
bool case_one_ahead_with_late_ranks(struct comm *comm)
{
    enum { COUNT = 3000, DEPTH = 3, STEPS = 40 };
    size_t size = (size_t)comm_size(comm), rank = (size_t)comm_rank(comm);
    float *full = calloc(size * COUNT, sizeof *full);
    float *shard = calloc(COUNT * DEPTH, sizeof *shard);
    float *want = calloc(COUNT, sizeof *want);
    struct comm_op *op[DEPTH];
    bool holds = true;
    data_fill(full, DTYPE_FP32, (int)rank, 0, size * COUNT);
    data_expect_sum(want, DTYPE_FP32, comm, rank * COUNT, COUNT, NULL);
    float *d_full = data_up(full, size * COUNT * sizeof *full);
    float *d_shard = data_up(shard, COUNT * DEPTH * sizeof *shard);
    for (int step = 0; step < STEPS + DEPTH - 1; step++) {
        if (step % comm_size(comm) == comm_rank(comm))
            usleep(500);
        if (step < STEPS)
            holds &=
                    CHECK(comm, comm_reduce_scatter_begin(
                                        comm, d_full,
                                        d_shard + COUNT * (step % DEPTH), COUNT,
                                        DTYPE_FP32, false,
                                        &op[step % DEPTH]) == ZD_OK);
        int done = step - DEPTH + 1;
        if (done < 0)
            continue;
        holds &= CHECK(comm, comm_wait(comm, op[done % DEPTH]) == ZD_OK);
        data_look(
                shard + COUNT * (done % DEPTH),
                d_shard + COUNT * (done % DEPTH), COUNT * sizeof *shard);
        holds &=
                CHECK(comm, memcmp(shard + COUNT * (done % DEPTH), want,
                                   COUNT * sizeof *want) == 0);
        memset(shard + COUNT * (done % DEPTH), 0, COUNT * sizeof *shard);
        if (device_clear(
                    d_shard + COUNT * (done % DEPTH), COUNT * sizeof *shard) !=
            ZD_OK)
            abort();
    }
    data_drop(full, d_full, size * COUNT * sizeof *full);
    data_drop(shard, d_shard, COUNT * DEPTH * sizeof *shard);
    free(full);
    free(shard);
    free(want);
    return holds;
}

bool case_counters_follow_the_formula(struct comm *comm)
{
    enum { COUNT = 70001 };
    uint64_t size = (uint64_t)comm_size(comm);
    char *full = calloc(size * COUNT, 4), *shard = calloc(COUNT, 4);
    char *d_full = data_up(full, size * COUNT * 4),
         *d_shard = data_up(shard, COUNT * 4);
    int64_t scalars[300] = {0};
    struct comm_op *op;
    bool holds = true;
    for (int t = 0; t < DATA_TYPES; t++) {
        uint64_t wire = (size - 1) * COUNT * dtype_bytes(data_types[t]);
        struct comm_counters before = comm_counters(comm);
        holds &= comm_reduce_scatter_begin(
                         comm, d_full, d_shard, COUNT, data_types[t], false,
                         &op) == ZD_OK;
        holds &= comm_wait(comm, op) == ZD_OK;
        holds &= comm_all_gather_begin(
                         comm, d_shard, d_full, COUNT, data_types[t], &op) ==
                 ZD_OK;
        holds &= comm_wait(comm, op) == ZD_OK;
        holds &= comm_all_reduce_i64(comm, scalars, 300, COMM_SUM) == ZD_OK;
        struct comm_counters after = comm_counters(comm);
        holds &= CHECK(
                comm, after.reduce_scatter - before.reduce_scatter == wire);
        holds &= CHECK(comm, after.all_gather - before.all_gather == wire);
        holds &=
                CHECK(comm, after.all_reduce - before.all_reduce ==
                                    (size - 1) * 300 * 8);
    }
    data_drop(full, d_full, size * COUNT * 4);
    data_drop(shard, d_shard, COUNT * 4);
    free(full);
    free(shard);
    return holds;
}
