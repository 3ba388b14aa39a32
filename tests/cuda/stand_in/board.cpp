/* board.cpp - what every process takes of each GPU: a file that all of them
 * map, when ZD_STANDIN_BOARD names one. Processes that have ended count no
 * longer. Without it a process is alone. */
#include "tests/cuda/stand_in/board.h"
#include "tests/cuda/stand_in/internal.h"

#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace standin
{
namespace
{
const int MAX_GPUS = 64;

struct board *open_board(void)
{
    const char *path = getenv("ZD_STANDIN_BOARD");
    int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd < 0)
        return nullptr;
    void *map = MAP_FAILED;
    if (ftruncate(fd, sizeof(struct board)) == 0)
        map =
                mmap(nullptr, sizeof(struct board), PROT_READ | PROT_WRITE,
                     MAP_SHARED, fd, 0);
    close(fd);
    return map == MAP_FAILED ? nullptr : static_cast<struct board *>(map);
}

struct board *board(void)
{
    static struct board *const one = open_board();
    return one;
}

bool is_alive(int pid)
{
    return pid > 0 && kill(pid, 0) == 0;
}

/* This process' slot for a GPU, which it keeps; NULL: all are taken. */
struct board_slot *claim(int device)
{
    for (struct board_slot &slot : board()->slots) {
        int owner = slot.pid.load();
        if (is_alive(owner) ||
            !slot.pid.compare_exchange_strong(owner, getpid()))
            continue;
        slot.bytes = 0;
        slot.gpu = settings().visible[device];
        return &slot;
    }
    return nullptr;
}
} // namespace

void board_put(int device, uint64_t bytes)
{
    static std::mutex mutex;
    static struct board_slot *mine[MAX_GPUS];
    if (!board())
        return;
    std::lock_guard<std::mutex> lock(mutex);
    if (!mine[device])
        mine[device] = claim(device);
    if (mine[device])
        mine[device]->bytes = bytes;
}

uint64_t board_others(int device)
{
    uint64_t sum = 0;
    if (!board())
        return 0;
    int gpu = settings().visible[device];
    for (const struct board_slot &slot : board()->slots)
        if (slot.pid != getpid() && slot.gpu == gpu && is_alive(slot.pid))
            sum += slot.bytes;
    return sum;
}
} // namespace standin
