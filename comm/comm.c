#include "comm/backend.h"

int comm_rank(const struct comm *comm)
{
    return comm->rank;
}

int comm_size(const struct comm *comm)
{
    return comm->size;
}

int comm_local_rank(const struct comm *comm)
{
    return comm->local_rank;
}

int comm_local_size(const struct comm *comm)
{
    return comm->local_size;
}

const char *comm_host(const struct comm *comm)
{
    return comm->host;
}

struct comm_counters comm_counters(const struct comm *comm)
{
    return comm->counters;
}
