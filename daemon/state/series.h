/* series.h - the histories of a run: one for each metric with a series. */
#pragma once

#include "daemon/state/history.h"
#include "train/report/metric.h"

/* Those of steps, of evaluations (in run_metrics), of ranks. */
enum { SERIES_MAX = 32 };
const char *run_series_name(int i); /* "train/loss"; NULL: no more */
int run_series_find(const char *name, size_t length); /* -1: none */

/* GET /v1/metrics/history: {"series": {NAME: history_json}, "names": [all]}.
 * `names`: with commas between them; "": all. New reference. */
json_t *series_json(
        const struct history series[SERIES_MAX], const char *names,
        int64_t since, int max);

/* A point of each series of `table`: the largest number of `count` structs of
 * `bytes` each. */
void series_add(
        struct history series[SERIES_MAX], int64_t step,
        const struct metric_table *table, const void *from, size_t bytes,
        int count);

/* (SERIES_MAX): the rows of metrics.jsonl up to `step`, of earlier processes of
 * this run; what cannot be read is left out. */
struct history *series_read(const char *path, int64_t step);
void series_free(struct history *series); /* may be NULL */
