/* Cases of the suite: collectives. */
#include "tests/comm/suite_cases.h"
#include "tests/comm/suite_data.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Below a vector, odd, and on both sides of the chunk of a message. */
static const size_t counts[] = {0, 1, 3, 17, 1024, 70001};
enum { COUNTS = sizeof counts / sizeof counts[0] };

/* Of the host, of the device (the same on the CPU), and what it shall be. */
struct array {
    char *host, *device, *want;
    size_t bytes;
};

/* An operation and its arrays; in_place: the shard is this rank's part of
 * full. Of an exchange `full` is what is given, `shard` what is taken. */
struct trial {
    struct comm *comm;
    struct data_row row; /* of its ranks, if it is a group */
    enum comm_op_kind kind;
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

static const struct data_row all_ranks = {.stride = 1};

static struct trial trial_of(
        struct comm *comm, struct data_row row, enum comm_op_kind kind,
        size_t count, enum dtype type, bool in_place)
{
    size_t size = (size_t)comm_size(comm), rank = (size_t)comm_rank(comm);
    size_t part = count * dtype_bytes(type);
    struct trial t = {
            .comm = comm,
            .row = row,
            .kind = kind,
            .count = count,
            .type = type,
            .in_place = in_place,
            .mine = rank * part,
            .full = array_of(size * part),
            .shard = array_of(kind == COMM_ALL_TO_ALL ? size * part : part)};
    if (kind == COMM_REDUCE_SCATTER) {
        data_fill(
                t.full.host, type, data_rank(row, (int)rank), 0, size * count);
        memcpy(t.full.want, t.full.host, t.full.bytes);
        data_expect_sum(
                in_place ? t.full.want + t.mine : t.shard.want, type, comm, row,
                rank * count, count, NULL);
    } else if (kind == COMM_ALL_TO_ALL) {
        data_fill(
                t.full.host, type, data_rank(row, (int)rank), 0, size * count);
        memcpy(t.full.want, t.full.host, t.full.bytes);
        for (size_t r = 0; r < size; r++)
            data_fill(
                    t.shard.want + r * part, type, data_rank(row, (int)r),
                    rank * count, count);
    } else {
        for (size_t r = 0; r < size; r++)
            data_fill(
                    t.full.want + r * part, type, data_rank(row, (int)r), 0,
                    count);
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
    bool in_place = t->in_place && t->kind != COMM_ALL_TO_ALL;
    char *shard = in_place ? t->full.device + t->mine : t->shard.device;
    bool gathers = t->kind == COMM_ALL_GATHER;
    struct comm_op request = {
            .kind = t->kind,
            .from = gathers ? shard : t->full.device,
            .to = gathers ? t->full.device : shard,
            .count = t->count,
            .type = t->type,
            .accumulate = t->adds};
    enum zd_status status = comm_begin(t->comm, &request, &t->op);
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

static bool try_all(struct comm *comm, enum comm_op_kind kind)
{
    bool holds = true;
    for (int c = 0; c < COUNTS; c++)
        for (int k = 0; k < DATA_TYPES; k++)
            for (int in_place = 0; in_place < 2; in_place++) {
                enum dtype type = data_types[k];
                /* the long one once for each type is enough */
                if (counts[c] >= 70001 && in_place != (type == DTYPE_BF16))
                    continue;
                if (kind == COMM_ALL_TO_ALL && in_place && counts[c] < 70001)
                    continue;
                struct trial t = trial_of(
                        comm, all_ranks, kind, counts[c], type, in_place);
                holds &= trial_begin(&t) && trial_wait(&t);
                holds &= trial_end(&t);
            }
    return holds;
}

bool case_reduce_scatter(struct comm *comm)
{
    return try_all(comm, COMM_REDUCE_SCATTER);
}

bool case_all_gather(struct comm *comm)
{
    return try_all(comm, COMM_ALL_GATHER);
}

bool case_all_to_all(struct comm *comm)
{
    return try_all(comm, COMM_ALL_TO_ALL);
}

/* Three micro-batches; at_once: none is waited for before all are begun. */
static bool accumulate_one(struct comm *comm, size_t count, bool at_once)
{
    enum { MICROS = 3 };
    struct trial t = trial_of(
            comm, all_ranks, COMM_REDUCE_SCATTER, count, DTYPE_FP32, false);
    struct comm_op *op[MICROS];
    bool holds = true;
    t.adds = true;
    data_drop(t.shard.host, t.shard.device, t.shard.bytes);
    data_fill(t.shard.host, DTYPE_FP32, 1000 + comm_rank(comm), 0, count);
    memcpy(t.shard.want, t.shard.host, t.shard.bytes);
    array_up(&t.shard);
    for (int micro = 0; micro < MICROS; micro++) {
        data_expect_sum(
                t.shard.want, DTYPE_FP32, comm, all_ranks,
                (size_t)comm_rank(comm) * count, count,
                (const float *)(void *)t.shard.want);
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

/* As many operations as may be under way, of all kinds and many sizes, waited
 * for in another order than they were begun. */
bool case_many_at_once(struct comm *comm)
{
    struct trial trials[COMM_OPS_MAX];
    bool holds = true;
    for (size_t round = 0; round < 3; round++) {
        for (size_t k = 0; k < COMM_OPS_MAX; k++) {
            trials[k] = trial_of(
                    comm, all_ranks, (enum comm_op_kind)(k % COMM_OP_KINDS),
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
            *next = trial_of(
                    comm, all_ranks, COMM_REDUCE_SCATTER, 3000, DTYPE_FP32,
                    false);
            holds &= trial_begin(next);
        }
        if (step >= DEPTH - 1)
            holds &= trial_wait(done) & trial_end(done);
    }
    return holds;
}

/* Has so much been sent since then? */
static bool has_sent(
        struct comm *comm, struct comm_counters *before,
        struct comm_counters *want)
{
    struct comm_counters now = comm_counters(comm);
    bool holds = true;
    for (int i = 0; i < COMM_COUNTERS; i++)
        holds &= CHECK(comm, now.bytes[i] - before->bytes[i] == want->bytes[i]);
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
        for (int kind = COMM_REDUCE_SCATTER; kind < COMM_OP_KINDS; kind++) {
            struct trial t = trial_of(
                    comm, all_ranks, (enum comm_op_kind)kind, COUNT,
                    data_types[k], false);
            holds &= trial_begin(&t) && trial_wait(&t);
            holds &= trial_end(&t);
        }
        holds &= comm_all_reduce_i64(comm, scalars, 300, COMM_SUM) == ZD_OK;
        struct comm_counters want = {{wire, wire, wire, others * 300 * 8}};
        holds &= has_sent(comm, &before, &want);
    }
    return holds;
}

/* --- groups --------------------------------------------------------------- */

/* The comm, rows of its ranks, and a row of a row. */
enum { COMMS = 4, TRIALS = 16 };

struct member { /* this rank's */
    struct comm *comm;
    struct data_row row;
    struct comm_counters before, want;
};

struct groups {
    struct member members[COMMS];
    struct arena_plan plan;
    struct arena arena;
    struct trial trials[TRIALS];
    bool is_under_way[TRIALS];
    uint64_t random; /* the same on all ranks */
};

_Thread_local struct comm_counters suite_group_counters;

static int draw(struct groups *groups, int below)
{
    groups->random =
            groups->random * 6364136223846793005u + 1442695040888963407u;
    return (int)(groups->random >> 33) % below;
}

/* Rows within blocks of neighbors; the last ones may be shorter. */
static struct member join_row(
        struct groups *groups, struct comm *comm, const char *name)
{
    int size = comm_size(comm), own = comm_rank(comm);
    int block = 1 + draw(groups, size), stride = 1 + draw(groups, block);
    int begin = own / block * block;
    int length = size - begin < block ? size - begin : block;
    int first = (own - begin) % stride;
    struct member member = {.row = {.first = begin + first, .stride = stride}};
    if (comm_group_create(
                comm, name, begin + first, stride,
                (length - first + stride - 1) / stride, &member.comm) != ZD_OK)
        abort();
    return member;
}

static void take_memory(struct groups *groups, const char *const *names)
{
    arena_plan_init(&groups->plan);
    for (int c = 1; c < COMMS; c++) {
        struct comm *comm = groups->members[c].comm;
        struct comm_needs needs = {
                .name = names[c],
                .transport = comm_transport(comm),
                .world = comm_size(comm),
                .node_size = comm_mesh(comm).node,
                .shard_bytes = 30000,
                .reduce_bytes = 30000,
                .is_ordered = true}; /* or not: it has room for both */
        if (comm_plan_needs(&groups->plan, &needs) != ZD_OK)
            abort();
    }
    if (arena_take(&groups->arena, &groups->plan) != ZD_OK)
        abort();
    for (int c = 1; c < COMMS; c++)
        comm_set_memory(groups->members[c].comm, &groups->arena);
}

static void groups_make(struct groups *groups, struct comm *comm, int seed)
{
    static const char *const names[COMMS] = {NULL, "shard", "replicate", "cp"};
    struct member *members = groups->members;
    *groups = (struct groups){.random = (uint64_t)seed};
    members[0] = (struct member){.comm = comm, .row = all_ranks};
    members[1] = join_row(groups, comm, names[1]);
    members[2] = join_row(groups, comm, names[2]);
    members[3] = join_row(groups, members[1].comm, names[3]);
    members[3].row.first = data_rank(members[1].row, members[3].row.first);
    members[3].row.stride *= members[1].row.stride;
    take_memory(groups, names);
    for (int c = 0; c < COMMS; c++)
        members[c].before = comm_counters(members[c].comm);
}

/* An operation of any comm in this place, or a message. */
static bool begin_any(struct groups *groups, int place)
{
    static const size_t some[] = {0, 1, 100, 3001, 7000};
    struct member *member = &groups->members[draw(groups, COMMS)];
    struct trial *trial = &groups->trials[place];
    enum comm_op_kind kind = (enum comm_op_kind)draw(groups, COMM_OP_KINDS);
    enum dtype type = data_types[draw(groups, DATA_TYPES)];
    *trial = trial_of(
            member->comm, member->row, kind, some[draw(groups, 5)], type,
            draw(groups, 2));
    uint64_t sent = trial->full.bytes - trial->count * dtype_bytes(type);
    member->want.bytes[kind] += sent;
    groups->is_under_way[place] = true;
    return trial_begin(trial);
}

static bool reduce_any(struct groups *groups)
{
    struct member *member = &groups->members[draw(groups, COMMS)];
    struct comm *comm = member->comm;
    int size = comm_size(comm);
    int64_t value = data_rank(member->row, comm_rank(comm)), want = 0;
    for (int p = 0; p < size; p++)
        want += data_rank(member->row, p);
    member->want.bytes[COMM_ALL_REDUCE] += comm_all_reduce_bytes(size, 1);
    return CHECK(comm,
                 comm_all_reduce_i64(comm, &value, 1, COMM_SUM) == ZD_OK) &&
           CHECK(comm, value == want) &&
           CHECK(comm, comm_agree(comm, ZD_OK) == ZD_OK);
}

static bool end_one(struct groups *groups, int place)
{
    groups->is_under_way[place] = false;
    return trial_wait(&groups->trials[place]) &
           trial_end(&groups->trials[place]);
}

static bool groups_end(struct groups *groups)
{
    bool holds = true;
    for (int c = COMMS - 1; c >= 0; c--) {
        struct member *member = &groups->members[c];
        holds &= has_sent(member->comm, &member->before, &member->want);
        if (c == 0)
            break;
        for (int i = 0; i < COMM_COUNTERS; i++)
            suite_group_counters.bytes[i] += member->want.bytes[i];
        comm_destroy(member->comm);
    }
    arena_release(&groups->arena);
    arena_plan_fini(&groups->plan);
    return holds;
}

/* Operations of all groups begin and are waited for in random orders, with
 * messages in between and ranks late in turn. */
bool case_groups_of_ranks(struct comm *comm)
{
    enum { ROUNDS = 1, ACTIONS = 150 };
    struct groups groups;
    bool holds = true;
    for (int round = 0; round < ROUNDS; round++) {
        groups_make(&groups, comm, round + 1);
        for (int a = 0; a < ACTIONS; a++) {
            int place = draw(&groups, TRIALS);
            if (draw(&groups, 60) == comm_rank(comm))
                usleep(300);
            if (draw(&groups, 8) == 0)
                holds &= reduce_any(&groups);
            else if (groups.is_under_way[place])
                holds &= end_one(&groups, place);
            else if (draw(&groups, 3))
                holds &= begin_any(&groups, place);
        }
        for (int place = 0; place < TRIALS; place++)
            if (groups.is_under_way[place])
                holds &= end_one(&groups, place);
        holds &= groups_end(&groups);
    }
    return holds;
}
