/* sink.h - where a run's numbers go beside the socket: TensorBoard, a text file
 * for Prometheus, status.json, report.html, systemd.
 *
 * Called in the control thread, after the run's state took in what happened. A
 * sink never waits for a disk: it hands text to a sink_writer, which writes in
 * a worker thread of the loop. A sink that fails says so once
 * (zd_log_warning) and stops no training.
 *
 * Files of the run appear after its banner: before it the folder may be another
 * job's. */
#ifndef ZD_DAEMON_SINKS_SINK_H
#define ZD_DAEMON_SINKS_SINK_H

#include "daemon/state/run_state.h"

#include <uv.h>

struct sink { /* any function may be NULL */
    const char *name;
    void *ctx;
    /* a step was made: state->step */
    void (*step)(void *ctx, const struct run_state *state);
    /* state->eval_loss, of `step` */
    void (*eval)(void *ctx, const struct run_state *state, int64_t step);
    /* the newest of state->samples */
    void (*sample)(void *ctx, const struct run_state *state);
    /* every two seconds, and when the run's state changed */
    void (*tick)(void *ctx, const struct run_state *state);
    /* the last call: the state is final; write what is due, then free ctx */
    void (*close)(void *ctx, const struct run_state *state);
};

/* All that a job wants. A sink that cannot be opened is a warning. */
struct sinks;
/* `config`: borrowed, the object of GET /v1/config. */
enum zd_status sinks_open(
        const struct train_job *job, uv_loop_t *loop, json_t *config,
        struct sinks **sinks_out);
void sinks_step(struct sinks *sinks, const struct run_state *state);
void sinks_eval(
        struct sinks *sinks, const struct run_state *state, int64_t step);
void sinks_sample(struct sinks *sinks, const struct run_state *state);
void sinks_tick(struct sinks *sinks, const struct run_state *state);
/* Waits for what is being written. The loop must run once more after it
 * (uv_run), before uv_loop_close: requests of its workers end there. */
void sinks_close(struct sinks *sinks, const struct run_state *state);

/* Each fills *sink_out; a NULL name afterwards: the job does not want it. */
enum zd_status tensorboard_open(
        const struct train_job *job, uv_loop_t *loop, struct sink *sink_out);
enum zd_status textfile_open(
        const struct train_job *job, uv_loop_t *loop, struct sink *sink_out);
enum zd_status status_file_open(
        const struct train_job *job, uv_loop_t *loop, struct sink *sink_out);
enum zd_status systemd_open(const struct train_job *job, struct sink *sink_out);
enum zd_status report_html_open(
        const struct train_job *job, uv_loop_t *loop, json_t *config,
        struct sink *sink_out);

/* Prometheus text 0.0.4, or OpenMetrics 1.0: also GET /metrics. malloc'd. */
char *prometheus_text(
        const struct run_state *state, bool open_metrics, size_t *bytes_out);

/* A file that is written again and again, or grows. */
struct sink_writer;
/* Each text replaces the file: tmp + rename, so that a reader sees one whole.
 * Not durable: a power cut may leave an older one. */
enum zd_status sink_writer_create(
        uv_loop_t *loop, const char *path, struct sink_writer **writer_out);
/* Each text goes behind the last. The file is made by the first, and must not
 * be there. What could not be written whole is taken back and tried again with
 * the next. */
enum zd_status sink_appender_create(
        uv_loop_t *loop, const char *path, struct sink_writer **writer_out);
/* Takes `text` (malloc'd). While one write is under way, the newest text waits
 * and the ones between are dropped; an appender keeps all, up to 1 MiB. */
void sink_write_file(struct sink_writer *writer, char *text, size_t bytes);
/* Waits for what is under way, writes what waits. */
void sink_writer_destroy(struct sink_writer *writer);

#endif
