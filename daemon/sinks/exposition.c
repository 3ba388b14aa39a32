#include "daemon/sinks/exposition.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *suffix(enum metric_family kind)
{
    return kind == FAMILY_COUNTER ? "_total"
           : kind == FAMILY_INFO  ? "_info"
                                  : "";
}

/* --- texts and numbers --- */

/* `quotes`: inside quotes, or help of OpenMetrics. */
static void put_escaped(FILE *out, const char *text, bool quotes)
{
    for (; *text; text++) {
        if (*text == '\\')
            fputs("\\\\", out);
        else if (*text == '\n')
            fputs("\\n", out);
        else if (*text == '"' && quotes)
            fputs("\\\"", out);
        else
            fputc(*text, out);
    }
}

/* The shortest text that reads back as the same number. */
static void put_number(FILE *out, double value)
{
    char text[40];
    if (isnan(value)) {
        fputs("NaN", out);
    } else if (isinf(value)) {
        fputs(value > 0 ? "+Inf" : "-Inf", out);
    } else {
        for (int digits = 15; digits <= 17; digits++) {
            snprintf(text, sizeof text, "%.*g", digits, value);
            if (strtod(text, NULL) == value)
                break;
        }
        fputs(text, out);
    }
}

/* A bound as OpenMetrics wants it, "1.0" and not "1", so that both formats name
 * the same series. */
static void format_bound(double bound, char *text, size_t room)
{
    snprintf(text, room, "%.6g", bound);
    if (!strpbrk(text, ".e"))
        strcat(text, ".0");
}

/* --- families --- */

/* The end of the name, where it is a unit. */
static const char *unit_of(const char *name)
{
    static const char *const units[] = {"seconds", "bytes", "ratio"};
    const char *end = strrchr(name, '_') + 1;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(end, units[i]) == 0)
            return units[i];
    return NULL;
}

void family_open(
        struct exposition *to, const char *name, enum metric_family kind,
        const char *help)
{
    static const char *const types[] = {
            "gauge", "counter", "info", "histogram"};
    bool open = to->open_metrics;
    const char *end = open ? "" : suffix(kind), *unit = unit_of(name);
    const char *type = !open && kind == FAMILY_INFO ? "gauge" : types[kind];
    to->name = name;
    to->kind = kind;
    fprintf(to->out, "# HELP %s%s ", name, end);
    put_escaped(to->out, help, open);
    fprintf(to->out, "\n# TYPE %s%s %s\n", name, end, type);
    if (open && unit)
        fprintf(to->out, "# UNIT %s %s\n", name, unit);
}

static void put_label(
        struct exposition *to, const char *name, const char *value, char *mark)
{
    fprintf(to->out, "%c%s=\"", *mark, name);
    put_escaped(to->out, value, true);
    fputc('"', to->out);
    *mark = ',';
}

static void put_sample(
        struct exposition *to, const char *end, double value,
        const char *const *labels)
{
    char mark = '{';
    fprintf(to->out, "%s%s", to->name, end);
    if (to->job)
        put_label(to, "zerod_job", to->job, &mark);
    for (; labels && *labels; labels += 2)
        put_label(to, labels[0], labels[1], &mark);
    fputs(mark == ',' ? "} " : " ", to->out);
    put_number(to->out, value);
    fputc('\n', to->out);
}

void family_sample(
        struct exposition *to, double value, const char *const *labels)
{
    put_sample(to, suffix(to->kind), value, labels);
}

static void put_histogram(
        struct exposition *to, const struct run_histogram *histogram)
{
    uint64_t below = 0;
    char bound[32];
    for (int i = 0; i <= STEP_BUCKETS; i++) {
        strcpy(bound, "+Inf");
        if (i < STEP_BUCKETS)
            format_bound(histogram->bound[i], bound, sizeof bound);
        below += histogram->count[i];
        put_sample(
                to, "_bucket", (double)below,
                (const char *[]){"le", bound, NULL});
    }
    put_sample(to, "_sum", histogram->sum, NULL);
    put_sample(to, "_count", (double)below, NULL);
}

/* --- tables --- */

/* A number of `metric`, with the labels that it has. */
static void put_number_of(
        struct exposition *to, const struct metric *metric, const void *from,
        int i, const char *rank)
{
    const char *labels[9] = {NULL};
    int n = 0, inner = metric->inner ? metric->inner->count : 1;
    if (rank) {
        labels[n++] = "rank";
        labels[n++] = rank;
    }
    if (metric->label) {
        labels[n++] = metric->label;
        labels[n++] = metric->label_value
                              ? metric->label_value
                              : (const char *)from + metric->label_offset;
    }
    if (metric->index) {
        labels[n++] = metric->index->label;
        labels[n++] = metric->index->name(i / inner);
    }
    if (metric->inner) {
        labels[n++] = metric->inner->label;
        labels[n++] = metric->inner->name(i % inner);
    }
    family_sample(to, metric_number(metric, from, i), labels);
}

/* `count` rows of one family. It is opened by its first sample: what is not
 * known (an evaluation that was not made) is left out, not 0. */
static void put_family(
        struct exposition *to, const struct metric *rows, size_t count,
        const void *from, const char *rank, bool *is_open)
{
    for (const struct metric *metric = rows; metric < rows + count; metric++)
        for (int i = 0; i < metric_count(metric); i++) {
            if (metric->type != METRIC_HISTOGRAM &&
                !(metric->flags & METRIC_NAN) &&
                isnan(metric_number(metric, from, i)))
                continue;
            if (!*is_open)
                family_open(to, rows->family, rows->kind, rows->help);
            *is_open = true;
            if (metric->type == METRIC_HISTOGRAM)
                put_histogram(
                        to,
                        (const void *)((const char *)from + metric->offset));
            else
                put_number_of(to, metric, from, i, rank);
        }
}

void exposition_table(
        struct exposition *to, const struct metric_table *table,
        const void *from, size_t bytes, int count)
{
    const struct metric *rows = table->rows, *end = rows + table->count, *next;
    char rank[16];
    for (; rows < end; rows = next) {
        bool is_open = false;
        for (next = rows + 1; rows->family && next < end && next->family &&
                              strcmp(next->family, rows->family) == 0;)
            next++;
        for (int i = 0; rows->family && i < count; i++) {
            const void *one = (const char *)from + (size_t)i * bytes;
            bool is_rank = table == &rank_metrics;
            if (is_rank)
                snprintf(
                        rank, sizeof rank, "%d",
                        ((const struct train_rank_report *)one)->rank);
            put_family(
                    to, rows, (size_t)(next - rows), one, is_rank ? rank : NULL,
                    &is_open);
        }
    }
}

void exposition_end(struct exposition *to)
{
    if (to->open_metrics)
        fputs("# EOF\n", to->out);
}
