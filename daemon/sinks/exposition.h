/* exposition.h - metrics as Prometheus reads them: text 0.0.4, or OpenMetrics
 * 1.0. Internal to sinks.
 *
 *     # HELP zerod_train_steps_total Steps made.        0.0.4 names a counter
 *     # TYPE zerod_train_steps_total counter            with _total,
 *     zerod_train_steps_total{zerod_job="tiny"} 120     OpenMetrics its family
 *                                                       without
 *
 * A family is opened, then its samples follow: so all of them are contiguous,
 * as both formats ask.
 *
 * Source: prometheus.io/docs/instrumenting/exposition_formats and the
 *         OpenMetrics specification 1.0.0. */
#ifndef ZD_DAEMON_SINKS_EXPOSITION_H
#define ZD_DAEMON_SINKS_EXPOSITION_H

#include "daemon/state/run_state.h"

#include <stdio.h>

struct exposition {
    FILE *out;
    bool open_metrics;
    const char *job;  /* label zerod_job of every sample; NULL: without */
    const char *name; /* of the family that is open .. */
    enum metric_family kind;
};

/* `name`: without _total and _info; its unit (seconds, bytes, ratio) ends it.
 */
void family_open(
        struct exposition *to, const char *name, enum metric_family kind,
        const char *help);
/* `labels`: names and values in turn, then NULL. Values are escaped. */
void family_sample(
        struct exposition *to, double value, const char *const *labels);
/* Every family of a table, with a sample for each of `count` structs of `bytes`
 * (ranks, which are labelled by their numbers; or one). */
void exposition_table(
        struct exposition *to, const struct metric_table *table,
        const void *from, size_t bytes, int count);
/* process_*: of this process, without the label zerod_job. */
void exposition_process(struct exposition *to);
/* The end of the text. */
void exposition_end(struct exposition *to);

#endif
