/* history.h - series of a run, thinned so that memory is bounded: each stretch
 * of steps keeps its smallest and its largest value. */
#ifndef ZD_DAEMON_STATE_HISTORY_H
#define ZD_DAEMON_STATE_HISTORY_H

#include "base/file/json.h"
#include "base/status.h"

/* Series of docs/control.md, in its order. */
enum run_series {
    SERIES_LOSS,
    SERIES_GRAD_NORM,
    SERIES_LEARNING_RATE,
    SERIES_LOSS_SCALE,
    SERIES_EVAL_LOSS,
    SERIES_TOKENS_PER_SECOND,
    SERIES_STEP_SECONDS,
    SERIES_DATA_WAIT,
    SERIES_FORWARD,
    SERIES_BACKWARD,
    SERIES_REDUCE,
    SERIES_UPDATE,
    SERIES_GATHER,
    SERIES_OFFLOAD_WAIT,
    SERIES_RESIDENT,
    SERIES_COUNT
};
const char *run_series_name(enum run_series series);  /* "train/loss" */
int run_series_find(const char *name, size_t length); /* -1: none */

enum { HISTORY_POINTS_MAX = 16384 };

struct history {   /* one series */
    int64_t *step; /* (capacity), rising */
    double *value;
    int count, capacity;
    int64_t stride; /* steps that a stretch covers now; 0, 1: nothing thinned */
};

/* A value that is not finite, or whose step is not above the last one's, is
 * left out. When memory is short the point is left out too. */
void history_add(struct history *history, int64_t step, double value);
void history_fini(struct history *history);
/* {"step": [..], "value": [..]} of steps above `since`, at most `max` (from 1)
 * points; the last one is always there. New reference. */
json_t *history_json(const struct history *history, int64_t since, int max);

/* The rows of an earlier process of this run. */
struct resumed_rows {
    struct history series[SERIES_COUNT];
};
/* Reads rows of metrics.jsonl up to `step`; what cannot be read is left out. */
struct resumed_rows *resumed_rows_read(const char *path, int64_t step);
void resumed_rows_free(struct resumed_rows *rows);

#endif
