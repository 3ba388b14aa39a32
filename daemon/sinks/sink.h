/* sink.h - where a run's numbers go beside the socket: TensorBoard, a text file
 * for Prometheus, status.json, report.html, systemd.
 *
 * Called in the control thread, after the run's state took in what happened. A
 * sink never waits for a disk: it hands text to a file_writer. A sink that
 * fails says so once (zd_log_warning) and stops no training.
 *
 * Files of the run appear after its banner: before it the folder may be another
 * job's. */
#pragma once

#include "daemon/state/run_state.h"

struct sink {
    void *ctx;
    /* May be NULL. `news`: "step", the kind of an event (the newest of
     * state->samples is of "sample"), or "tick": every two seconds, and when
     * the run's state changed. */
    void (*take)(void *ctx, const char *news, const struct run_state *state);
    /* the last call: the state is final; write what is due, then free ctx */
    void (*close)(void *ctx, const struct run_state *state);
};

/* All that a job wants. A sink that cannot be opened is a warning. */
struct sinks;
struct sinks *sinks_open(const struct train_job *job);
/* `sinks` may be NULL. */
void sinks_take(
        struct sinks *sinks, const char *news, const struct run_state *state);
/* Waits for what is being written. */
void sinks_close(struct sinks *sinks, const struct run_state *state);

/* Each fills *sink_out; a NULL `close` afterwards: the job does not want it. */
enum zd_status tensorboard_open(
        const struct train_job *job, struct sink *sink_out);
enum zd_status systemd_open(const struct train_job *job, struct sink *sink_out);
enum text_file { TEXT_STATUS, TEXT_PROMETHEUS, TEXT_REPORT, TEXT_FILES };
enum zd_status text_file_open(
        const struct train_job *job, enum text_file file,
        struct sink *sink_out);

/* Text 0.0.4; malloc'd. */
char *prometheus_write(const struct run_state *state, size_t *bytes_out);
