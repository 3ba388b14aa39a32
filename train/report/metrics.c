#include "train/report/metrics.h"

#include "base/clock.h"
#include "base/file/fs.h"
#include "base/file/json.h"
#include "train/report/row_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct metrics {
    struct row_file *file;
};

/* The step of a row; -1 for a line that is no row. */
static int64_t row_step(const char *line, size_t bytes)
{
    int64_t step = -1;
    json_t *row = json_of_line(line, bytes);
    json_t *value = json_object_get(row, "step");
    if (json_is_integer(value))
        step = json_integer_value(value);
    json_decref(row);
    return step;
}

/* Bytes of the file that stay: whole rows up to `step`. */
static size_t kept_bytes(const char *text, size_t bytes, int64_t step)
{
    size_t at = 0, length;
    while ((length = row_file_line(text + at, bytes - at)) > 0) {
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
    char *text = NULL;
    size_t bytes = 0, kept = 0;
    struct metrics *metrics;
    bool is_there;

    ZD_TRY(fs_look(path, &is_there));
    if (is_there && step > 0) {
        ZD_TRY(fs_read_file(path, SIZE_MAX, &text, &bytes));
        kept = kept_bytes(text, bytes, step);
        free(text);
    }
    metrics = calloc(1, sizeof *metrics);
    if (!metrics)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    enum zd_status status =
            row_file_open(path, kept, "rows of metrics", &metrics->file);
    if (status != ZD_OK) {
        metrics_close(metrics);
        return status;
    }
    *metrics_out = metrics;
    return ZD_OK;
}

void metrics_close(struct metrics *metrics)
{
    if (!metrics)
        return;
    row_file_close(metrics->file);
    free(metrics);
}

enum zd_status metrics_add(struct metrics *metrics, json_t *row)
{
    char *text = json_dumps(row, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(row);
    if (!text)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    enum zd_status status = row_file_add(metrics->file, text, strlen(text));
    free(text);
    return status;
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

json_t *metrics_row(
        const struct train_step_report *report,
        const struct comm_counters *wire)
{
    json_t *row = json_object();
    json_object_set_new(row, "step", json_integer(report->step));
    json_object_set_new(row, "loss", json_number_or_null(report->loss));
    json_object_set_new(
            row, "grad_norm", json_number_or_null(report->grad_norm));
    json_object_set_new(
            row, "learning_rate", json_number_or_null(report->learning_rate));
    json_object_set_new(row, "time", json_real(clock_wall_seconds()));
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
    json_object_set_new(
            row, "phase_seconds",
            json_pack(
                    "{s:f, s:f, s:f, s:f, s:f, s:f}", "data",
                    report->data_seconds, "forward", report->forward_seconds,
                    "backward", report->backward_seconds, "reduce",
                    report->reduce_seconds, "update", report->update_seconds,
                    "gather", report->gather_seconds));
    if (report->offload.active)
        json_object_set_new(row, "offload", offload_json(&report->offload));
    return row;
}

enum zd_status metrics_eval(
        struct metrics *metrics, int64_t step, double eval_loss)
{
    return metrics_add(
            metrics, json_pack(
                             "{s:I, s:o}", "step", (json_int_t)step,
                             "eval_loss", json_number_or_null(eval_loss)));
}

enum zd_status metrics_sync(struct metrics *metrics)
{
    return row_file_sync(metrics->file);
}
