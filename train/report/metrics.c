#include "train/report/metrics.h"

#include "base/clock.h"
#include "base/file/fs.h"
#include "base/file/json.h"
#include "train/report/file_writer.h"
#include "train/report/metric.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct metrics {
    struct file_writer *file;
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
    while ((length = file_line(text + at, bytes - at)) > 0) {
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
    enum zd_status status = file_writer_open(
            path, FILE_ROWS, kept, "rows of metrics", &metrics->file);
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
    file_writer_close(metrics->file);
    free(metrics);
}

enum zd_status metrics_add(struct metrics *metrics, json_t *row)
{
    char *text = json_dumps(row, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(row);
    if (!text)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    enum zd_status status = file_writer_add(metrics->file, text, strlen(text));
    free(text);
    return status;
}

json_t *metrics_row(const struct train_step_report *report)
{
    json_t *row = json_object();
    metrics_set_json(row, &step_metrics, report, true);
    json_object_set_new(row, "time", json_real(clock_wall_seconds()));
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
    return file_writer_sync(metrics->file);
}
