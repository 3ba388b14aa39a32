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

enum { THREADS_MAX = 16, PAGE = 4096 };
static const size_t PIECE = (size_t)256 << 20; /* whole huge pages */

struct part {
    char *begin;
    size_t bytes;
};

/* The whole pages in it. */
static struct part pages_of(void *memory, size_t bytes)
{
    size_t skip = (PAGE - (uintptr_t)memory % PAGE) % PAGE;
    size_t left = bytes > skip ? bytes - skip : 0;
    return (struct part){(char *)memory + skip, left / PAGE * PAGE};
}

static void *populate_part(void *ctx)
{
    const struct part *part = ctx;
    madvise(part->begin, part->bytes, MADV_POPULATE_WRITE);
    return NULL;
}

static int thread_count(size_t pieces)
{
    int cpus = device_affinity_cpus();
    if (cpus > THREADS_MAX)
        cpus = THREADS_MAX;
    return pieces < (size_t)cpus ? (int)pieces : cpus;
}

void populate(void *memory, size_t bytes)
{
    struct part parts[THREADS_MAX];
    pthread_t threads[THREADS_MAX];
    bool is_started[THREADS_MAX];
    struct part pages = pages_of(memory, bytes);
    size_t pieces = pages.bytes / PIECE, done = 0;
    int count = thread_count(pieces);
    if (count == 0 && pages.bytes)
        populate_part(&pages);
    for (int i = 0; i < count; i++) {
        size_t share =
                pieces / (size_t)count + ((size_t)i < pieces % (size_t)count);
        size_t end = i == count - 1 ? pages.bytes : done + share * PIECE;
        parts[i] = (struct part){pages.begin + done, end - done};
        done = end;
        is_started[i] = thread_start(
                                &threads[i], "zerod-populate", populate_part,
                                &parts[i]) == 0;
        if (!is_started[i])
            populate_part(&parts[i]);
    }
    for (int i = 0; i < count; i++)
        if (is_started[i])
            pthread_join(threads[i], NULL);
}

/* --- in the background ---------------------------------------------------- */

struct populating {
    char *memory;
    size_t bytes;
    pthread_t thread;
    _Atomic bool is_to_end;
};

/* A huge page at a time, so that no one waits for long. */
enum { STEP = 2 << 20, LOW_PRIORITY = 10 };

static void populate_step(char *memory, size_t bytes)
{
    if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0)
        return;
    for (size_t at = 0; at < bytes; at += PAGE)
        __atomic_fetch_or(memory + at, 0, __ATOMIC_RELAXED);
}

static void *populate_slowly(void *ctx)
{
    struct populating *populating = ctx;
    setpriority(PRIO_PROCESS, (id_t)gettid(), LOW_PRIORITY);
    for (size_t at = 0; at < populating->bytes; at += STEP) {
        size_t left = populating->bytes - at;
        if (atomic_load(&populating->is_to_end))
            break;
        populate_step(populating->memory + at, left < STEP ? left : STEP);
    }
    return NULL;
}

struct populating *populate_begin(void *memory, size_t bytes)
{
    struct part pages = pages_of(memory, bytes);
    struct populating *populating =
            pages.bytes ? calloc(1, sizeof *populating) : NULL;
    if (!populating)
        return NULL;
    populating->memory = pages.begin;
    populating->bytes = pages.bytes;
    if (thread_start(
                &populating->thread, "zerod-populate", populate_slowly,
                populating) == 0)
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
