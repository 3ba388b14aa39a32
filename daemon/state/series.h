/* series.h - the histories of a run: one for each metric with a series. */
#pragma once

#include "base/file/json.h"
#include "train/report/metric.h"

/* A series of numbers by step, thinned so that memory is bounded: each stretch
 * of steps keeps its smallest and its largest value. */
enum { HISTORY_POINTS_MAX = 16384 };

struct point {
    int64_t step;
    double value;
};

struct history {          /* one series */
    struct point *points; /* (room), their steps rising */
    int count;
    size_t room;
    double last;    /* value that was added; thinning may have left it out */
    int64_t stride; /* steps that a stretch covers now; 0, 1: nothing thinned */
    int64_t base;   /* steps before the first stretch */
};

/* A value that is not finite, or whose step is not above the last one's, is
 * left out. */
void history_add(struct history *history, int64_t step, double value);
void history_fini(struct history *history);
/* {"step": [..], "value": [..]} of steps above `since`, at most `max` (from 1)
 * points; the last one is always there. New reference. */
json_t *history_json(const struct history *history, int64_t since, int max);

/* Those of steps, of evaluations (in run_metrics), of ranks. */
enum { SERIES_MAX = 32 };
const char *run_series_name(int i); /* "train/loss"; NULL: no more */
int run_series_find(const char *name); /* -1: none */

/* GET /v1/metrics/history: {"series": {NAME: history_json}, "names": [all]}.
 * `names`: with commas between them; "": all. New reference. */
json_t *series_json(
        const struct history series[SERIES_MAX], const char *names,
        int64_t since, int max);

/* A point of each series of `table`: the largest number of `count` structs. */
void series_add(
        struct history series[SERIES_MAX], int64_t step,
        const struct metric_table *table, const void *from, int count);

/* (SERIES_MAX): the rows of metrics.jsonl up to `step`, of earlier processes of
 * this run; what cannot be read is left out. */
struct history *series_read(const char *path, int64_t step);
void series_free(struct history *series); /* may be NULL */
