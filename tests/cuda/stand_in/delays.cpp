/* delays.cpp - what a GPU does later than one thinks, at random under a seed:
 * copies and functions of the host begin late, and what a driver may wait for
 * the device in, it does. */
#include "tests/cuda/stand_in/internal.h"

#include <chrono>
#include <set>
#include <thread>

namespace standin
{
namespace
{
enum { LONGEST_US = 500 };

/* The n-th of a process. Which operation that is depends on its threads. */
uint64_t next_random(void)
{
    static std::atomic<uint64_t> count;
    uint64_t x = settings().delay_seed * 0x9e3779b97f4a7c15u + ++count;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

struct kernels {
    std::mutex mutex;
    std::set<std::pair<const void *, int>> loaded; /* kernel, device */
};

} // namespace

void delay_at_random(void)
{
    if (!settings().delays)
        return;
    uint64_t random = next_random();
    if (random % 8 == 0)
        std::this_thread::sleep_for(
                std::chrono::microseconds((random >> 8) % LONGEST_US));
}

void wait_at_random(void)
{
    if (!settings().delays || next_random() % 2)
        return;
    for (int i = 0; i < settings().gpus; i++)
        finish_device(i);
}

void load_kernel(const void *kernel, int device)
{
    if (!settings().delays)
        return;
    {
        locked<struct kernels> kernels;
        if (!kernels->loaded.insert({kernel, device}).second)
            return;
    }
    finish_device(device);
}
} // namespace standin
