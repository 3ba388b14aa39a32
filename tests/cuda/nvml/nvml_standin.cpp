/* nvml_standin.cpp - as much of NVML as tells whose memory a GPU's is: by the
 * board of the stand-in for CUDA (ZD_STANDIN_BOARD). Without a board it does
 * not start, as where the driver has no NVML. */
#include "tests/cuda/stand_in/board.h"

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9
};

struct process {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};

static const struct board *board;

extern "C" int nvmlInitWithFlags(unsigned flags)
{
    const char *path = getenv("ZD_STANDIN_BOARD");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    void *map = mmap(nullptr, sizeof *board, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    board = map == MAP_FAILED ? nullptr
                              : static_cast<const struct board *>(map);
    return board ? NVML_SUCCESS : NVML_ERROR_DRIVER_NOT_LOADED;
}

/* The last byte of a stand-in's UUID is its number. */
extern "C" int nvmlDeviceGetHandleByUUID(const char *uuid, void **out)
{
    size_t length = strlen(uuid);
    if (length != 40 || strncmp(uuid, "GPU-", 4) != 0)
        return NVML_ERROR_NOT_FOUND;
    *out = (void *)(strtoul(uuid + length - 2, nullptr, 16) + 1);
    return NVML_SUCCESS;
}

extern "C" int nvmlDeviceGetComputeRunningProcesses_v3(
        void *device, unsigned *count, struct process *out)
{
    unsigned room = *count, found = 0;
    if (!board || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (const struct board_slot &slot : board->slots) {
        int pid = slot.pid;
        if (pid <= 0 || (size_t)slot.gpu + 1 != (size_t)device ||
            kill(pid, 0) != 0)
            continue;
        if (found < room)
            out[found] = {(unsigned)pid, slot.bytes, ~0u, ~0u};
        found++;
    }
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
