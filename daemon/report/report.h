/* report.h - what a user sees of a run: banner, steps, evaluations, samples,
 * end. All of it goes through the log to stderr; on a terminal a bar of one
 * line stands below it. */
#pragma once

#include "base/units.h"
#include "train/train.h"

struct report; /* rank 0's */

/* `job` must outlive it. */
struct report *report_create(const struct train_job *job);
void report_destroy(struct report *report);
/* Calls that go to this report; report may be NULL (other ranks). */
struct train_observer report_observer(struct report *report);

/* The bar into `out`, at most `columns` wide; parts that do not fit are left
 * out, the count of steps stays. */
void report_bar(
        const struct train_step_report *step, double eta_seconds, int columns,
        char *out, size_t out_bytes);

/* --- for the files of this room --- */

/* "12.3k", "1.24M": for rates and counts. */
#define REPORT_SHORT(value) UNITS_NUMBER((double)(value), 3)

/* What was understood and chosen, before step 1. */
void report_banner(const struct train_banner *banner);
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
