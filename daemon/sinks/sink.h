/* sink.h - where a run's numbers go beside the socket: TensorBoard, a text file
 * for Prometheus, status.json, report.html, systemd.
 *
 * Called in the control thread, after the run's state took in what happened. A
 * sink never blocks on a disk for long: it hands text to sink_write_file, which
 * writes in a worker thread of the loop. A sink that fails says so once
 * (zd_log_warning) and stops no training. */
#ifndef ZD_DAEMON_SINKS_SINK_H
#define ZD_DAEMON_SINKS_SINK_H

#include "daemon/control/run_state.h"

#include <uv.h>

struct sink {
    const char *name;
    void *ctx;
    /* a step was made: state->step */
    void (*step)(void *ctx, const struct run_state *state);
    void (*eval)(void *ctx, const struct run_state *state, int64_t step);
    /* every two seconds, and when the run's state changed */
    void (*tick)(void *ctx, const struct run_state *state);
    /* the last call: the state is final; write what is due, then free ctx */
    void (*close)(void *ctx, const struct run_state *state);
};

/* Each fills *sink_out; a NULL name afterwards: the job does not want it. */
enum zd_status tensorboard_open(
        const struct train_job *job, struct sink *sink_out);
enum zd_status textfile_open(
        const struct train_job *job, uv_loop_t *loop, struct sink *sink_out);
enum zd_status status_file_open(
        const struct train_job *job, uv_loop_t *loop, struct sink *sink_out);
enum zd_status systemd_open(const struct train_job *job, struct sink *sink_out);
/* `config`: borrowed, the object of GET /v1/config. */
enum zd_status report_html_open(
        const struct train_job *job, json_t *config, struct sink *sink_out);

/* Prometheus text 0.0.4, or OpenMetrics 1.0: also GET /metrics. malloc'd. */
char *prometheus_text(
        const struct run_state *state, bool open_metrics, size_t *bytes_out);

/* Write `text` (taken over) to `path` by tmp + rename in a worker of the loop;
 * while one write of the same `slot` is under way the newest waits and the ones
 * between are dropped. */
struct sink_writer;
enum zd_status sink_writer_create(
        uv_loop_t *loop, const char *path, struct sink_writer **writer_out);
void sink_write_file(struct sink_writer *writer, char *text, size_t bytes);
/* Waits for what is under way; writes the newest. */
void sink_writer_destroy(struct sink_writer *writer);

#endif
