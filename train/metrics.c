#include "train/metrics.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Rows that a full disk did not take wait in memory: training goes on, and they
 * are written before anything that must not be without them (metrics_sync). */
struct metrics {
    int fd;
    char *path;
    off_t end;     /* of the last whole row in the file */
    char *pending; /* rows not written yet */
    size_t pending_bytes;
    bool is_behind; /* said so */
};

/* The step of a row; -1 for a line that is no row. */
static int64_t row_step(const char *line, size_t bytes)
{
    int64_t step = -1;
    json_t *row = json_loadb(line, bytes, 0, NULL);
    json_t *value = json_object_get(row, "step");
    if (json_is_integer(value))
        step = json_integer_value(value);
    json_decref(row);
    return step;
}

/* Bytes of the file that stay: whole rows up to `step`. */
static size_t kept_bytes(const char *text, size_t bytes, int64_t step)
{
    size_t at = 0;
    while (at < bytes) {
        const char *end = memchr(text + at, '\n', bytes - at);
        if (!end)
            break; /* torn */
        size_t length = (size_t)(end - (text + at));
        int64_t row = row_step(text + at, length);
        if (row < 0 || row > step)
            break;
        at += length + 1;
    }
    return at;
}

enum zd_status metrics_open(
        const char *path, int64_t step, struct metrics **metrics_out)
{
    enum zd_status status;
    char *text = NULL;
    size_t bytes = 0, kept = 0;
    struct metrics *metrics = calloc(1, sizeof *metrics);

    if (!metrics)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    metrics->fd = -1;
    metrics->path = strdup(path);
    if (fs_exists(path) && step > 0) {
        status = fs_read_file(path, SIZE_MAX, &text, &bytes);
        if (status != ZD_OK)
            goto err_metrics;
        kept = kept_bytes(text, bytes, step);
        free(text);
    }
    metrics->fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (metrics->fd < 0 || ftruncate(metrics->fd, (off_t)kept) != 0 ||
        lseek(metrics->fd, 0, SEEK_END) < 0) {
        status =
                ZD_FAIL(ZD_ERR_CREATE, "E0731", "cannot open %s: %s", path,
                        strerror(errno));
        goto err_metrics;
    }
    metrics->end = (off_t)kept;
    *metrics_out = metrics;
    return ZD_OK;

err_metrics:
    metrics_close(metrics);
    return status;
}

void metrics_close(struct metrics *metrics)
{
    if (!metrics)
        return;
    if (metrics->fd >= 0)
        close(metrics->fd);
    free(metrics->pending);
    free(metrics->path);
    free(metrics);
}

/* Write what is pending; a torn write is taken back. */
static enum zd_status flush_rows(struct metrics *metrics)
{
    size_t done = 0;
    while (done < metrics->pending_bytes) {
        ssize_t n = pwrite(
                metrics->fd, metrics->pending + done,
                metrics->pending_bytes - done, metrics->end + (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int error = n < 0 ? errno : ENOSPC;
            if (ftruncate(metrics->fd, metrics->end) != 0)
                zd_log_debug("cannot cut %s", metrics->path);
            return ZD_FAIL(
                    ZD_ERR_IO, "E0732", "cannot write %s: %s", metrics->path,
                    strerror(error));
        }
        done += (size_t)n;
    }
    metrics->end += (off_t)done;
    metrics->pending_bytes = 0;
    metrics->is_behind = false;
    return ZD_OK;
}

static enum zd_status append(
        struct metrics *metrics, const char *text, size_t bytes)
{
    char *more = realloc(metrics->pending, metrics->pending_bytes + bytes + 1);
    if (!more)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    memcpy(more + metrics->pending_bytes, text, bytes);
    more[metrics->pending_bytes + bytes] = '\n';
    metrics->pending = more;
    metrics->pending_bytes += bytes + 1;
    return ZD_OK;
}

static enum zd_status write_row(struct metrics *metrics, json_t *row)
{
    char *text = json_dumps(row, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(row);
    if (!text)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    enum zd_status status = append(metrics, text, strlen(text));
    free(text);
    ZD_TRY(status);
    if (flush_rows(metrics) != ZD_OK) {
        if (!metrics->is_behind)
            zd_log_warning(
                    "%s; training goes on and the rows are kept",
                    zd_error_get()->what);
        metrics->is_behind = true;
        zd_error_clear();
    }
    return ZD_OK;
}

/* "why is my offload slow": bytes and seconds of each part of the pipeline, and
 * how long the trainer waited for each. */
static json_t *offload_json(const struct train_offload_report *report)
{
    const struct offload_report *engine = &report->engine;
    const struct model_offload_report *acts = &report->activations;
    json_t *json = json_pack(
            "{s:I, s:I, s:f, s:f, s:f, s:f}", "down_bytes",
            (json_int_t)engine->down_bytes, "up_bytes",
            (json_int_t)engine->up_bytes, "down_seconds", engine->down_seconds,
            "up_seconds", engine->up_seconds, "host_step_seconds",
            engine->host_seconds, "worker_seconds", engine->worker_seconds);
    if (report->has_disk)
        json_object_set_new(
                json, "disk",
                json_pack(
                        "{s:I, s:I, s:f}", "read_bytes",
                        (json_int_t)engine->disk_read_bytes, "written_bytes",
                        (json_int_t)engine->disk_written_bytes, "wait_seconds",
                        engine->disk_seconds));
    if (acts->down_bytes || acts->up_bytes)
        json_object_set_new(
                json, "activations",
                json_pack(
                        "{s:I, s:I}", "down_bytes",
                        (json_int_t)acts->down_bytes, "up_bytes",
                        (json_int_t)acts->up_bytes));
    json_object_set_new(
            json, "wait_seconds",
            json_pack(
                    "{s:f, s:f, s:f, s:f, s:f}", "down",
                    engine->wait_down_seconds, "host_step",
                    engine->wait_host_seconds, "disk",
                    engine->wait_disk_seconds, "up", engine->wait_up_seconds,
                    "activations", acts->wait_seconds));
    if (engine->undone)
        json_object_set_new(json, "undone", json_true());
    return json;
}

enum zd_status metrics_step(
        struct metrics *metrics, const struct train_step_report *report,
        const struct comm_counters *wire, bool breakdown)
{
    json_t *row = json_object();
    json_object_set_new(row, "step", json_integer(report->step));
    json_object_set_new(row, "loss", json_number_or_null(report->loss));
    json_object_set_new(
            row, "grad_norm", json_number_or_null(report->grad_norm));
    json_object_set_new(
            row, "learning_rate", json_number_or_null(report->learning_rate));
    json_object_set_new(row, "tokens", json_integer(report->tokens));
    json_object_set_new(
            row, "tokens_per_second",
            json_number_or_null(report->tokens_per_second));
    json_object_set_new(
            row, "step_seconds", json_number_or_null(report->step_seconds));
    json_object_set_new(
            row, "wire_bytes",
            json_pack(
                    "{s:I, s:I, s:I}", "reduce_scatter",
                    (json_int_t)wire->reduce_scatter, "all_gather",
                    (json_int_t)wire->all_gather, "all_reduce",
                    (json_int_t)wire->all_reduce));
    if (report->loss_scale.scale > 0)
        json_object_set_new(
                row, "loss_scale",
                json_number_or_null(report->loss_scale.scale));
    if (report->skipped)
        json_object_set_new(row, "skipped", json_string(report->skipped));
    if (breakdown)
        json_object_set_new(
                row, "phase_seconds",
                json_pack(
                        "{s:f, s:f, s:f, s:f, s:f, s:f}", "data",
                        report->data_seconds, "forward",
                        report->forward_seconds, "backward",
                        report->backward_seconds, "reduce",
                        report->reduce_seconds, "update",
                        report->update_seconds, "gather",
                        report->gather_seconds));
    if (report->offload.active)
        json_object_set_new(row, "offload", offload_json(&report->offload));
    return write_row(metrics, row);
}

enum zd_status metrics_eval(
        struct metrics *metrics, int64_t step, double eval_loss)
{
    return write_row(
            metrics, json_pack(
                             "{s:I, s:o}", "step", (json_int_t)step,
                             "eval_loss", json_number_or_null(eval_loss)));
}

enum zd_status metrics_sync(struct metrics *metrics)
{
    ZD_TRY(flush_rows(metrics));
    if (fdatasync(metrics->fd) != 0)
        return ZD_FAIL(
                ZD_ERR_IO, "E0732", "cannot flush %s: %s", metrics->path,
                strerror(errno));
    return ZD_OK;
}
