/* Collectives by NCCL on a stream of their own: joining, leaving, the back
 * end's table. */
#include "comm/nccl/nccl.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/must.h"
#include "comm/nccl/private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static struct nccl_group *group_of(struct comm *comm)
{
    return (struct nccl_group *)comm;
}

static struct nccl *nccl_of(struct comm *comm)
{
    return group_of(comm)->nccl;
}

/* --- the back end --------------------------------------------------------- */

static enum zd_status nccl_begin(struct comm *comm, struct comm_op *op)
{
    struct nccl_group *group = group_of(comm);
    struct nccl *nccl = group->nccl;
    size_t need = nccl_scratch_need(group, op);
    op->rounds = op->count > 0;
    if (op->rounds == 0)
        return ZD_OK;
    if (need > group->scratch_bytes)
        return ZD_FAIL(
                ZD_ERR_BUG, "E0914",
                "a collective needs %zu bytes of comm.device, which has %zu",
                need, group->scratch_bytes);
    ZD_TRY(nccl_check_alive(nccl));
    if (need > group->scratch_bytes - group->scratch_used ||
        nccl->pending_count == NCCL_EVENTS)
        ZD_TRY(nccl_flush(nccl));
    ZD_TRY(stream_record(NULL, nccl->ready[op->sequence % NCCL_EVENTS]));
    nccl->pending[nccl->pending_count++] = (struct nccl_pending){
            .group = group, .op = op, .scratch = group->scratch_used};
    group->scratch_used += need;
    return ZD_OK;
}

static enum zd_status nccl_wait(struct comm *comm, struct comm_op *op)
{
    struct nccl *nccl = nccl_of(comm);
    if (op->rounds == 0)
        return ZD_OK;
    ZD_TRY(nccl_flush(nccl));
    ZD_TRY(nccl_check_alive(nccl));
    return stream_wait_counted(NULL, nccl_done_of(nccl, op));
}

static void set_memory(struct comm *comm, const struct arena *arena)
{
    struct nccl_group *group = group_of(comm);
    char name[COMM_SPAN_MAX];
    comm_span_name(comm->row.name, "device", name);
    const struct arena_span *span =
            arena ? arena_plan_find(arena->plan, name) : NULL;
    group->scratch = span ? arena_span(arena, name) : NULL;
    group->scratch_bytes = span ? span->bytes : 0;
}

/* Seconds that the compute stream waited; the host does not wait. */
static double waited(const struct comm *comm)
{
    (void)comm;
    return stream_counters(NULL).waited;
}

static enum zd_status nccl_progress(struct comm *comm)
{
    struct nccl *nccl = nccl_of(comm);
    ZD_TRY(nccl_flush(nccl));
    return nccl_check_alive(nccl);
}

static void give_up(struct comm *comm)
{
    nccl_give_up(nccl_of(comm));
}

/* --- leaving -------------------------------------------------------------- */

static const double LEAVE_SECONDS = 10;

static enum zd_status finalize(struct nccl *nccl, ncclComm_t comm)
{
    const struct nccl_functions *f = nccl->functions;
    if (!nccl_calls_begin(nccl))
        return ZD_ERR_PEER;
    enum zd_status status =
            nccl_check(f, f->CommFinalize(comm), "ncclCommFinalize", comm);
    nccl_calls_end(nccl);
    return status == ZD_OK ? nccl_settle(nccl, comm, LEAVE_SECONDS) : status;
}

static void leave_comm(struct nccl *nccl, ncclComm_t comm)
{
    enum zd_status status = finalize(nccl, comm);
    if (!nccl_calls_begin(nccl))
        return;
    for (int c = 0; c < NCCL_ALL; c++)
        if (nccl->all[c] == comm)
            nccl->all[c] = NULL;
    if (status == ZD_OK)
        nccl->functions->CommDestroy(comm);
    nccl_calls_end(nccl);
}

static void free_all(struct nccl *nccl)
{
    for (int i = 0; i < NCCL_EVENTS; i++) {
        event_destroy(nccl->ready[i]);
        event_destroy(nccl->done[i]);
    }
    stream_destroy(nccl->stream);
    pthread_mutex_destroy(&nccl->calls);
    free(nccl);
}

/* After a failure the memory is not freed: threads may still use it, and the
 * process is about to end. */
static void nccl_destroy(struct comm *comm)
{
    struct nccl_group *group = group_of(comm);
    struct nccl *nccl = group->nccl;
    bool is_whole = group == nccl->whole;
    if (is_whole)
        nccl_watch_stop(nccl);
    if (atomic_load(&nccl->has_failed) || atomic_load(&nccl->aborts))
        return;
    stream_finish(nccl->stream);
    for (int c = NCCL_COMMS - 1; c >= 0; c--)
        if (group->comms[c])
            leave_comm(nccl, group->comms[c]);
    if (is_whole)
        free_all(nccl);
    comm_base_fini(comm);
    free(group);
}

/* --- joining -------------------------------------------------------------- */

/* How long to wait for ranks that start late if the job sets no limit. */
static const double JOIN_SECONDS = 600;

static double join_seconds(const struct nccl_group *group)
{
    double timeout = group->base.options.timeout;
    return timeout > 0 ? timeout : JOIN_SECONDS;
}

static ncclConfig_t configuration(const struct nccl_group *group)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.splitShare = 1;
    int most =
            comm_max_ctas(&group->base.options, device_facts().multiprocessors);
    if (most > 0)
        config.maxCTAs = most;
    return config;
}

/* All ranks must have one version: NCCL's protocol may differ between versions,
 * and its message for a mismatch, if any, does not name the host. */
static enum zd_status check_version(const struct nccl_group *group)
{
    struct comm *control = group->base.control;
    const char *own = group->nccl->functions->version_text;
    char first[32];
    ZD_PRINT(first, "%s", own);
    ZD_TRY(comm_broadcast(control, first, sizeof first, 0));
    if (strcmp(first, own) == 0)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_UNFIT, "E1236",
            "different versions of NCCL: %s on %s, %s on rank 0", own,
            control->host, first);
    return zd_fail_help(
            "install one version on all hosts, or name its folder in "
            "ZEROD_LIBRARY_PATH; or comm.backend = \"mpi\"");
}

/* Adds it to the list of all communicators; under `calls`. */
static void note_comm(struct nccl *nccl, ncclComm_t comm)
{
    int c = 0;
    while (c < NCCL_ALL && nccl->all[c])
        c++;
    assert(c < NCCL_ALL);
    nccl->all[c] = comm;
}

/* Rank 0 creates the group's unique id; all join with it. */
static enum zd_status join_world(struct nccl_group *group)
{
    struct nccl *nccl = group->nccl;
    struct comm *control = group->base.control;
    ncclConfig_t config = configuration(group);
    ncclUniqueId id;
    memset(&id, 0, sizeof id);
    enum zd_status status = ZD_OK;
    if (control->rank == 0)
        status = nccl_check(
                nccl->functions, nccl->functions->GetUniqueId(&id),
                "ncclGetUniqueId", NULL);
    ZD_TRY(comm_agree(control, status));
    ZD_TRY(comm_broadcast(control, &id, sizeof id, 0));
    ncclComm_t *world = &group->comms[NCCL_WORLD];
    ZD_NCCL(nccl->functions, NULL, CommInitRankConfig, world, control->size, id,
            control->rank, &config);
    note_comm(nccl, *world);
    return nccl_settle(nccl, *world, join_seconds(group));
}

/* Every rank of `from` calls it. Colors below 0: this rank is in none. */
static enum zd_status split(
        struct nccl_group *group, ncclComm_t from, int color, int key,
        ncclComm_t *comm)
{
    struct nccl *nccl = group->nccl;
    ncclConfig_t config = configuration(group);
    if (!nccl_calls_begin(nccl))
        return nccl_check_alive(nccl);
    enum zd_status status = nccl_check(
            nccl->functions,
            nccl->functions->CommSplit(
                    from, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, comm,
                    &config),
            "ncclCommSplit", from);
    if (status == ZD_OK && *comm)
        note_comm(nccl, *comm);
    nccl_calls_end(nccl);
    ZD_TRY(status);
    ZD_TRY(nccl_settle(nccl, from, join_seconds(group)));
    return *comm ? nccl_settle(nccl, *comm, join_seconds(group)) : ZD_OK;
}

/* Nodes, and rails across them; the ranks of a node are neighbors. Neither is
 * ever of one rank: NCCL may take half a gigabyte for such a group
 * (NVIDIA/nccl, issue 2363). */
static enum zd_status join_levels(struct nccl_group *group)
{
    struct comm *comm = &group->base;
    ncclComm_t *comms = group->comms;
    bool wanted = comm->options.hierarchical == COMM_LEVELS_TWO ||
                  comm->options.hierarchical == COMM_LEVELS_AUTO;
    bool has_nodes = wanted && comm->node_ranks > 1;
    comm->mesh = mesh_of(comm->size, has_nodes ? comm->node_ranks : 0);
    group->node = mesh_group(comm->mesh, MESH_NODE, comm->rank);
    group->rail = mesh_group(comm->mesh, MESH_RAIL, comm->rank);
    if (group->rail.size == 1)
        return ZD_OK;
    ZD_TRY(
            split(group, comms[NCCL_WORLD], group->node.first, comm->rank,
                  &comms[NCCL_NODE]));
    return split(
            group, comms[NCCL_WORLD], group->rail.first, comm->rank,
            &comms[NCCL_RAIL]);
}

static enum zd_status create_events(struct nccl *nccl)
{
    ZD_TRY(stream_create("comm", STREAM_CUDA, &nccl->stream));
    for (int i = 0; i < NCCL_EVENTS; i++) {
        ZD_TRY(event_create(&nccl->ready[i]));
        ZD_TRY(event_create(&nccl->done[i]));
    }
    return ZD_OK;
}

/* Report the failure now: the others may be waiting up to join_seconds for this
 * rank to join before they can agree on it. Closed connections may tell them
 * earlier. */
static enum zd_status stay_out(struct nccl_group *group, enum zd_status status)
{
    if (status == ZD_OK)
        return ZD_OK;
    zd_log(ZD_LOG_ERROR, "rank %d (%s) does not join NCCL: %s",
           group->base.root->rank, group->base.host, zd_error_get()->what);
    nccl_give_up(group->nccl);
    /* here a lost peer is the cause, not a symptom */
    return status == ZD_ERR_PEER ? ZD_ERR_UNFIT : status;
}

static enum zd_status join(struct nccl_group *group)
{
    struct comm *control = group->base.control;
    enum zd_status status = create_events(group->nccl);
    ZD_TRY(comm_agree(control, status));
    ZD_TRY(comm_agree(control, check_version(group)));
    status = join_world(group);
    ZD_THEN(status, join_levels(group));
    ZD_TRY(comm_agree(control, stay_out(group, status)));
    return comm_agree(control, nccl_watch_start(group->nccl));
}

static enum zd_status join_group(
        struct nccl_group *group, const struct nccl_group *parent)
{
    struct comm *comm = &group->base;
    int color = comm->size > 1 ? comm->row.first : -1;
    if (parent->base.size == 1)
        return ZD_OK;
    ZD_TRY(nccl_flush(group->nccl));
    ZD_TRY(
            split(group, parent->comms[NCCL_WORLD], color, comm->rank,
                  &group->comms[NCCL_WORLD]));
    return join_levels(group);
}

static enum zd_status nccl_group_create(
        struct comm *parent, struct comm *control, const struct comm_row *row,
        struct comm **group_out)
{
    struct nccl_group *group = zd_array(1, sizeof *group);
    const struct nccl_group *from = group_of(parent);
    comm_group_init(&group->base, parent, control, row);
    group->nccl = from->nccl;
    *group_out = &group->base;
    enum comm_work before = comm_work(parent, WORK_START);
    enum zd_status status = join_group(group, from);
    comm_work(parent, before);
    return stay_out(group, status);
}

static const struct comm_functions nccl_backend = {
        .group = nccl_group_create,
        .begin = nccl_begin,
        .wait = nccl_wait,
        .progress = nccl_progress,
        .set_memory = set_memory,
        .transport = COMM_TRANSPORT_NCCL,
        .give_up = give_up,
        .waited = waited,
        .destroy = nccl_destroy,
};

static enum zd_status open_whole(
        struct nccl_group *group, struct comm *control,
        const struct comm_options *options)
{
    struct nccl *nccl = zd_array(1, sizeof *nccl);
    nccl->whole = group;
    nccl->stop = -1;
    nccl->gpu = device_current();
    pthread_mutex_init(&nccl->calls, NULL);
    group->nccl = nccl;
    comm_device_init(&group->base, control, &nccl_backend);
    group->base.options = *options;
    return nccl_open(&nccl->functions);
}

enum zd_status comm_nccl_create(
        struct comm *control, const struct comm_options *options,
        struct comm **comm_out)
{
    struct nccl_group *group = zd_array(1, sizeof *group);
    enum zd_status status = open_whole(group, control, options);
    if (status == ZD_OK) {
        enum comm_work before = comm_work(control, WORK_START);
        status = join(group);
        comm_work(control, before);
    }
    if (status != ZD_OK) {
        nccl_give_up(group->nccl);
        nccl_destroy(&group->base);
        return status;
    }
    if (control->rank == 0)
        zd_log_info(
                "collectives by %s, %s", group->nccl->functions->version_text,
                group->rail.size > 1 ? "in two levels" : "in one level");
    *comm_out = &group->base;
    return ZD_OK;
}
