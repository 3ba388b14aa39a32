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

enum sink_news {
    SINK_NOTHING,
    SINK_STEP,   /* state->step */
    SINK_EVAL,   /* state->facts.eval_loss */
    SINK_SAMPLE, /* the newest of state->samples */
    SINK_TICK    /* every two seconds, and when the run's state changed */
};

struct sink {
    void *ctx;
    /* may be NULL */
    void (*take)(void *ctx, enum sink_news news, const struct run_state *state);
    /* the last call: the state is final; write what is due, then free ctx */
    void (*close)(void *ctx, const struct run_state *state);
};

/* All that a job wants. A sink that cannot be opened is a warning. */
struct sinks;
struct sinks *sinks_open(const struct train_job *job);
/* Of a message, and the event that it became (or NULL). */
enum sink_news sink_news_of(
        enum message_kind kind, const struct kept_event *event);
/* `sinks` may be NULL. */
void sinks_take(
        struct sinks *sinks, enum sink_news news,
        const struct run_state *state);
/* Waits for what is being written. */
void sinks_close(struct sinks *sinks, const struct run_state *state);

/* Each fills *sink_out; a NULL `close` afterwards: the job does not want it. */
enum zd_status tensorboard_open(
        const struct train_job *job, struct sink *sink_out);
enum zd_status textfile_open(
        const struct train_job *job, struct sink *sink_out);
enum zd_status status_file_open(
        const struct train_job *job, struct sink *sink_out);
enum zd_status systemd_open(const struct train_job *job, struct sink *sink_out);
enum zd_status report_html_open(
        const struct train_job *job, struct sink *sink_out);

/* Text 0.0.4; malloc'd. */
char *prometheus_write(const struct run_state *state, size_t *bytes_out);
