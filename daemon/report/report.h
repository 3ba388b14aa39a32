/* report.h - what a user sees of a run: banner, steps, evaluations, samples,
 * end. All of it goes through the log to stderr; on a terminal a bar of one
 * line stands below it. */
#pragma once

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
