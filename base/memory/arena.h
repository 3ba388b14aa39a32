/* arena.h - plan memory by name, then take it in one allocation per kind.
 *
 *     planning (pure)                     taking (once)
 *     arena_plan_add("zero.params", ..)   arena_take(plan, DEVICE)
 *     arena_plan_add("model.act", ..)       -> one aligned block
 *     arena_plan_add(...)                   arena_span(arena, "zero.params")
 *
 * A plan is a list of named spans; each has a memory (which allocation it lies
 * in), a kind (for the table people read) and a size. Spans of one memory lie
 * one after the other in the order they were added, each at its alignment, and
 * the memory's total includes that padding. A plan touches no memory, so that
 * `zerod plan` can price any world without allocating anything.
 *
 * Names are unique in a plan; they begin with the folder that asked for it. */
#pragma once

#include "base/status.h"

#include <stdint.h>

/* ARENA_DISK is planned and never taken: the requester owns its files. */
enum arena_memory {
    ARENA_DEVICE,
    ARENA_HOST,
    ARENA_PINNED,
    ARENA_DISK,
    ARENA_MEMORIES
};

enum span_kind {
    SPAN_PARAMS,
    SPAN_GRADS,
    SPAN_OPTIMIZER,
    SPAN_ACTIVATIONS,
    SPAN_BUFFERS,
    SPAN_KINDS
};

const char *arena_memory_name(enum arena_memory memory); /* "device" ... */
const char *span_kind_name(enum span_kind kind);         /* "params" ... */

/* Spans of device memory are aligned like a GPU's allocations, as libraries
 * expect (cuBLASLt refuses a workspace that is not). Other spans, and parts of
 * a span, are aligned to a cache line. */
enum { ARENA_NAME_MAX = 96, ARENA_ALIGN = 64, ARENA_DEVICE_ALIGN = 256 };

struct arena_span {
    char name[ARENA_NAME_MAX];
    enum arena_memory memory;
    enum span_kind kind;
    size_t bytes;
    size_t offset; /* from the start of its memory's allocation */
};

struct arena_plan {
    struct arena_span *spans; /* owned */
    int span_count;
    size_t span_capacity;
    size_t bytes[ARENA_MEMORIES]; /* totals, padding included */
};

void arena_plan_init(struct arena_plan *plan);
void arena_plan_fini(struct arena_plan *plan);
/* Ask for `bytes` under `name`. A span of 0 bytes is legal and listed. Fails
 * with ZD_ERR_BUG on a repeated name and ZD_ERR_UNFIT on overflow. */
enum zd_status arena_plan_add(
        struct arena_plan *plan, const char *name, enum arena_memory memory,
        enum span_kind kind, size_t bytes);
const struct arena_span *arena_plan_find(
        const struct arena_plan *plan, const char *name); /* NULL: none */
/* Sum of the bytes of one kind in one memory (padding not counted). */
size_t arena_plan_kind_bytes(
        const struct arena_plan *plan, enum arena_memory memory,
        enum span_kind kind);

/* The allocations of one process, filled with zero bytes. Memory of the host is
 * mapped exactly (page granularity) and not touched until used. Device and
 * pinned memory are those of the thread's device (base/device/device_memory.h):
 * on a GPU all of it is committed at once, and the host accesses device memory
 * only through that header's calls. */
struct arena {
    const struct arena_plan *plan; /* borrowed: must outlive the arena */
    void *base[ARENA_MEMORIES];
    size_t taken_bytes[ARENA_MEMORIES];
};

/* One allocation per memory with planned bytes. ZD_ERR_MEMORY when refused. */
enum zd_status arena_take(struct arena *arena, const struct arena_plan *plan);
void arena_release(struct arena *arena);
/* The span's memory; asserts that the plan has it. */
void *arena_span(const struct arena *arena, const char *name);
