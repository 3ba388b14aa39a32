/* What all back ends for a device's memory share. */
#include "comm/comm_device.h"

#include <string.h>

static struct comm *control_of(struct comm *comm)
{
    return ((struct comm_device *)comm)->control;
}

void comm_device_init(
        struct comm_device *device, struct comm *control,
        const struct comm_functions *functions)
{
    struct comm *comm = &device->base;
    device->control = control;
    comm_base_init(
            comm, functions, control->rank, control->size, &control->options);
    comm->local_rank = control->local_rank;
    comm->local_size = control->local_size;
    comm->mesh = control->mesh;
    comm->node_ranks = control->node_ranks;
    comm->is_device = true;
    comm->topology = control->topology;
    comm->watch = control->watch;
    comm->seat = control->seat;
    memcpy(comm->host, control->host, sizeof comm->host);
}

enum zd_status comm_device_barrier(struct comm *comm)
{
    return comm_barrier(control_of(comm));
}

enum zd_status comm_device_broadcast(
        struct comm *comm, void *data, size_t bytes, int root)
{
    return comm_broadcast(control_of(comm), data, bytes, root);
}

enum zd_status comm_device_exchange(
        struct comm *comm, const struct exchange *exchange)
{
    struct comm *control = control_of(comm);
    bool is_step = exchange->traffic == TRAFFIC_STEP;
    comm_message_begin(
            control, is_step ? SEAT_ALL_REDUCE : SEAT_GATHER, exchange->bytes);
    enum zd_status status = control->functions->exchange(control, exchange);
    comm_message_end(control);
    return status;
}

void comm_device_abort(struct comm *comm, int exit_code)
{
    comm_abort(control_of(comm), exit_code);
}

void comm_device_count(struct comm *comm, const struct comm_op *op)
{
    uint64_t bytes =
            (uint64_t)(comm->size - 1) * op->count * dtype_bytes(op->type);
    if (op->kind == OP_ALL_GATHER)
        comm->counters.all_gather += bytes;
    else
        comm->counters.reduce_scatter += bytes;
}
