/* Memory that the ranks of a host share, so that one can say which of the
 * others has not come: a file in memory of the host's first rank, opened by the
 * others through /proc. Where that is not allowed, nobody is named. */
#include "comm/nccl/private.h"
#include "comm/topology.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static struct seat *map_file(int pid, int file, size_t bytes)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, file);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *base = MAP_FAILED;
    if (fd < 0)
        return NULL;
    if (ftruncate(fd, (off_t)bytes) == 0)
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return base == MAP_FAILED ? NULL : base;
}

/* The ranks of this host, and this rank's place among them. */
static void find_seats(struct nccl *nccl)
{
    const struct comm *comm = &nccl->device.base;
    for (int r = 0; r < comm->size; r++) {
        if (r == comm->rank)
            nccl->seat = nccl->seat_count;
        nccl->seat_count += topology_same_host(comm->topology, r, comm->rank);
    }
}

enum zd_status nccl_seats_take(struct nccl *nccl)
{
    struct comm *comm = &nccl->device.base;
    struct comm *control = nccl->device.control;
    const struct topology_rank *ranks = comm->topology->ranks;
    int mine = memfd_create("zerod ranks", MFD_CLOEXEC);
    void *all = NULL;
    enum zd_status status = comm_gather_new(control, &mine, sizeof mine, &all);
    if (status == ZD_OK) {
        const int *files = all;
        int first = ranks[comm->rank].first;
        find_seats(nccl);
        nccl->seats = map_file(
                ranks[first].pid, files[first],
                (size_t)nccl->seat_count * sizeof(struct seat));
        status = comm_barrier(control); /* all have opened it */
    }
    if (mine >= 0)
        close(mine);
    free(all);
    if (status == ZD_OK)
        status = hosts_create(control, nccl->seats, &nccl->hosts);
    return status;
}

void nccl_seats_leave(struct nccl *nccl)
{
    if (atomic_load(&nccl->has_failed))
        return;
    hosts_destroy(nccl->hosts);
    nccl->hosts = NULL;
    if (nccl->seats)
        munmap(nccl->seats, (size_t)nccl->seat_count * sizeof(struct seat));
    nccl->seats = NULL;
}
