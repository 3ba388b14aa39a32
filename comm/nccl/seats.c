/* Memory that the ranks of a host share, so that one can say which of the
 * others has not come: a file in memory of the host's first rank, opened by the
 * others through /proc. Where that is not allowed, nobody is named. */
#include "comm/nccl/private.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct about { /* of a rank */
    char host[COMM_HOST_MAX];
    int pid, file;
};

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
static void find_seats(struct nccl *nccl, const struct about *all)
{
    const struct comm *comm = &nccl->device.base;
    for (int r = 0; r < comm->size; r++) {
        if (strcmp(all[r].host, all[comm->rank].host) != 0)
            continue;
        if (r == comm->rank)
            nccl->seat = nccl->seat_count;
        nccl->seat_ranks[nccl->seat_count++] = r;
    }
}

/* Nodes that a test asks for are hosts. */
static void name_host(const struct comm *control, char *out)
{
    int per_node = control->options.ranks_per_node;
    size_t used = strlen(control->host);
    memcpy(out, control->host, COMM_HOST_MAX);
    if (per_node > 0)
        snprintf(
                out + used, COMM_HOST_MAX - used, "/%d",
                control->rank / per_node);
}

enum zd_status nccl_seats_take(struct nccl *nccl)
{
    struct comm *comm = &nccl->device.base;
    struct comm *control = nccl->device.control;
    size_t size = (size_t)comm->size;
    struct about mine = {.pid = (int)getpid()};
    struct about *all = malloc(size * sizeof *all);
    nccl->seat_ranks = malloc(size * sizeof *nccl->seat_ranks);
    if (!all || !nccl->seat_ranks) {
        free(all);
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    }
    mine.file = memfd_create("zerod ranks", MFD_CLOEXEC);
    name_host(control, mine.host);
    enum zd_status status = comm_gather_all(control, &mine, sizeof mine, all);
    if (status == ZD_OK) {
        find_seats(nccl, all);
        const struct about *first = &all[nccl->seat_ranks[0]];
        nccl->seats = map_file(
                first->pid, first->file,
                (size_t)nccl->seat_count * sizeof(struct seat));
        status = comm_barrier(control); /* all have opened it */
    }
    if (mine.file >= 0)
        close(mine.file);
    free(all);
    if (status == ZD_OK)
        status = hosts_create(control, mine.host, nccl->seats, &nccl->hosts);
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
    free(nccl->seat_ranks);
    nccl->seat_ranks = NULL;
}
