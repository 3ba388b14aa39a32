#include "tests/comm/suite.h"

#include "base/device_memory.h"
#include "base/exact_sum.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool suite_check(bool holds, const struct comm *comm, const char *what)
{
    if (!holds)
        fprintf(stderr, "rank %d of %d: %s does not hold\n", comm_rank(comm),
                comm_size(comm), what);
    return holds;
}

static const enum dtype types[] = {DTYPE_FP32, DTYPE_BF16, DTYPE_FP16};
enum { TYPES = sizeof types / sizeof types[0] };

/* --- memory of the device ------------------------------------------------- */

/* A copy of `bytes` of the host in the memory that collectives of this comm
 * work on; on the CPU that is the host's, as it is. */
static void *up(void *host, size_t bytes)
{
    void *device = host;
    if (device_backend() == DEVICE_CPU)
        return host;
    if (device_take(bytes + 1, &device) != ZD_OK ||
        (bytes && device_write(device, host, bytes) != ZD_OK))
        abort();
    return device;
}

/* The device's values, where the host can look at them. */
static void look(void *host, const void *device, size_t bytes)
{
    if (host != device && bytes && device_read(host, device, bytes) != ZD_OK)
        abort();
}

static void drop(void *host, void *device, size_t bytes)
{
    if (host != device)
        device_give(device, bytes + 1);
}

/* --- data ----------------------------------------------------------------- */

/* Element of a rank's array: magnitudes differ, so that the order of a sum
 * shows in its bits. */
static float value_of(int rank, size_t i)
{
    static const float scales[] = {1, 2, 4, 8, 16, 32, 64, 128};
    uint64_t bits = ((uint64_t)rank + 1) * 0x9e3779b97f4a7c15u + i;
    bits = (bits ^ (bits >> 31)) * 0xbf58476d1ce4e5b9u;
    bits ^= bits >> 29;
    return (float)(int32_t)(uint32_t)bits * 0x1p-31f * scales[bits >> 61];
}

static void fill(
        void *out, enum dtype type, int rank, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float value = value_of(rank, first + i);
        dtype_convert(
                (char *)out + i * dtype_bytes(type), type, &value, DTYPE_FP32,
                1);
    }
}

static float stored_value(enum dtype type, int rank, size_t i)
{
    float value = value_of(rank, i), back;
    uint16_t narrow;
    if (type == DTYPE_FP32)
        return value;
    dtype_convert(&narrow, type, &value, DTYPE_FP32, 1);
    dtype_convert(&back, DTYPE_FP32, &narrow, type, 1);
    return back;
}

static float rounded(enum dtype type, float value)
{
    uint16_t narrow;
    if (type != DTYPE_FP32) {
        dtype_convert(&narrow, type, &value, DTYPE_FP32, 1);
        dtype_convert(&value, DTYPE_FP32, &narrow, type, 1);
    }
    return value;
}

/* What a reduce_scatter must give: ranks in order, in fp32, rounded once; with
 * nodes, each node's sum rounded, and the nodes in order. */
static void expect_sum(
        void *out, enum dtype type, const struct comm *comm, size_t first,
        size_t count, const float *added_to)
{
    int size = comm_size(comm), per_node = comm_node_size(comm);
    for (size_t i = 0; i < count; i++) {
        float sum = 0;
        for (int node = 0; node < size; node += per_node) {
            float part = stored_value(type, node, first + i);
            for (int r = node + 1; r < node + per_node; r++)
                part += stored_value(type, r, first + i);
            if (per_node < size)
                part = rounded(type, part);
            sum = node == 0 ? part : sum + part;
        }
        if (added_to)
            sum += added_to[i];
        dtype_convert(
                (char *)out + i * dtype_bytes(type), type, &sum, DTYPE_FP32, 1);
    }
}

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
    fill(full, type, comm_rank(comm), 0, size * count);
    memcpy(before, full, size * count * width);
    expect_sum(want, type, comm, mine, count, NULL);
    char *d_full = up(full, size * count * width);
    char *d_shard = up(shard, count * width);
    bool holds =
            CHECK(comm, comm_reduce_scatter_begin(
                                comm, d_full,
                                in_place ? d_full + mine * width : d_shard,
                                count, type, false, &op) == ZD_OK);
    holds = holds && CHECK(comm, comm_wait(comm, op) == ZD_OK);
    look(full, d_full, size * count * width);
    look(shard, d_shard, count * width);
    drop(full, d_full, size * count * width);
    drop(shard, d_shard, count * width);
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

static bool reduce_scatter(struct comm *comm)
{
    bool holds = true;
    for (int c = 0; c < COUNTS; c++)
        for (int t = 0; t < TYPES; t++)
            for (int in_place = 0; in_place < 2; in_place++)
                if (is_worth_it(counts[c], types[t], in_place))
                    holds &= reduce_scatter_one(
                            comm, counts[c], types[t], in_place);
    return holds;
}

static bool accumulate_one(struct comm *comm, size_t count)
{
    size_t size = (size_t)comm_size(comm);
    size_t mine = (size_t)comm_rank(comm) * count;
    float *full = malloc((size * count + 1) * sizeof *full);
    float *shard = malloc((count + 1) * sizeof *shard);
    float *want = malloc((count + 1) * sizeof *want);
    struct comm_op *op;
    bool holds = true;
    fill(full, DTYPE_FP32, comm_rank(comm), 0, size * count);
    fill(shard, DTYPE_FP32, 1000 + comm_rank(comm), 0, count);
    float *d_full = up(full, size * count * sizeof *full);
    float *d_shard = up(shard, count * sizeof *shard);
    for (int micro = 0; micro < 3 && holds; micro++) {
        expect_sum(want, DTYPE_FP32, comm, mine, count, shard);
        holds =
                CHECK(comm, comm_reduce_scatter_begin(
                                    comm, d_full, d_shard, count, DTYPE_FP32,
                                    true, &op) == ZD_OK);
        holds = holds && CHECK(comm, comm_wait(comm, op) == ZD_OK);
        look(shard, d_shard, count * sizeof *shard);
        holds = holds &&
                CHECK(comm, memcmp(shard, want, count * sizeof *want) == 0);
    }
    drop(full, d_full, size * count * sizeof *full);
    drop(shard, d_shard, count * sizeof *shard);
    free(full);
    free(shard);
    free(want);
    return holds;
}

static bool reduce_scatter_accumulates(struct comm *comm)
{
    bool holds = true;
    for (int c = 0; c < COUNTS; c++)
        holds &= accumulate_one(comm, counts[c]);
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
    fill(shard, type, comm_rank(comm), 0, count);
    for (size_t r = 0; r < size; r++)
        fill(want + r * count * width, type, (int)r, 0, count);
    if (in_place)
        memcpy(full + mine * width, shard, count * width);
    char *d_full = up(full, size * count * width);
    char *d_shard = up(shard, count * width);
    bool holds = CHECK(
            comm, comm_all_gather_begin(
                          comm, in_place ? d_full + mine * width : d_shard,
                          d_full, count, type, &op) == ZD_OK);
    holds = holds && CHECK(comm, comm_wait(comm, op) == ZD_OK);
    look(full, d_full, size * count * width);
    drop(full, d_full, size * count * width);
    drop(shard, d_shard, count * width);
    holds = holds && CHECK(comm, memcmp(full, want, size * count * width) == 0);
    free(full);
    free(want);
    free(shard);
    return holds;
}

static bool all_gather(struct comm *comm)
{
    bool holds = true;
    for (int c = 0; c < COUNTS; c++)
        for (int t = 0; t < TYPES; t++)
            for (int in_place = 0; in_place < 2; in_place++)
                if (is_worth_it(counts[c], types[t], in_place))
                    holds &=
                            all_gather_one(comm, counts[c], types[t], in_place);
    return holds;
}

/* As many operations as may be under way, of both kinds and many sizes, waited
 * for in another order than they were begun. */
static bool many_at_once(struct comm *comm)
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
                fill(shard[k], DTYPE_FP32, (int)rank, 0, count[k]);
                for (size_t r = 0; r < size; r++)
                    fill(want[k] + r * count[k], DTYPE_FP32, (int)r, 0,
                         count[k]);
                d_full[k] = up(full[k], size * count[k] * sizeof **full);
                d_shard[k] = up(shard[k], count[k] * sizeof **shard);
                holds &= CHECK(
                        comm, comm_all_gather_begin(
                                      comm, d_shard[k], d_full[k], count[k],
                                      DTYPE_FP32, &op[k]) == ZD_OK);
            } else {
                fill(full[k], DTYPE_FP32, (int)rank, 0, size * count[k]);
                expect_sum(
                        want[k], DTYPE_FP32, comm, rank * count[k], count[k],
                        NULL);
                d_full[k] = up(full[k], size * count[k] * sizeof **full);
                d_shard[k] = up(shard[k], count[k] * sizeof **shard);
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
            look(full[k], d_full[k], size * count[k] * sizeof **full);
            look(shard[k], d_shard[k], count[k] * sizeof **shard);
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
            drop(full[k], d_full[k], size * count[k] * sizeof **full);
            drop(shard[k], d_shard[k], count[k] * sizeof **shard);
            free(full[k]);
            free(shard[k]);
            free(want[k]);
        }
    }
    return holds;
}

/* A rolling window, as training has it: one begun, the one before waited for;
 * places in the pool are used again and again, and ranks are late in turn. */
static bool one_ahead_with_late_ranks(struct comm *comm)
{
    enum { COUNT = 3000, DEPTH = 3, STEPS = 40 };
    size_t size = (size_t)comm_size(comm), rank = (size_t)comm_rank(comm);
    float *full = calloc(size * COUNT, sizeof *full);
    float *shard = calloc(COUNT * DEPTH, sizeof *shard);
    float *want = calloc(COUNT, sizeof *want);
    struct comm_op *op[DEPTH];
    bool holds = true;
    fill(full, DTYPE_FP32, (int)rank, 0, size * COUNT);
    expect_sum(want, DTYPE_FP32, comm, rank * COUNT, COUNT, NULL);
    float *d_full = up(full, size * COUNT * sizeof *full);
    float *d_shard = up(shard, COUNT * DEPTH * sizeof *shard);
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
        look(shard + COUNT * (done % DEPTH), d_shard + COUNT * (done % DEPTH),
             COUNT * sizeof *shard);
        holds &=
                CHECK(comm, memcmp(shard + COUNT * (done % DEPTH), want,
                                   COUNT * sizeof *want) == 0);
        memset(shard + COUNT * (done % DEPTH), 0, COUNT * sizeof *shard);
        if (device_clear(
                    d_shard + COUNT * (done % DEPTH), COUNT * sizeof *shard) !=
            ZD_OK)
            abort();
    }
    drop(full, d_full, size * COUNT * sizeof *full);
    drop(shard, d_shard, COUNT * DEPTH * sizeof *shard);
    free(full);
    free(shard);
    free(want);
    return holds;
}

static bool counters_follow_the_formula(struct comm *comm)
{
    enum { COUNT = 70001 };
    uint64_t size = (uint64_t)comm_size(comm);
    char *full = calloc(size * COUNT, 4), *shard = calloc(COUNT, 4);
    char *d_full = up(full, size * COUNT * 4), *d_shard = up(shard, COUNT * 4);
    int64_t scalars[300] = {0};
    struct comm_op *op;
    bool holds = true;
    for (int t = 0; t < TYPES; t++) {
        uint64_t wire = (size - 1) * COUNT * dtype_bytes(types[t]);
        struct comm_counters before = comm_counters(comm);
        holds &= comm_reduce_scatter_begin(
                         comm, d_full, d_shard, COUNT, types[t], false, &op) ==
                 ZD_OK;
        holds &= comm_wait(comm, op) == ZD_OK;
        holds &= comm_all_gather_begin(
                         comm, d_shard, d_full, COUNT, types[t], &op) == ZD_OK;
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
    drop(full, d_full, size * COUNT * 4);
    drop(shard, d_shard, COUNT * 4);
    free(full);
    free(shard);
    return holds;
}

static bool scalars_are_reduced_in_rank_order(struct comm *comm)
{
    enum { COUNT = 300 };
    int size = comm_size(comm), rank = comm_rank(comm);
    bool holds = true;
    for (int reduction = COMM_SUM; reduction <= COMM_MIN; reduction++) {
        int64_t whole[COUNT];
        double real[COUNT];
        for (size_t i = 0; i < COUNT; i++) {
            real[i] = (double)value_of(rank, i) / 3;
            whole[i] = (int64_t)(real[i] * 1e15);
        }
        enum comm_reduction how = (enum comm_reduction)reduction;
        holds &= CHECK(
                comm, comm_all_reduce_i64(comm, whole, COUNT, how) == ZD_OK);
        holds &= CHECK(
                comm, comm_all_reduce_f64(comm, real, COUNT, how) == ZD_OK);
        for (size_t i = 0; i < COUNT && holds; i++) {
            double want = (double)value_of(0, i) / 3;
            int64_t want_whole = (int64_t)(want * 1e15);
            for (int r = 1; r < size; r++) {
                double x = (double)value_of(r, i) / 3;
                int64_t n = (int64_t)(x * 1e15);
                bool takes = how == COMM_MAX ? x > want : x < want;
                want = how == COMM_SUM ? want + x : takes ? x : want;
                want_whole = how == COMM_SUM ? want_whole + n
                             : takes         ? n
                                             : want_whole;
            }
            holds &= CHECK(comm, real[i] == want && whole[i] == want_whole);
        }
    }
    return holds;
}

static bool digits_of_an_exact_sum_add_up(struct comm *comm)
{
    enum { TERMS = 840 }; /* divides by 1 .. 8 */
    int size = comm_size(comm), rank = comm_rank(comm);
    struct exact_sum part, whole;
    exact_sum_clear(&part);
    exact_sum_clear(&whole);
    for (size_t i = 0; i < TERMS; i++) {
        double term = ldexp(value_of(0, i), (int)(i % 600) - 300);
        exact_sum_add(&whole, term);
        if ((int)i % size == rank)
            exact_sum_add(&part, term);
    }
    exact_sum_carry(&part);
    return CHECK(comm, comm_all_reduce_i64(
                               comm, part.digit, EXACT_SUM_DIGITS, COMM_SUM) ==
                               ZD_OK) &&
           CHECK(comm, exact_sum_value(&part) == exact_sum_value(&whole));
}

static bool control_messages_arrive(struct comm *comm)
{
    enum { BYTES = 100003 };
    int size = comm_size(comm), rank = comm_rank(comm);
    char *data = malloc(BYTES), *all = malloc((size_t)size * BYTES);
    struct comm_counters before = comm_counters(comm);
    bool holds = true;
    for (int root = 0; root < size; root++) {
        memset(data, rank + 1, BYTES);
        holds &= CHECK(comm, comm_broadcast(comm, data, BYTES, root) == ZD_OK);
        holds &=
                CHECK(comm, data[0] == root + 1 && data[BYTES - 1] == root + 1);
    }
    for (size_t bytes = 1; bytes <= BYTES; bytes *= 47) {
        memset(data, 64 + rank, bytes);
        holds &= CHECK(comm, comm_gather_all(comm, data, bytes, all) == ZD_OK);
        for (int r = 0; r < size; r++)
            holds &= CHECK(
                    comm, all[(size_t)r * bytes] == 64 + r &&
                                  all[(size_t)(r + 1) * bytes - 1] == 64 + r);
        holds &= CHECK(comm, comm_barrier(comm) == ZD_OK);
    }
    struct comm_counters after = comm_counters(comm);
    holds &= CHECK(comm, memcmp(&before, &after, sizeof before) == 0);
    free(data);
    free(all);
    return holds;
}

static bool ranks_know_their_places(struct comm *comm)
{
    int size = comm_size(comm);
    int64_t ranks = comm_rank(comm);
    return CHECK(comm,
                 comm_all_reduce_i64(comm, &ranks, 1, COMM_SUM) == ZD_OK) &&
           CHECK(comm, ranks == (int64_t)size * (size - 1) / 2) &&
           CHECK(comm, comm_local_size(comm) == size) &&
           CHECK(comm, comm_local_rank(comm) == comm_rank(comm)) &&
           CHECK(comm, comm_host(comm)[0] != '\0');
}

/* --- failures ------------------------------------------------------------- */

static enum zd_status agree_on(
        struct comm *comm, bool fails, enum zd_status status, const char *what)
{
    zd_error_clear();
    enum zd_status mine = ZD_OK;
    if (fails) {
        mine = ZD_FAIL(status, "E0999", "%s", what);
        zd_fail_where("file:1");
    }
    return comm_agree(comm, mine);
}

static bool all_well_is_well(struct comm *comm)
{
    return CHECK(comm, agree_on(comm, false, ZD_OK, "") == ZD_OK);
}

static bool one_failure_is_everyones(struct comm *comm)
{
    int size = comm_size(comm), rank = comm_rank(comm);
    bool holds = true;
    for (int bad = 0; bad < size && size > 1; bad++) {
        char where[64];
        holds &= CHECK(
                comm, agree_on(comm, rank == bad, ZD_ERR_DATA, "broken") ==
                              ZD_ERR_DATA);
        snprintf(where, sizeof where, "file:1 (rank %d)", bad);
        if (rank == bad)
            holds &= CHECK(comm, strcmp(zd_error_get()->where, where) == 0);
        else
            holds &= CHECK(comm, zd_error_get()->status == ZD_OK);
        /* settled again on the way out: the same */
        holds &= CHECK(comm, comm_agree(comm, ZD_ERR_DATA) == ZD_ERR_DATA);
        if (rank == bad)
            holds &= CHECK(comm, strcmp(zd_error_get()->where, where) == 0);
        else
            holds &= CHECK(comm, zd_error_get()->status == ZD_OK);
    }
    zd_error_clear();
    return holds;
}

static bool equal_failures_are_told_once(struct comm *comm)
{
    int size = comm_size(comm), rank = comm_rank(comm);
    char where[64];
    bool holds =
            CHECK(comm, agree_on(comm, true, ZD_ERR_CONFIG, "the same") ==
                                ZD_ERR_CONFIG);
    snprintf(where, sizeof where, "file:1 (ranks 0-%d)", size - 1);
    if (rank == 0)
        holds &=
                CHECK(comm, strcmp(zd_error_get()->where,
                                   size > 1 ? where : "file:1") == 0);
    else
        holds &= CHECK(comm, zd_error_get()->status == ZD_OK);
    zd_error_clear();
    return holds;
}

static bool groups_of_ranks_are_named(struct comm *comm)
{
    int rank = comm_rank(comm);
    if (comm_size(comm) < 5)
        return true;
    /* 1, 2 and 4 of one mind; 0 well; 3 fails otherwise */
    const char *what = rank == 3 ? "other" : "same";
    enum zd_status status = rank == 3 ? ZD_ERR_DATA : ZD_ERR_IO;
    bool fails = rank >= 1 && rank <= 4;
    bool holds = CHECK(comm, agree_on(comm, fails, status, what) == ZD_ERR_IO);
    if (rank == 1)
        holds &=
                CHECK(comm, strcmp(zd_error_get()->where,
                                   "file:1 (ranks 1-2, 4)") == 0);
    else
        holds &= CHECK(comm, zd_error_get()->status == ZD_OK);
    zd_error_clear();
    return holds;
}

static bool a_lost_peer_is_not_the_cause(struct comm *comm)
{
    int size = comm_size(comm), rank = comm_rank(comm);
    bool is_last = rank == size - 1;
    bool holds = CHECK(
            comm, agree_on(
                          comm, true, is_last ? ZD_ERR_IO : ZD_ERR_PEER,
                          is_last ? "disk full" : "lost a peer") == ZD_ERR_IO);
    if (is_last)
        holds &= CHECK(comm, strcmp(zd_error_get()->what, "disk full") == 0);
    else
        holds &= CHECK(comm, zd_error_get()->status == ZD_OK);
    zd_error_clear();
    return holds;
}

const struct suite_case suite_cases[] = {
        {"ranks know their places", ranks_know_their_places},
        {"reduce_scatter adds in rank order and rounds once", reduce_scatter},
        {"reduce_scatter accumulates", reduce_scatter_accumulates},
        {"all_gather puts shards in rank order", all_gather},
        {"many operations at once", many_at_once},
        {"one operation ahead, ranks late in turn", one_ahead_with_late_ranks},
        {"counters follow the formula", counters_follow_the_formula},
        {"scalars are reduced in rank order",
         scalars_are_reduced_in_rank_order},
        {"digits of an exact sum add up", digits_of_an_exact_sum_add_up},
        {"control messages arrive and are not counted",
         control_messages_arrive},
        {"all well is well", all_well_is_well},
        {"one failure is everyone's", one_failure_is_everyones},
        {"equal failures are told once", equal_failures_are_told_once},
        {"groups of ranks are named", groups_of_ranks_are_named},
        {"a lost peer is not the cause", a_lost_peer_is_not_the_cause},
};
const int suite_case_count = sizeof suite_cases / sizeof suite_cases[0];
