/* metric.h - what a run measures, and where it is shown. A metric is a row of a
 * table, and lies in the struct that the table is for:
 *
 *   step_metrics   struct train_step_report   of one step      (metric_table.c)
 *   rank_metrics   struct train_rank_report   of each rank     (metric_table.c)
 *   run_metrics    struct run_state           of the run so far
 *                                             (daemon/state/run_metrics.c)
 *
 * To add one: a field of the struct, the line that measures it, a row. From
 * what the row says follow
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

enum metric_type { /* of the field, or of what `value` returns */
                   METRIC_REAL,
                   METRIC_INT,
                   METRIC_INT64,
                   METRIC_UINT64,
                   METRIC_TRUE,  /* bool; false: not known */
                   METRIC_TEXT,  /* const char *; NULL: not known */
                   METRIC_CHARS, /* char[] */
                   METRIC_HISTOGRAM
};

enum metric_flags {
    METRIC_POSITIVE = 1, /* 0 and less: not known */
    METRIC_NAN = 2,      /* Prometheus shows what is not known as NaN */
    METRIC_STATUS = 4,   /* of a step: its last finite value is in the status */
    METRIC_LIVE = 8,     /* a series of TensorBoard alone */
    METRIC_SUM = 16      /* of the members of `name`, which are rows too */
};

enum metric_family {
    FAMILY_GAUGE,
    FAMILY_COUNTER,  /* samples end in _total */
    FAMILY_INFO,     /* .. in _info, and are 1; a gauge in 0.0.4 */
    FAMILY_HISTOGRAM /* .. in _bucket, _sum, _count */
};

struct metric_index { /* of an array: one number for each of */
    const char *label;
    int count;
    const char *(*name)(int i);
};
extern const struct metric_index metric_phases, metric_memories,
        metric_span_kinds, metric_groups, metric_operations;

struct metric {
    const char *name; /* "a.b": b of the object a; "a.*": the object a, with a
                         member for each of the index, with an inner one an
                         object of those that are known; NULL: not in JSON */
    enum metric_type type;
    int flags;
    size_t offset;                            /* of the field .. */
    double (*value)(const void *from, int i); /* .. or computed */
    size_t when; /* offset of a bool, or of char[]: false, empty: not known */
    const struct metric_index *index, *inner; /* array, of arrays; or NULL */
    const char *series;
    /* rows of one family follow each other, each with its own label */
    const char *family, *label, *label_value;
    enum metric_family kind;
    size_t label_offset; /* of char[], where label_value is NULL */
    const char *help;    /* of the family: its first row has it */
};

struct metric_table {
    const struct metric *rows;
    size_t count;
    size_t bytes; /* of the struct that it is for */
};
extern const struct metric_table step_metrics, rank_metrics;

/* `i`: of an array, the inner index running fastest; else 0. */
bool metric_is_known(const struct metric *metric, const void *from, int i);
/* NaN where it is not known. */
double metric_number(const struct metric *metric, const void *from, int i);
int metric_count(const struct metric *metric); /* numbers of an array, or 1 */
/* Every metric of `from` that has a name; one that is not known is null, or
 * with `only_known` left out. */
void metrics_set_json(
        json_t *object, const struct metric_table *table, const void *from,
        bool only_known);
/* The number `name` of a row of metrics.jsonl; NaN: none. */
double metric_of_row(const struct metric *metric, const json_t *row);
/* total += of, both of one struct. */
void metric_add(const struct metric *metric, void *total, const void *of);
