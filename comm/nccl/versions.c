/* All ranks must have one version of NCCL: its protocol is no promise between
 * versions, and what it says of a mismatch (or does not) names no host. */
#include "comm/nccl/private.h"
#include "comm/topology.h"

#include <stdlib.h>

/* "ranks 0-3 (host-a) 2.28.9, rank 4 (host-b) 2.27.5" as far as it fits. */
static void name_versions(
        const struct topology *topology, const int *versions, char *out,
        size_t out_bytes)
{
    size_t used = 0;
    for (int r = 0, last; r < topology->size && used < out_bytes;
         r = last + 1) {
        last = r;
        while (last + 1 < topology->size && versions[last + 1] == versions[r] &&
               topology_same_host(topology, last + 1, r))
            last++;
        char ranks[48];
        snprintf(
                ranks, sizeof ranks, last > r ? "ranks %d-%d" : "rank %d", r,
                last);
        used += (size_t)snprintf(
                out + used, out_bytes - used, "%s%s (%s) %d.%d.%d",
                r ? ", " : "", ranks, topology->ranks[r].host,
                versions[r] / 10000, versions[r] / 100 % 100,
                versions[r] % 100);
    }
}

static enum zd_status compare(
        const struct topology *topology, const int *versions)
{
    char text[400] = "";
    bool is_one = true;
    for (int r = 1; r < topology->size; r++)
        is_one = is_one && versions[r] == versions[0];
    if (is_one)
        return ZD_OK;
    name_versions(topology, versions, text, sizeof text);
    ZD_FAIL(ZD_ERR_UNFIT, "E1236", "different versions of NCCL: %s", text);
    zd_fail_help("install one version on all hosts, or name its folder in "
                 "ZEROD_LIBRARY_PATH; or comm.backend = \"mpi\"");
    return ZD_ERR_UNFIT;
}

enum zd_status nccl_versions_agree(struct nccl *nccl)
{
    struct comm *control = nccl->base.control;
    int mine = nccl->functions->version;
    void *all;
    ZD_TRY(comm_gather_new(control, &mine, sizeof mine, &all));
    enum zd_status status = compare(control->topology, all);
    free(all);
    return status;
}
