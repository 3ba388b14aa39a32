/* Ranks are threads of one process and read each other's memory.
 *
 *   begin   publish where this rank's data lies
 *   wait until all have published; copy our part from every rank; mark it
 * taken; wait until all have (then our memory may be reused)
 *
 * A rank publishes operation n in the slot its pool gave it. The slot is free
 * for a later operation when its wait has returned, which every rank's "taken"
 * went before; so a published entry is never overwritten while someone may read
 * it. Each group (comm_group_create) has its own row of entries. */
#include "base/must.h"
#include "base/threads.h"
#include "comm/backend.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One more slot than operations: for messages that are begun and waited for in
 * one call. */
enum { MESSAGE_SLOT = COMM_OPS_MAX, SLOTS };

struct entry { /* of one rank in one slot */
    const void *data;
    uint64_t published; /* number + 1; 0 = never */
    uint64_t taken;     /* likewise */
};

struct row { /* of a group; shared by its ranks, under group's mutex */
    int size;
    int members;            /* ranks that have not left yet */
    struct entry entries[]; /* (size, SLOTS) */
};

struct group { /* shared by all ranks */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool is_aborted;
    struct watch *watch;
    struct row *all;
};

struct local {
    struct comm base;
    struct group *group;
    struct row *row;
    uint64_t messages;
    const void **parts; /* (size) scratch of this rank */
};

static struct local *local_of(struct comm *comm)
{
    return (struct local *)comm;
}

static struct row *row_create(int size)
{
    size_t entries = (size_t)size * SLOTS;
    struct row *row = zd_array(1, sizeof *row + entries * sizeof *row->entries);
    row->size = size;
    return row;
}

static struct entry *entry_of(struct row *row, int rank, int slot)
{
    return &row->entries[rank * SLOTS + slot];
}

static void publish(
        struct local *local, int slot, uint64_t number, const void *data)
{
    struct entry *entry = entry_of(local->row, local->base.rank, slot);
    ZD_LOCKED(&local->group->mutex);
    entry->data = data;
    entry->published = number + 1;
    pthread_cond_broadcast(&local->group->changed);
}

static bool all_published(
        struct row *row, int slot, uint64_t number, bool taken)
{
    for (int r = 0; r < row->size; r++) {
        struct entry *entry = entry_of(row, r, slot);
        if ((taken ? entry->taken : entry->published) <= number)
            return false;
    }
    return true;
}

/* Sleep until every rank has published (or taken), and note where their data
 * is: parts. */
static enum zd_status await(
        struct local *local, int slot, uint64_t number, bool taken)
{
    struct group *group = local->group;
    struct row *row = local->row;
    ZD_LOCKED(&group->mutex);
    while (!all_published(row, slot, number, taken) && !group->is_aborted)
        pthread_cond_wait(&group->changed, &group->mutex);
    for (int r = 0; r < row->size; r++)
        local->parts[r] = entry_of(row, r, slot)->data;
    return all_published(row, slot, number, taken)
                   ? ZD_OK
                   : ZD_FAIL(ZD_ERR_PEER, "E0501",
                             "another rank ended the job");
}

/* Mark this rank's part as taken, and wait until all ranks have theirs. */
static enum zd_status finish(struct local *local, int slot, uint64_t number)
{
    struct group *group = local->group;
    pthread_mutex_lock(&group->mutex);
    entry_of(local->row, local->base.rank, slot)->taken = number + 1;
    pthread_cond_broadcast(&group->changed);
    pthread_mutex_unlock(&group->mutex);
    return await(local, slot, number, true);
}

/* --- collectives ---------------------------------------------------------- */

static enum zd_status local_begin(struct comm *comm, struct comm_op *op)
{
    publish(local_of(comm), op->slot, op->order, op->from);
    return ZD_OK;
}

static enum zd_status local_wait(struct comm *comm, struct comm_op *op)
{
    struct local *local = local_of(comm);
    size_t bytes = op->count * dtype_bytes(op->type);
    ZD_TRY(await(local, op->slot, op->order, false));
    for (int r = 0; r < comm->size && op->kind != COMM_ALL_GATHER; r++)
        local->parts[r] =
                (const char *)local->parts[r] + (size_t)comm->rank * bytes;
    if (op->kind == COMM_REDUCE_SCATTER) {
        sum_parts(
                op->to, op->type, op->accumulate, local->parts, comm->size,
                comm->mesh.node, op->count);
    } else {
        for (int r = 0; r < comm->size && bytes; r++)
            if (r != comm->rank)
                memcpy((char *)op->to + (size_t)r * bytes, local->parts[r],
                       bytes);
    }
    return finish(local, op->slot, op->order);
}

static enum zd_status begin_message(struct local *local, const void *data)
{
    publish(local, MESSAGE_SLOT, ++local->messages, data);
    return await(local, MESSAGE_SLOT, local->messages, false);
}

static enum zd_status local_broadcast(
        struct comm *comm, void *data, size_t bytes, int root)
{
    struct local *local = local_of(comm);
    ZD_TRY(begin_message(local, data));
    if (comm->rank != root)
        memcpy(data, local->parts[root], bytes);
    return finish(local, MESSAGE_SLOT, local->messages);
}

static enum zd_status local_exchange(
        struct comm *comm, const struct exchange *exchange)
{
    struct local *local = local_of(comm);
    size_t mine = (size_t)comm->rank * exchange->from_stride;
    ZD_TRY(begin_message(local, exchange->from));
    for (int r = 0; r < comm->size; r++) {
        char *to = (char *)exchange->to + (size_t)r * exchange->to_stride;
        const char *from = (const char *)local->parts[r] + mine;
        if (to != from) /* in place: other ranks read it now */
            memmove(to, from, exchange->bytes);
    }
    return finish(local, MESSAGE_SLOT, local->messages);
}

/* --- life ----------------------------------------------------------------- */

/* Ranks share the process: make present and later waits fail instead */
static void group_abort(struct group *group)
{
    ZD_LOCKED(&group->mutex);
    group->is_aborted = true;
    pthread_cond_broadcast(&group->changed);
}

void comm_local_abort(struct comm *comm)
{
    group_abort(local_of(comm)->group);
}

/* The watch found a hang: fail all waits, so that ranks leave as after a lost
 * peer. */
static void end_waits(void *ctx, int exit_code)
{
    group_abort(ctx);
}

static void group_destroy(struct group *group)
{
    watch_destroy(group->watch);
    pthread_cond_destroy(&group->changed);
    pthread_mutex_destroy(&group->mutex);
    free(group->all);
    free(group);
}

static void local_destroy(struct comm *comm)
{
    struct local *local = local_of(comm);
    struct group *group = local->group;
    struct row *row = local->row;
    bool is_all = row == group->all;
    pthread_mutex_lock(&group->mutex);
    if (is_all)
        seat_leave(comm->seat);
    bool is_last = --row->members == 0;
    pthread_mutex_unlock(&group->mutex);
    if (is_last && is_all)
        group_destroy(group);
    else if (is_last)
        free(row);
    comm_base_fini(comm);
    free(local->parts);
    free(local);
}

static struct local *member_of(struct group *group, struct row *row)
{
    struct local *local = zd_array(1, sizeof *local);
    local->parts = zd_array((size_t)row->size, sizeof *local->parts);
    local->group = group;
    local->row = row;
    return local;
}

/* The row's first rank creates the shared part. If the job ends meanwhile it is
 * not freed: others may use it. */
static enum zd_status local_group(
        struct comm *parent, struct comm *control, const struct comm_row *row,
        struct comm **group_out)
{
    struct row *mine = NULL, **all;
    if (parent->root->rank == row->first) {
        mine = row_create(row->count);
        mine->members = row->count;
    }
    ZD_TRY(comm_gather_new(parent, &mine, sizeof mine, (void **)&all));
    struct local *local = member_of(
            local_of(parent)->group,
            all[comm_row_place(&parent->row, row->first)]);
    free(all);
    comm_group_init(&local->base, parent, control, row);
    *group_out = &local->base;
    return ZD_OK;
}

static const struct comm_functions local_functions = {
        .group = local_group,
        .begin = local_begin,
        .wait = local_wait,
        .broadcast = local_broadcast,
        .exchange = local_exchange,
        .transport = COMM_TRANSPORT_HOST,
        .destroy = local_destroy,
};

static enum zd_status create_watch(
        struct group *group, const struct comm_options *options)
{
    char host[WATCH_HOST_MAX] = "";
    struct watch_facts facts = comm_watch_facts(options);
    facts.end = end_waits;
    facts.ctx = group;
    gethostname(host, sizeof host - 1);
    ZD_TRY(watch_create(&facts, group->all->size, &group->watch));
    return watch_join(
            group->watch,
            &(struct watch_world){.size = group->all->size, .host = host});
}

static enum zd_status group_create(
        int size, const struct comm_options *options, struct group **group_out)
{
    struct group *group = zd_array(1, sizeof *group);
    group->all = row_create(size);
    pthread_mutex_init(&group->mutex, NULL);
    pthread_cond_init(&group->changed, NULL);
    enum zd_status status = create_watch(group, options);
    if (status != ZD_OK) {
        group_destroy(group);
        return status;
    }
    *group_out = group;
    return ZD_OK;
}

static struct comm *member_create(
        struct group *group, int rank, const struct comm_options *options)
{
    int size = group->all->size;
    struct local *local = member_of(group, group->all);
    comm_base_init(&local->base, &local_functions, rank, size, options);
    local->base.local_rank = rank;
    local->base.local_size = size;
    gethostname(local->base.host, sizeof local->base.host - 1);
    local->base.watch = group->watch;
    local->base.seat = watch_seat(group->watch, rank);
    group->all->members++;
    return &local->base;
}

enum zd_status comm_local_create(
        int size, const struct comm_options *options, struct comm **comms_out)
{
    struct group *group = NULL;
    enum zd_status status = group_create(size, options, &group);
    int count = 0;
    while (status == ZD_OK && count < size) {
        comms_out[count] = member_create(group, count, options);
        status = comm_levels_settle(comms_out[count++], size);
    }
    while (status != ZD_OK && count > 0)
        comm_destroy(comms_out[--count]);
    return status;
}
