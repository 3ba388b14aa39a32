/* prometheus.h - which form of the metrics; internal to sinks. */
#ifndef ZD_DAEMON_SINKS_PROMETHEUS_H
#define ZD_DAEMON_SINKS_PROMETHEUS_H

#include "daemon/state/run_state.h"

enum prometheus_form {
    PROMETHEUS_TEXT,
    PROMETHEUS_OPEN_METRICS,
    /* as PROMETHEUS_TEXT, without process_*: node_exporter has its own */
    PROMETHEUS_TEXTFILE
};

/* malloc'd; NULL: out of memory. */
char *prometheus_write(
        const struct run_state *state, enum prometheus_form form,
        size_t *bytes_out);

#endif
