/* Shared by all back ends for device memory. */
#include "comm/comm_device.h"

#include <string.h>

void comm_device_init(
        struct comm *comm, struct comm *control,
        const struct comm_functions *functions)
{
    comm_base_init(
            comm, functions, control->rank, control->size, &control->options);
    comm->control = control;
    comm->local_rank = control->local_rank;
    comm->local_size = control->local_size;
    comm->mesh = control->mesh;
    comm->node_ranks = control->node_ranks;
    comm->topology = control->topology;
    comm->watch = control->watch;
    comm->seat = control->seat;
    memcpy(comm->host, control->host, sizeof comm->host);
}
