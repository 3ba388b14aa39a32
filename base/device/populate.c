#include "base/device/populate.h"

#include "base/device/device.h"
#include "base/threads.h"

#include <stdbool.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* linux/mman.h since 5.14 */
#endif

enum { THREADS_MAX = 16 };
static const size_t PIECE = (size_t)256 << 20; /* whole huge pages */

struct part {
    char *begin;
    size_t bytes;
};

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
    size_t pieces = bytes / PIECE, done = 0;
    int count = thread_count(pieces);
    for (int i = 0; i < count; i++) {
        size_t share =
                pieces / (size_t)count + ((size_t)i < pieces % (size_t)count);
        size_t end = i == count - 1 ? bytes : done + share * PIECE;
        parts[i] = (struct part){(char *)memory + done, end - done};
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
