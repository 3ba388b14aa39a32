/* topology.h - where the ranks are: for each rank its host, its local rank, and
 * its device.
 *
 *   rank    0       1       2       3
 *   host    a       a       b       b
 *   first   0       0       2       2       lowest rank of the host
 *   gpu     GPU-1.. GPU-2.. GPU-3.. GPU-3..   ranks 2 and 3 share one
 *
 * The ranks exchange it once, at start, when each has opened its device; it is
 * kept by their comm (comm_topology) and read by all from then on. A host is
 * its system name; if a test asks for nodes of a given size
 * (comm_options.ranks_per_node), hosts are "host/0", "host/1" and so on.
 *
 * Memory: 320 bytes or so for each rank, on each rank. */
#pragma once

#include "comm/comm.h"

struct topology_rank {
    char host[COMM_HOST_MAX];
    char gpu[48];      /* its uuid; "": the rank computes on the CPU */
    int32_t backend;   /* enum device_backend: DEVICE_CPU or DEVICE_CUDA */
    int32_t numa_node; /* of the GPU; -1: not known */
    int32_t pid;
    int32_t first; /* lowest rank of the same host */
};

struct topology {
    int size;
    struct topology_rank ranks[]; /* (size) */
};

/* Collective over the host's comm (not the device's), for the thread's current
 * device; replaces an existing topology. ZD_ERR_MEMORY and ZD_ERR_PEER, the
 * same on all ranks. */
enum zd_status topology_make(struct comm *comm);

bool topology_same_host(const struct topology *topology, int a, int b);
/* Whether both ranks compute on one GPU; false if they have none, even for a ==
 * b. */
bool topology_same_gpu(const struct topology *topology, int a, int b);
/* Ranks that compute on this rank's GPU, itself too; 0: it has none. */
int topology_sharers(const struct topology *topology, int rank);
