/* Joining. */
#include "base/clock.h"
#include "base/log.h"
#include "base/must.h"
#include "comm/nccl/nccl.h"
#include "comm/nccl/private.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Ranks that start late are waited for this long without a limit of the job. */
static const double JOIN_SECONDS = 600;

static double join_seconds(const struct nccl *nccl)
{
    double timeout = nccl->base.options.timeout;
    return timeout > 0 ? timeout : JOIN_SECONDS;
}

static ncclConfig_t configuration(const struct nccl *nccl)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.splitShare = 1;
    int most =
            comm_max_ctas(&nccl->base.options, device_facts().multiprocessors);
    if (most > 0)
        config.maxCTAs = most;
    return config;
}

/* All ranks must have one version: NCCL's protocol is no promise between
 * versions, and what it says of a mismatch (or does not) names no host. */
static enum zd_status check_version(struct nccl *nccl)
{
    struct comm *control = nccl->base.control;
    char first[32];
    snprintf(first, sizeof first, "%s", nccl->functions->version_text);
    ZD_TRY(comm_broadcast(control, first, sizeof first, 0));
    if (strcmp(first, nccl->functions->version_text) == 0)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_UNFIT, "E1236",
            "different versions of NCCL: %s on %s, %s on rank 0",
            nccl->functions->version_text, control->host, first);
    return zd_fail_help(
            "install one version on all hosts, or name its folder in "
            "ZEROD_LIBRARY_PATH; or comm.backend = \"mpi\"");
}

/* Rank 0 makes the name of the group, all join under it. */
static enum zd_status join_world(struct nccl *nccl)
{
    struct comm *control = nccl->base.control;
    ncclConfig_t config = configuration(nccl);
    ncclUniqueId id;
    memset(&id, 0, sizeof id);
    enum zd_status status = ZD_OK;
    if (control->rank == 0)
        status = nccl_check(
                nccl->functions, nccl->functions->GetUniqueId(&id),
                "ncclGetUniqueId", NULL);
    ZD_TRY(comm_agree(control, status));
    ZD_TRY(comm_broadcast(control, &id, sizeof id, 0));
    ncclComm_t *world = &nccl->comms[NCCL_WORLD];
    ZD_NCCL(nccl->functions, NULL, CommInitRankConfig, world, control->size, id,
            control->rank, &config);
    return nccl_settle(nccl, *world, join_seconds(nccl));
}

static enum zd_status split(struct nccl *nccl, int which, int color, int key)
{
    ncclConfig_t config = configuration(nccl);
    ncclComm_t world = nccl->comms[NCCL_WORLD];
    ZD_NCCL(nccl->functions, world, CommSplit, world, color, key,
            &nccl->comms[which], &config);
    ZD_TRY(nccl_settle(nccl, world, join_seconds(nccl)));
    return nccl_settle(nccl, nccl->comms[which], join_seconds(nccl));
}

/* Nodes, and rails across them; the ranks of a node are neighbors. Neither is
 * ever of one rank: NCCL may take half a gigabyte for such a group
 * (NVIDIA/nccl, issue 2363). */
static enum zd_status join_levels(struct nccl *nccl)
{
    struct comm *comm = &nccl->base;
    bool wanted = comm->options.hierarchical == COMM_LEVELS_TWO ||
                  comm->options.hierarchical == COMM_LEVELS_AUTO;
    bool has_nodes = wanted && comm->node_ranks > 1;
    comm->mesh = mesh_of(comm->size, has_nodes ? comm->node_ranks : 0);
    nccl->node = mesh_group(comm->mesh, MESH_NODE, comm->rank);
    nccl->rail = mesh_group(comm->mesh, MESH_RAIL, comm->rank);
    if (nccl->rail.size == 1)
        return ZD_OK;
    ZD_TRY(split(nccl, NCCL_NODE, nccl->node.first, comm->rank));
    return split(nccl, NCCL_RAIL, nccl->rail.first, comm->rank);
}

static enum zd_status create_events(struct nccl *nccl)
{
    ZD_TRY(stream_create("comm", STREAM_CUDA, &nccl->stream));
    for (int i = 0; i < COMM_OPS_MAX; i++)
        ZD_TRY(event_create(&nccl->ready[i]));
    for (int i = 0; i < DONE_EVENTS; i++)
        ZD_TRY(event_create(&nccl->done[i]));
    return ZD_OK;
}

/* Before all agree on it: the others may wait for this rank to join, for as
 * long as join_seconds. The ends of its connections may tell them earlier. */
static void stay_out(struct nccl *nccl)
{
    zd_log(ZD_LOG_ERROR, "rank %d (%s) does not join NCCL: %s", nccl->base.rank,
           nccl->base.host, zd_error_get()->what);
    nccl_give_up(nccl);
}

static enum zd_status join(struct nccl *nccl)
{
    struct comm *control = nccl->base.control;
    enum zd_status status = create_events(nccl);
    ZD_TRY(comm_agree(control, status));
    ZD_TRY(comm_agree(control, check_version(nccl)));
    status = join_world(nccl);
    if (status == ZD_OK)
        status = join_levels(nccl);
    if (status == ZD_ERR_PEER) /* here it is the cause, not a symptom */
        status = ZD_ERR_UNFIT;
    if (status != ZD_OK)
        stay_out(nccl);
    ZD_TRY(comm_agree(control, status));
    return comm_agree(control, nccl_watch_start(nccl));
}

enum zd_status comm_nccl_create(
        struct comm *control, const struct comm_options *options,
        struct comm **comm_out)
{
    struct nccl *nccl = zd_must(calloc(1, sizeof *nccl));
    nccl->stop = -1;
    pthread_mutex_init(&nccl->calls, NULL);
    nccl->gpu = device_current();
    enum zd_status status = nccl_open(&nccl->functions);
    if (status == ZD_OK) {
        comm_device_init(&nccl->base, control, &nccl_backend);
        nccl->base.options = *options;
        enum comm_work before = comm_work(control, WORK_START);
        status = join(nccl);
        comm_work(control, before);
    }
    if (status != ZD_OK) {
        nccl_give_up(nccl);
        nccl_destroy(&nccl->base);
        return status;
    }
    if (control->rank == 0)
        zd_log_info(
                "collectives by %s, %s", nccl->functions->version_text,
                nccl->rail.size > 1 ? "in two levels" : "in one level");
    *comm_out = &nccl->base;
    return ZD_OK;
}
