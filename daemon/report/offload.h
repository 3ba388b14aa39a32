/* offload.h - the lines of an offloaded run: what moved, how long it
 * took, and for what the trainer waited. */
#pragma once

#include "train/train.h"

/* "down 3.1GB in 410.0 ms  host step 1203.1 ms  up 3.1GB in 398.2 ms  waited
 * 312.0 ms (down 12.0, host step 300.0, up 0.0)", means over `steps` steps;
 * false and no text when nothing has moved. */
bool report_offload_line(
        const struct train_offload_report *report, int64_t steps, char *out,
        size_t out_bytes);
/* What it waited for longest, and what might be done: NULL when it waited for
 * less than a tenth of `step_seconds` (mean of a step). */
const char *report_offload_advice(
        const struct train_offload_report *report, int64_t steps,
        double step_seconds);
