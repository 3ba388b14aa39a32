#include "base/spans.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct spans {
    size_t capacity;
    atomic_size_t next; /* beyond the capacity: dropped */
    struct span *at;
};

enum zd_status spans_create(size_t capacity, struct spans **spans_out)
{
    struct spans *spans = calloc(1, sizeof *spans);
    if (spans)
        spans->at = calloc(capacity, sizeof *spans->at);
    if (!spans || !spans->at) {
        free(spans);
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory for a profile");
    }
    /* every page is taken now, not in the middle of what is measured */
    memset(spans->at, 1, capacity * sizeof *spans->at);
    spans->capacity = capacity;
    atomic_init(&spans->next, 0);
    *spans_out = spans;
    return ZD_OK;
}

void spans_destroy(struct spans *spans)
{
    if (!spans)
        return;
    free(spans->at);
    free(spans);
}

void spans_add(
        struct spans *spans, int lane, const char *name, int64_t number,
        double begin, double end)
{
    if (!spans)
        return;
    size_t place =
            atomic_fetch_add_explicit(&spans->next, 1, memory_order_relaxed);
    if (place >= spans->capacity)
        return;
    struct span *span = &spans->at[place];
    memset(span, 0, sizeof *span);
    strncpy(span->name, name, SPAN_NAME_MAX - 1);
    span->lane = lane;
    span->number = number;
    span->begin = begin;
    span->end = end;
}

const struct span *spans_get(
        const struct spans *spans, size_t *count_out, uint64_t *dropped_out)
{
    size_t next = atomic_load(&spans->next);
    *count_out = next < spans->capacity ? next : spans->capacity;
    *dropped_out = next - *count_out;
    return spans->at;
}
