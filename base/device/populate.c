#include "base/device/populate.h"

#include "base/device/device.h"
#include "base/threads.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* linux/mman.h since 5.14 */
#endif

/* A step is a huge page, so that no one waits for long. */
enum { THREADS_MAX = 16, PAGE = 4096, STEP = 2 << 20, LOW_PRIORITY = 10 };
static const size_t PIECE = (size_t)256 << 20; /* worth a thread */

struct populating {
    char *memory;
    size_t bytes;
    bool is_beside; /* other work */
    pthread_t thread;
    _Atomic bool is_to_end;
};

static void populate_step(char *memory, size_t bytes, bool is_beside)
{
    if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0 || !is_beside)
        return;
    for (size_t at = 0; at < bytes; at += PAGE)
        __atomic_fetch_or(memory + at, 0, __ATOMIC_RELAXED);
}

static void *run(void *ctx)
{
    struct populating *populating = ctx;
    if (populating->is_beside)
        setpriority(PRIO_PROCESS, (id_t)gettid(), LOW_PRIORITY);
    for (size_t at = 0; at < populating->bytes; at += STEP) {
        size_t left = populating->bytes - at;
        if (atomic_load(&populating->is_to_end))
            break;
        populate_step(
                populating->memory + at, left < STEP ? left : STEP,
                populating->is_beside);
    }
    return NULL;
}

static struct populating part_of(char *memory, size_t bytes, bool is_beside)
{
    return (struct populating){
            .memory = memory, .bytes = bytes, .is_beside = is_beside};
}

/* The whole pages of the memory. */
static struct populating pages_of(void *memory, size_t bytes, bool is_beside)
{
    size_t skip = (PAGE - (uintptr_t)memory % PAGE) % PAGE;
    size_t left = bytes > skip ? bytes - skip : 0;
    return part_of((char *)memory + skip, left / PAGE * PAGE, is_beside);
}

static bool start(struct populating *populating)
{
    return populating->bytes > 0 &&
           thread_start(
                   &populating->thread, "zerod-populate", run, populating) == 0;
}

void populate(void *memory, size_t bytes)
{
    struct populating all = pages_of(memory, bytes, false), parts[THREADS_MAX];
    bool is_started[THREADS_MAX];
    size_t pieces = all.bytes / PIECE + 1,
           cpus = (size_t)device_affinity_cpus();
    size_t most = cpus < THREADS_MAX ? cpus : THREADS_MAX;
    size_t count = pieces < most ? pieces : most, done = 0;
    for (size_t i = 0; i < count; i++) {
        bool is_last = i + 1 == count;
        size_t end = is_last ? all.bytes : pieces * (i + 1) / count * PIECE;
        parts[i] = part_of(all.memory + done, end - done, false);
        is_started[i] = !is_last && start(&parts[i]);
        done = end;
    }
    for (size_t i = 0; i < count; i++)
        if (is_started[i])
            pthread_join(parts[i].thread, NULL);
        else
            run(&parts[i]);
}

struct populating *populate_begin(void *memory, size_t bytes)
{
    struct populating *populating = zd_array(1, sizeof *populating);
    *populating = pages_of(memory, bytes, true);
    if (start(populating))
        return populating;
    free(populating);
    return NULL;
}

void populate_stop(struct populating *populating)
{
    if (populating)
        atomic_store(&populating->is_to_end, true);
}

void populate_end(struct populating *populating)
{
    if (!populating)
        return;
    populate_stop(populating);
    pthread_join(populating->thread, NULL);
    free(populating);
}
