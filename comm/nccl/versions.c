/* All ranks must have one version of NCCL: its protocol is no promise between
 * versions, and what it says of a mismatch (or does not) names no host. */
#include "comm/nccl/private.h"

#include <stdlib.h>
#include <string.h>

struct version_of { /* a rank's */
    char host[COMM_HOST_MAX];
    int version;
};

static bool is_same(const struct version_of *a, const struct version_of *b)
{
    return a->version == b->version && strcmp(a->host, b->host) == 0;
}

/* "ranks 0-3 (host-a) 2.28.9, rank 4 (host-b) 2.27.5" as far as it fits. */
static void name_versions(
        const struct version_of *all, int size, char *out, size_t out_bytes)
{
    size_t used = 0;
    for (int r = 0, last; r < size && used < out_bytes; r = last + 1) {
        last = r;
        while (last + 1 < size && is_same(&all[last + 1], &all[r]))
            last++;
        char ranks[48];
        snprintf(
                ranks, sizeof ranks, last > r ? "ranks %d-%d" : "rank %d", r,
                last);
        used += (size_t)snprintf(
                out + used, out_bytes - used, "%s%s (%s) %d.%d.%d",
                r ? ", " : "", ranks, all[r].host, all[r].version / 10000,
                all[r].version / 100 % 100, all[r].version % 100);
    }
}

static enum zd_status compare(const struct version_of *all, int size)
{
    char text[400] = "";
    bool is_one = true;
    for (int r = 1; r < size; r++)
        is_one = is_one && all[r].version == all[0].version;
    if (is_one)
        return ZD_OK;
    name_versions(all, size, text, sizeof text);
    ZD_FAIL(ZD_ERR_UNFIT, "E1236", "the ranks have different NCCLs: %s", text);
    zd_fail_help(
            "one version everywhere, for which ZEROD_LIBRARY_PATH can name "
            "a folder; or comm.backend = \"mpi\"");
    return ZD_ERR_UNFIT;
}

enum zd_status nccl_versions_agree(struct nccl *nccl)
{
    struct comm *control = nccl->device.control;
    struct version_of mine = {.version = nccl->functions->version};
    struct version_of *all = malloc((size_t)control->size * sizeof *all);
    if (!all)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    memcpy(mine.host, control->host, sizeof mine.host);
    enum zd_status status = comm_gather_all(control, &mine, sizeof mine, all);
    if (status == ZD_OK)
        status = compare(all, control->size);
    free(all);
    return status;
}
