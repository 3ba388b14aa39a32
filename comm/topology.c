#include "comm/topology.h"
#include "base/must.h"

#include "base/device/device.h"
#include "comm/backend.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct topology_rank describe(const struct comm *comm)
{
    struct topology_rank mine;
    struct device_facts facts = device_facts();
    memset(&mine, 0, sizeof mine); /* padding too: it is sent */
    comm_watch_host(comm, mine.host);
    memcpy(mine.gpu, facts.uuid, sizeof mine.gpu);
    mine.backend = facts.backend;
    mine.numa_node = facts.numa_node;
    mine.pid = (int32_t)getpid();
    return mine;
}

static void find_first(struct topology *topology)
{
    struct topology_rank *ranks = topology->ranks;
    for (int r = 0; r < topology->size; r++)
        while (strcmp(ranks[ranks[r].first].host, ranks[r].host) != 0)
            ranks[r].first++;
}

enum zd_status topology_make(struct comm *comm)
{
    size_t size = (size_t)comm->size;
    struct topology_rank mine = describe(comm);
    ZD_FREED struct topology *topology =
            zd_must(malloc(sizeof *topology + size * sizeof *topology->ranks));
    assert(!comm->control);
    ZD_TRY(comm_gather_all(comm, &mine, sizeof mine, topology->ranks));
    topology->size = comm->size;
    find_first(topology);
    free(comm->topology);
    comm->topology = ZD_TAKE(topology);
    return ZD_OK;
}

bool topology_same_host(const struct topology *topology, int a, int b)
{
    return topology->ranks[a].first == topology->ranks[b].first;
}

bool topology_same_gpu(const struct topology *topology, int a, int b)
{
    const struct topology_rank *ranks = topology->ranks;
    return ranks[a].gpu[0] && strcmp(ranks[a].gpu, ranks[b].gpu) == 0;
}

int topology_sharers(const struct topology *topology, int rank)
{
    int sharers = 0;
    for (int r = 0; r < topology->size; r++)
        sharers += topology_same_gpu(topology, rank, r);
    return sharers;
}
