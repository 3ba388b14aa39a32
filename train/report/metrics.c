#include "train/report/metrics.h"

#include "base/clock.h"
#include "base/must.h"
#include "train/report/metric.h"

#include <string.h>

/* Is the line a row of a step to keep? */
static bool is_kept(void *ctx, const char *line, const json_t *row)
{
    const int64_t *last = ctx;
    const json_t *step = json_object_get(row, "step");
    return json_is_integer(step) && json_integer_value(step) >= 0 &&
           json_integer_value(step) <= *last;
}

enum zd_status metrics_open(
        const char *path, int64_t step, struct file_writer **metrics_out)
{
    size_t kept = 0;
    if (step > 0)
        ZD_TRY(file_rows(path, is_kept, &step, &kept));
    return file_writer_open(
            path, FILE_ROWS, kept, "rows of metrics", metrics_out);
}

enum zd_status metrics_add(struct file_writer *metrics, json_t *row)
{
    ZD_FREED char *text =
            zd_must(json_dumps(row, JSON_COMPACT | JSON_REAL_PRECISION(17)));
    json_decref(row);
    return file_writer_add(metrics, text, strlen(text));
}

json_t *metrics_row(const struct train_step_report *report)
{
    json_t *row = json_object();
    metrics_set_json(row, &step_metrics, report, true);
    json_object_set_new(row, "time", json_real(clock_wall_seconds()));
    return row;
}

enum zd_status metrics_eval(
        struct file_writer *metrics, int64_t step, double eval_loss)
{
    return metrics_add(
            metrics, json_pack(
                             "{s:I, s:o}", "step", (json_int_t)step,
                             "eval_loss", json_number_or_null(eval_loss)));
}
