/* lock.c - pinned spans of a CPU device are locked in memory when the job asks
 * for it. With a GPU the driver has locked them: the arena's pinned memory is.
 */
#include "offload/engine.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

static bool is_pinned_already(void)
{
    return device_backend() == DEVICE_CUDA;
}

/* CAP_IPC_LOCK goes beyond every limit. */
static bool may_lock_anything(void)
{
    enum { CAP_IPC_LOCK_BIT = 14 };
    uint64_t effective = 0;
    char line[256];
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "CapEff: %" SCNx64, &effective) == 1)
            break;
    if (file)
        fclose(file);
    return effective >> CAP_IPC_LOCK_BIT & 1;
}

/* Pages at both ends of each span count too. */
static size_t bytes_to_lock(const size_t bytes[OFFLOAD_PARTS])
{
    enum { PAGE = 4096 };
    size_t sum = 0;
    for (int part = 0; part < OFFLOAD_PARTS; part++)
        if (part_spans[part].memory == ARENA_PINNED && bytes[part])
            sum += bytes[part] + 2 * PAGE;
    return sum;
}

enum zd_status pinned_check(
        const struct offload_options *options,
        const size_t bytes[OFFLOAD_PARTS])
{
    size_t need = bytes_to_lock(bytes);
    struct rlimit limit;
    if (options->pin_memory != OFFLOAD_PIN_YES || is_pinned_already() ||
        getrlimit(RLIMIT_MEMLOCK, &limit) != 0 ||
        limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= need ||
        may_lock_anything())
        return ZD_OK;
    ZD_FAIL(ZD_ERR_UNFIT, "E0652",
            "offload.pin_memory = true locks %zu bytes of each rank, and "
            "this process may lock %" PRIu64,
            need, (uint64_t)limit.rlim_cur);
    zd_fail_help(
            "run `ulimit -l %zu` (or `ulimit -l unlimited`) before the "
            "start, or set offload.pin_memory = false",
            (need + 1023) / 1024);
    return ZD_ERR_UNFIT;
}

/* The span of a part that is pinned, or NULL. */
static const struct arena_span *pinned_span(
        const struct offload *offload, int part)
{
    return part_spans[part].memory == ARENA_PINNED
                   ? arena_plan_find(
                             offload->arena->plan, part_spans[part].name)
                   : NULL;
}

void pinned_unlock(struct offload *offload)
{
    for (int part = 0; part < offload->locked_parts; part++) {
        const struct arena_span *span = pinned_span(offload, part);
        if (span)
            munlock(arena_span(offload->arena, span->name), span->bytes);
    }
    offload->locked_parts = 0;
}

enum zd_status pinned_lock(struct offload *offload)
{
    if (offload->request.options->pin_memory != OFFLOAD_PIN_YES ||
        is_pinned_already())
        return ZD_OK;
    for (int part = 0; part < OFFLOAD_PARTS; part++) {
        const struct arena_span *span = pinned_span(offload, part);
        if (span &&
            mlock(arena_span(offload->arena, span->name), span->bytes) != 0) {
            int error = errno;
            ZD_FAIL(ZD_ERR_MEMORY, "E0653",
                    "the system refused to lock %zu bytes of %s: %s",
                    span->bytes, span->name, strerror(error));
            zd_fail_help("run `ulimit -l unlimited` before the start, or set "
                         "offload.pin_memory = false");
            return ZD_ERR_MEMORY;
        }
        offload->locked_parts = part + 1;
    }
    return ZD_OK;
}
