/* prometheus.c - a run's numbers as Prometheus reads them, in text 0.0.4;
 * docs/metrics.md lists them.
 *
 *     # HELP zerod_train_steps_total Steps made.
 *     # TYPE zerod_train_steps_total counter
 *     zerod_train_steps_total{zerod_job="tiny"} 120
 *
 * A family is opened, then its samples follow: so all of them are contiguous,
 * as the format asks. Every sample has the label zerod_job: node_exporter's
 * folder has files of several jobs, and the name `job` is Prometheus' own.
 *
 * Source: prometheus.io/docs/instrumenting/exposition_formats. */
#include "base/clock.h"
#include "base/text_stream.h"
#include "base/units.h"
#include "daemon/sinks/sink.h"
#include "zd_config.h"

#include <math.h>
#include <string.h>

/* A rank of a running job that was not heard for so long is down. */
enum { HEARTBEAT_SECONDS = 60, HEARTBEAT_STEPS = 10 };

struct exposition {
    FILE *out;
    const char *job;  /* label zerod_job of every sample */
    const char *name; /* of the family that is open .. */
    enum metric_family kind;
};

static const char *suffix(enum metric_family kind)
{
    return kind == FAMILY_COUNTER ? "_total"
           : kind == FAMILY_INFO  ? "_info"
                                  : "";
}

/* --- texts and numbers --- */

/* `quotes`: inside quotes. */
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
    char text[UNITS_TEXT];
    fputs(isnan(value)   ? "NaN"
          : isinf(value) ? (value > 0 ? "+Inf" : "-Inf")
                         : units_exact(value, text),
          out);
}

/* --- families --- */

/* `name`: without _total and _info. */
static void family_open(
        struct exposition *to, const char *name, enum metric_family kind,
        const char *help)
{
    static const char *const types[] = {
            "gauge", "counter", "gauge", "histogram"};
    to->name = name;
    to->kind = kind;
    fprintf(to->out, "# HELP %s%s ", name, suffix(kind));
    put_escaped(to->out, help, false);
    fprintf(to->out, "\n# TYPE %s%s %s\n", name, suffix(kind), types[kind]);
}

static void put_label(
        struct exposition *to, const char *name, const char *value, char *mark)
{
    fprintf(to->out, "%c%s=\"", *mark, name);
    put_escaped(to->out, value, true);
    fputc('"', to->out);
    *mark = ',';
}

/* `labels`: names and values in turn, then NULL. Values are escaped. */
static void put_sample(
        struct exposition *to, const char *end, double value,
        const char *const *labels)
{
    char mark = '{';
    fprintf(to->out, "%s%s", to->name, end);
    put_label(to, "zerod_job", to->job, &mark);
    for (; labels && *labels; labels += 2)
        put_label(to, labels[0], labels[1], &mark);
    fputs("} ", to->out);
    put_number(to->out, value);
    fputc('\n', to->out);
}

static void family_sample(
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
            snprintf(bound, sizeof bound - 2, "%.6g", histogram->bound[i]);
        if (!strpbrk(bound, ".e+")) /* "1.0" and not "1", as others write it */
            strcat(bound, ".0");
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

/* Every family of a table, with a sample for each of `count` structs (ranks,
 * which are labelled by their numbers; or one). */
static void put_table(
        struct exposition *to, const struct metric_table *table,
        const void *from, int count)
{
    const struct metric *rows = table->rows, *end = rows + table->count, *next;
    bool is_rank = table == &rank_metrics;
    char rank[16];
    for (; rows < end; rows = next) {
        const char *one = from;
        bool is_open = false;
        for (next = rows + 1; rows->family && next < end && next->family &&
                              strcmp(next->family, rows->family) == 0;)
            next++;
        for (int i = 0; rows->family && i < count; i++, one += table->bytes) {
            if (is_rank)
                ZD_PRINT(
                        rank, "%d",
                        ((const struct train_rank_report *)one)->rank);
            put_family(
                    to, rows, (size_t)(next - rows), one, is_rank ? rank : NULL,
                    &is_open);
        }
    }
}

/* --- the job --- */

static void put_job(struct exposition *to, const struct run_state *state)
{
    const struct train_job *job = state->job;
    const char *model =
            job->model.path ? job->model.path
                            : json_string_at(job->model.config, "model_type");
    char stage[16] = "", world[16] = "";
    if (state->has_banner) {
        ZD_PRINT(stage, "%d", state->facts.zero_stage);
        ZD_PRINT(world, "%d", state->facts.world);
    }
    const char *matmul = ZD_HAVE_ONEDNN ? "onednn" : "openblas";
    const char *const build[] = {"version", ZD_VERSION, "matmul", matmul, NULL};
    const char *const facts[] = {
            "run_name",   job->job.run_name ? job->job.run_name : "",
            "model",      model ? model : "",
            "optimizer",  train_optimizer_name(job->optim.name),
            "zero_stage", stage,
            "world_size", world,
            "dtype",      dtype_name(job->train.dtype),
            NULL};
    family_open(
            to, "zerod_build", FAMILY_INFO, "What this program was built of.");
    family_sample(to, 1, build);
    family_open(to, "zerod_job", FAMILY_INFO, "What the job trains, and how.");
    family_sample(to, 1, facts);
}

/* --- ranks --- */

/* Ranks report between steps: while the run evaluates, saves or is paused, an
 * old heartbeat means nothing. */
static bool is_up(
        const struct run_state *state, const struct train_rank_report *rank)
{
    double limit =
            fmax(HEARTBEAT_SECONDS, HEARTBEAT_STEPS * state->mean_step_seconds);
    double since = fmax(rank->heartbeat, state->state_since);
    if (state->state >= RUN_DONE)
        return false;
    bool is_asked = state->state == RUN_RUNNING || state->state == RUN_STALLED;
    return !is_asked || clock_wall_seconds() - since < limit;
}

/* Of each rank whether it is up, and its GPU: all ranks have one, or none has.
 * Labelled by its UUID, as dcgm-exporter's series are. */
static void put_ranks(struct exposition *to, const struct run_state *state)
{
    char number[16];
    const struct train_rank_report *ranks = state->ranks, *rank;
    const struct train_rank_report *end = ranks + state->rank_count;
    if (ranks == end)
        return;
    family_open(
            to, "zerod_rank_up", FAMILY_GAUGE,
            "1 while the rank answers; 0 when it was not heard for a minute "
            "and ten steps, and after the end.");
    for (rank = ranks; rank < end; rank++) {
        ZD_PRINT(number, "%d", rank->rank);
        family_sample(
                to, is_up(state, rank),
                (const char *[]){"rank", number, "host", rank->host, NULL});
    }
    if (!ranks[0].gpu.name[0])
        return;
    family_open(to, "zerod_gpu", FAMILY_INFO, "The GPU of a rank.");
    for (rank = ranks; rank < end; rank++) {
        ZD_PRINT(number, "%d", rank->rank);
        family_sample(
                to, 1,
                (const char *[]){
                        "rank", number, "gpu", rank->gpu.uuid, "name",
                        rank->gpu.name, "pci", rank->gpu.pci, NULL});
    }
}

/* --- the whole --- */

char *prometheus_write(const struct run_state *state, size_t *bytes_out)
{
    char *text;
    struct exposition to = {
            .out = text_stream_open(&text, bytes_out),
            .job = state->job->job.name};
    bool has_step = state->step_histogram.sum > 0;
    put_job(&to, state);
    put_table(&to, &run_metrics, state, 1);
    put_table(&to, &step_metrics, &state->step, has_step);
    put_ranks(&to, state);
    put_table(&to, &rank_metrics, state->ranks, state->rank_count);
    fclose(to.out);
    return text;
}
