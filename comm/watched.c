/* What a rank reports to its watch. */
#include "comm/backend.h"

#include <stdio.h>
#include <string.h>

struct watch_facts comm_watch_facts(const struct comm_options *options)
{
    return (struct watch_facts){
            .timeout = options->timeout,
            .files_timeout = options->files_timeout};
}

void comm_watch_host(const struct comm *comm, char host[COMM_HOST_MAX])
{
    int per_node = comm->options.ranks_per_node;
    memset(host, 0, COMM_HOST_MAX);
    if (per_node > 0)
        snprintf(
                host, COMM_HOST_MAX, "%.240s/%d", comm->host,
                mesh_group(mesh_of(comm->size, per_node), MESH_RAIL, comm->rank)
                        .place);
    else
        snprintf(host, COMM_HOST_MAX, "%s", comm->host);
}

enum comm_work comm_work(struct comm *comm, enum comm_work work)
{
    return comm ? seat_work(comm->seat, work) : WORK_NONE;
}

void comm_goes_on(struct comm *comm)
{
    if (comm)
        seat_goes_on(comm->seat);
}

void comm_step(struct comm *comm, int64_t step, double seconds)
{
    seat_step(comm->seat, step);
    if (seconds > 0)
        watch_step(comm->watch, seconds);
}

void comm_predict(struct comm *comm, double seconds)
{
    if (seconds > 0)
        watch_predict(comm->watch, seconds);
}

double comm_waited(const struct comm *comm)
{
    double seconds = seat_waited(comm->seat);
    if (comm->functions->waited)
        seconds += comm->functions->waited(comm);
    return seconds;
}

void comm_listen(struct comm *comm, const struct watch_listener *listener)
{
    watch_listen(comm->watch, listener);
}

struct comm_files *comm_files_begin(struct comm *comm, const char *what)
{
    return watch_files_begin(comm->watch, what);
}

struct comm_data comm_data_begin(struct comm *comm)
{
    return (struct comm_data){
            .before = comm_work(comm, WORK_DATA),
            .files = watch_data_begin(comm->watch)};
}

void comm_data_end(struct comm *comm, struct comm_data data)
{
    comm_files_end(data.files);
    comm_work(comm, data.before);
}
