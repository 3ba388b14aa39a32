#include "tests/cuda/nccl/internal.h"

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int board_new_file(void)
{
    return memfd_create("nccl stand-in", MFD_CLOEXEC);
}

/* The file of another process is opened through /proc. */
bool board_map(struct ncclComm *comm, int pid, int fd)
{
    char path[64];
    size_t bytes = sizeof(struct board) + (size_t)comm->size * BUFFER_BYTES;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    int own = open(path, O_RDWR | O_CLOEXEC);
    if (own < 0 || ftruncate(own, (off_t)bytes) != 0)
        return false;
    void *base =
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0);
    close(own);
    if (base == MAP_FAILED)
        return false;
    comm->board = (struct board *)base;
    comm->buffers = (unsigned char *)base + sizeof(struct board);
    return true;
}

static void futex(std::atomic<uint32_t> *word, int what, uint32_t value)
{
    struct timespec limit = {0, 10 * 1000 * 1000};
    syscall(SYS_futex, word, what, value, &limit, nullptr, 0);
}

static bool all_came(struct ncclComm *comm)
{
    for (int r = 0; r < comm->size; r++)
        if (comm->board->places[r].phase.load() < comm->phase)
            return false;
    return true;
}

bool board_meet(struct ncclComm *comm)
{
    struct board *board = comm->board;
    board->places[comm->rank].phase.store(++comm->phase);
    board->tick.fetch_add(1);
    futex(&board->tick, FUTEX_WAKE, INT_MAX);
    for (;;) {
        uint32_t seen = board->tick.load();
        if (all_came(comm))
            return true;
        if (comm->is_aborted.load())
            return false;
        futex(&board->tick, FUTEX_WAIT, seen);
    }
}

bool failure_wanted(const char *name, uint64_t number, int rank)
{
    const char *list = getenv("NCCL_STANDIN_FAIL");
    size_t length = strlen(name);
    while (list && *list) {
        unsigned long long at = 0;
        int who = -1, read = 0;
        if (strncmp(list, name, length) == 0) {
            const char *rest = list + length;
            if (sscanf(rest, ":%llu%n", &at, &read) == 1)
                rest += read;
            if (*rest == '@')
                who = atoi(rest + 1);
            if ((at == 0 || at == number) && (who < 0 || who == rank))
                return true;
        }
        list = strchr(list, ',');
        list = list ? list + 1 : nullptr;
    }
    return false;
}
