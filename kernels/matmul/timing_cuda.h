/* timing_cuda.h - how long something takes on a GPU: what is chosen by timing
 * is measured here. */
#pragma once

#include "base/device/device.h"

#include <stdbool.h>

/* What is timed: `run` queues it once on `stream`, and may be called often.
 * *refused_out: it cannot be done in this way. */
struct timed_work {
    enum zd_status (*run)(const void *work, bool *refused_out);
    const void *work;
    struct stream *stream;
};

/* Microseconds, the shortest of a few runs after one that loads the kernel; < 0
 * where it is refused. One that is far slower than `best` (< 0: there is none)
 * is dropped early. Waits for the device. */
enum zd_status timing_measure(
        const struct timed_work *timed, double best, double *shortest_out);
