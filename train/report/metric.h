/* metric.h - what a run measures, and where it is shown. A metric is a row of a
 * table, and a field of the table's struct:
 *
 *   step_metrics   struct train_step_report   of one step      (metric_table.c)
 *   rank_metrics   struct train_rank_report   of each rank     (metric_table.c)
 *   run_metrics    struct run_state           of the run so far
 *                                             (daemon/state/run_metrics.c)
 *
 * To add one: a field of the struct, the line that measures it, a row. The row
 * determines
 *
 *   name     a key of metrics.jsonl (steps), of GET /v1/status and status.json
 *            (runs, and steps with METRIC_STATUS), of GET /v1/ranks (ranks)
 *   series   a curve of GET /v1/metrics/history, and a tag of TensorBoard;
 *            a run that is resumed reads it from `name` of metrics.jsonl
 *   family   a metric of Prometheus
 *
 * docs/metrics.md lists them (a test compares). */
#pragma once

#include "base/file/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum metric_type { /* of the field, or of `value`'s result */
                   METRIC_REAL,
                   METRIC_INT,
                   METRIC_INT64,
                   METRIC_UINT64,
                   METRIC_TRUE,  /* bool; false: unknown */
                   METRIC_TEXT,  /* const char *; NULL: unknown */
                   METRIC_CHARS, /* char[] */
                   METRIC_HISTOGRAM
};

enum metric_flags {
    METRIC_POSITIVE = 1, /* 0 and less: unknown */
    METRIC_NAN = 2,      /* Prometheus shows unknown values as NaN */
    METRIC_STATUS = 4,   /* for steps: the status has the last finite value */
    METRIC_LIVE = 8,     /* a series only in TensorBoard */
    METRIC_SUM = 16      /* sum of the members of `name`, which are rows too */
};

enum metric_family {
    FAMILY_GAUGE,
    FAMILY_COUNTER,  /* samples end in _total */
    FAMILY_INFO,     /* .. in _info, and are 1; a gauge in 0.0.4 */
    FAMILY_HISTOGRAM /* .. in _bucket, _sum, _count */
};

struct metric_index { /* for arrays: what the index counts */
    const char *label;
    int count;
    const char *(*name)(int i);
};
extern const struct metric_index metric_phases, metric_memories,
        metric_span_kinds, metric_groups, metric_operations;

struct metric {
    const char *name; /* "a.b": b of the object a; "a.*": the object a with a
                         member per index (with an inner index: an object of
                         known values); NULL: not in JSON */
    enum metric_type type;
    int flags;
    size_t offset;                            /* of the field .. */
    double (*value)(const void *from, int i); /* .. or computed */
    size_t when; /* offset of a bool or char[]: false or empty: unknown */
    const struct metric_index *index, *inner; /* array, of arrays; or NULL */
    const char *series;
    /* rows of a family are contiguous, each with its own label */
    const char *family, *label, *label_value;
    enum metric_family kind;
    size_t label_offset; /* of char[], if label_value is NULL */
    const char *help;    /* help of the family, in its first row */
};

struct metric_table {
    const struct metric *rows;
    size_t count;
    size_t bytes; /* of the table's struct */
};
extern const struct metric_table step_metrics, rank_metrics;

/* `i`: index in an array, the inner index running fastest; else 0. */
bool metric_is_known(const struct metric *metric, const void *from, int i);
/* NaN: unknown. */
double metric_number(const struct metric *metric, const void *from, int i);
int metric_count(const struct metric *metric); /* numbers of an array, or 1 */
/* Sets every metric of `from` that has a name; unknown ones become null, or
 * with `only_known` are omitted. */
void metrics_set_json(
        json_t *object, const struct metric_table *table, const void *from,
        bool only_known);
/* The number in a row of metrics.jsonl; NaN: none. */
double metric_of_row(const struct metric *metric, const json_t *row);
/* total += of; both are the table's struct. */
void metric_add(const struct metric *metric, void *total, const void *of);
