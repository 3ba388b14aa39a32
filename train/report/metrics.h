/* metrics.h - metrics.jsonl: one JSON object per line, one line per step and
 * evaluation, numbers with enough digits to read back exactly. Internal to
 * train; rank 0 only. */
#pragma once

#include "train/report/file_writer.h"
#include "train/report/observer.h"

/* Opens `path` to continue after `step`: drops rows of later steps and a
 * partial last line; keeps rows up to `step` unchanged. */
enum zd_status metrics_open(
        const char *path, int64_t step, struct file_writer **metrics_out);
/* The row of a step. New reference. */
json_t *metrics_row(const struct train_step_report *report);
/* Takes ownership of `row`. */
enum zd_status metrics_add(struct file_writer *metrics, json_t *row);
enum zd_status metrics_eval(
        struct file_writer *metrics, int64_t step, double eval_loss);
