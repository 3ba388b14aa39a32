/* spans.h - what the threads of a rank spend their time on: begin and end of
 * named pieces of work, in preallocated memory.
 *
 * Any thread may add spans; adding allocates nothing, and does nothing when
 * `spans` is NULL. Spans that do not fit are dropped and counted. Read only
 * after all adding threads have finished and synchronized with the reader. */
#pragma once

#include "base/clock.h"
#include "base/status.h"

#include <stdint.h>

/* The thread of a span; worker i of the offload engine is LANE_WORKERS + i */
enum { LANE_TRAINER, LANE_DOWN, LANE_UP, LANE_WORKERS };

enum { SPAN_NAME_MAX = 16 };
struct span { /* plain bytes: sent between ranks */
    char name[SPAN_NAME_MAX];
    int32_t lane;
    int32_t unused;
    int64_t number;    /* of the layer, of bytes, ..; -1: none */
    double begin, end; /* clock_seconds */
};

struct spans;
enum zd_status spans_create(size_t capacity, struct spans **spans_out);
void spans_destroy(struct spans *spans);
/* `name`: at most SPAN_NAME_MAX - 1 bytes are kept. `spans` may be NULL. */
void spans_add(
        struct spans *spans, int lane, const char *name, int64_t number,
        double begin, double end);
/* All spans, in the order in which they ended; borrowed. */
const struct span *spans_get(
        const struct spans *spans, size_t *count_out, uint64_t *dropped_out);

/* 0 when `spans` is NULL, so that no clock is read. */
static inline double spans_clock(const struct spans *spans)
{
    return spans ? clock_seconds() : 0;
}
