/* exposition.h - metrics as Prometheus reads them: text 0.0.4, or OpenMetrics
 * 1.0. Internal to sinks.
 *
 *     # HELP zerod_train_steps_total Steps made.        0.0.4 names a counter
 *     # TYPE zerod_train_steps_total counter            with _total,
 * OpenMetrics zerod_train_steps_total{zerod_job="tiny"} 120     its family
 * without
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

enum family_type {
    FAMILY_GAUGE,
    FAMILY_COUNTER,   /* samples end in _total */
    FAMILY_INFO,      /* .. in _info, and are 1; a gauge in 0.0.4 */
    FAMILY_HISTOGRAM, /* .. in _bucket, _sum, _count */
};

struct family {
    const char *name; /* without _total and _info */
    enum family_type type;
    const char *unit; /* "seconds", "bytes", "ratio": the end of name; or NULL
                       */
    const char *help;
};

struct exposition {
    FILE *out;
    bool open_metrics;
    const char *job;      /* label zerod_job of every sample; NULL: without */
    struct family family; /* the one that is open */
};

void family_open(struct exposition *to, const struct family *family);
/* Pairs of a label's name and its value, then NULL. Values are escaped. */
void family_sample(struct exposition *to, double value, ...)
        __attribute__((sentinel));
void family_histogram(
        struct exposition *to, const struct run_histogram *histogram);
/* process_*: of this process, without the label zerod_job. */
void exposition_process(struct exposition *to);
/* The end of the text. */
void exposition_end(struct exposition *to);

#endif
