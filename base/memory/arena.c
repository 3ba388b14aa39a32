#include "base/memory/arena.h"
#include "base/must.h"

#include "base/device/device_memory.h"
#include "base/device/host_pages.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

const char *arena_memory_name(enum arena_memory memory)
{
    static const char *const names[] = {"device", "host", "pinned", "disk"};
    return names[memory];
}

const char *span_kind_name(enum span_kind kind)
{
    static const char *const names[] = {
            "params", "grads", "optimizer", "activations", "buffers"};
    return names[kind];
}

void arena_plan_init(struct arena_plan *plan)
{
    memset(plan, 0, sizeof *plan);
}

void arena_plan_fini(struct arena_plan *plan)
{
    free(plan->spans);
    memset(plan, 0, sizeof *plan);
}

const struct arena_span *arena_plan_find(
        const struct arena_plan *plan, const char *name)
{
    for (int i = 0; i < plan->span_count; i++)
        if (strcmp(plan->spans[i].name, name) == 0)
            return &plan->spans[i];
    return NULL;
}

enum zd_status arena_plan_add(
        struct arena_plan *plan, const char *name, enum arena_memory memory,
        enum span_kind kind, size_t bytes)
{
    size_t align = memory == ARENA_DEVICE ? ARENA_DEVICE_ALIGN : ARENA_ALIGN;
    size_t offset, end;
    assert(strlen(name) < ARENA_NAME_MAX);
    if (arena_plan_find(plan, name))
        return ZD_FAIL(ZD_ERR_BUG, "E0901", "span %s planned twice", name);
    ZD_GROW(plan->spans, plan->span_capacity, plan->span_count + 1);
    bool overflows =
            __builtin_add_overflow(plan->bytes[memory], align - 1, &offset);
    offset &= ~(align - 1);
    if (overflows || __builtin_add_overflow(offset, bytes, &end) ||
        end > SIZE_MAX / 4)
        return ZD_FAIL(ZD_ERR_UNFIT, "E0603", "span %s is too large", name);
    struct arena_span *span = &plan->spans[plan->span_count++];
    *span = (struct arena_span){
            .memory = memory, .kind = kind, .bytes = bytes, .offset = offset};
    strcpy(span->name, name);
    plan->bytes[memory] = end;
    return ZD_OK;
}

size_t arena_plan_kind_bytes(
        const struct arena_plan *plan, enum arena_memory memory,
        enum span_kind kind)
{
    size_t sum = 0;
    for (int i = 0; i < plan->span_count; i++)
        if (plan->spans[i].memory == memory && plan->spans[i].kind == kind)
            sum += plan->spans[i].bytes;
    return sum;
}

static enum zd_status take_memory(
        enum arena_memory memory, size_t bytes, void **base_out)
{
    switch (memory) {
    case ARENA_DEVICE:
        return device_take(bytes, base_out);
    case ARENA_PINNED:
        return device_take_pinned(bytes, base_out);
    case ARENA_HOST:
        return host_pages_take(bytes, "host", base_out);
    default: /* its file is as long as planned */
        return ZD_OK;
    }
}

enum zd_status arena_take(struct arena *arena, const struct arena_plan *plan)
{
    memset(arena, 0, sizeof *arena);
    arena->plan = plan;
    for (int k = 0; k < ARENA_MEMORIES; k++) {
        size_t bytes = plan->bytes[k];
        if (!bytes)
            continue;
        enum zd_status status =
                take_memory((enum arena_memory)k, bytes, &arena->base[k]);
        if (status != ZD_OK) {
            arena_release(arena);
            return status;
        }
        arena->taken_bytes[k] = bytes;
    }
    return ZD_OK;
}

void arena_release(struct arena *arena)
{
    void *host = arena->base[ARENA_HOST];
    device_give(arena->base[ARENA_DEVICE], arena->taken_bytes[ARENA_DEVICE]);
    device_give_pinned(
            arena->base[ARENA_PINNED], arena->taken_bytes[ARENA_PINNED]);
    if (host)
        munmap(host, arena->taken_bytes[ARENA_HOST]);
    memset(arena, 0, sizeof *arena);
}

void *arena_span(const struct arena *arena, const char *name)
{
    const struct arena_span *span = arena_plan_find(arena->plan, name);
    assert(span && "span was not planned");
    return (char *)arena->base[span->memory] + span->offset;
}
