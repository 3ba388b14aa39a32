/* sinks.c - what a job wants, and the sinks that are files rewritten from the
 * run's state.
 *
 *   status.json   output_dir: what GET /v1/status, /v1/ranks and /v1/memory
 *                 answer, where the folder can be seen and the socket not (a
 *                 login node)
 *   zerod_JOB.prom  the folder of node_exporter's textfile collector
 *                 (report.prometheus_textfile), which reads *.prom alone. It
 *                 stays with the last numbers: the state in it says that the
 *                 job has ended
 *   report.html   output_dir, at the end: the page with the run's numbers
 *                 inside, to look at without a job and to send to others */
#include "base/file/fs.h"
#include "base/log.h"
#include "base/must.h"
#include "daemon/page/page.h"
#include "daemon/sinks/sink.h"
#include "train/report/file_writer.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct text_sink {
    struct file_writer *file;
    char *(*text)(const struct run_state *state, size_t *bytes_out);
};

/* malloc'd, as what follows. */
static char *status_text(const struct run_state *state, size_t *bytes_out)
{
    json_t *json = run_state_file(state);
    char *text =
            zd_must(json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(17)));
    json_decref(json);
    *bytes_out = strlen(text) + 1;
    text[*bytes_out - 1] = '\n'; /* in the place of its NUL */
    return text;
}

static char *report_text(const struct run_state *state, size_t *bytes_out)
{
    json_auto_t *data = run_state_report(state);
    return page_inline(data, bytes_out);
}

/* Before the banner the folder may be another job's. */
static void write_text(void *ctx, const struct run_state *state)
{
    const struct text_sink *sink = ctx;
    size_t bytes;
    if (!state->has_banner)
        return;
    ZD_FREED char *text = sink->text(state, &bytes);
    if (file_writer_add(sink->file, text, bytes) != ZD_OK)
        zd_error_clear();
}

static void take(void *ctx, enum sink_news news, const struct run_state *state)
{
    if (news == SINK_TICK)
        write_text(ctx, state);
}

static void close_sink(void *ctx, const struct run_state *state)
{
    struct text_sink *sink = ctx;
    write_text(sink, state);
    file_writer_close(sink->file);
    free(sink);
}

static enum zd_status open_sink(
        char *(*text)(const struct run_state *state, size_t *bytes_out),
        const char *dir, const char *name, struct sink *sink_out)
{
    char path[PATH_MAX];
    struct text_sink *sink = zd_array(1, sizeof *sink);
    sink->text = text;
    fs_join(path, sizeof path, dir, name);
    enum zd_status status =
            file_writer_open(path, FILE_WHOLE, 0, NULL, &sink->file);
    if (status == ZD_OK)
        *sink_out =
                (struct sink){.ctx = sink, .take = take, .close = close_sink};
    else
        free(sink);
    return status;
}

enum zd_status status_file_open(
        const struct train_job *job, struct sink *sink_out)
{
    return open_sink(status_text, job->job.output_dir, "status.json", sink_out);
}

enum zd_status textfile_open(const struct train_job *job, struct sink *sink_out)
{
    const char *dir = job->report.prometheus_textfile;
    char name[128];
    if (!dir || !*dir)
        return ZD_OK;
    ZD_PRINT(name, "zerod_%s.prom", job->job.name);
    return open_sink(prometheus_write, dir, name, sink_out);
}

enum zd_status report_html_open(
        const struct train_job *job, struct sink *sink_out)
{
    if (!job->report.html)
        return ZD_OK;
    enum zd_status status = open_sink(
            report_text, job->job.output_dir, "report.html", sink_out);
    sink_out->take = NULL; /* at the end alone */
    return status;
}

/* --- all of them --- */

enum { SINKS_MAX = 5 };

struct sinks {
    struct sink all[SINKS_MAX];
    int count;
};

struct sinks *sinks_open(const struct train_job *job)
{
    static enum zd_status (*const opens[])(
            const struct train_job *job, struct sink *sink_out) = {
            status_file_open, tensorboard_open, textfile_open, systemd_open,
            report_html_open};
    struct sinks *sinks = zd_array(1, sizeof *sinks);
    for (int i = 0; i < SINKS_MAX; i++) {
        struct sink *sink = &sinks->all[sinks->count];
        if (opens[i](job, sink) != ZD_OK) {
            zd_log_warning("%s; training goes on", zd_error_get()->what);
            zd_error_clear();
        }
        sinks->count += sink->close != NULL;
    }
    return sinks;
}

enum sink_news sink_news_of(
        enum message_kind kind, const struct kept_event *event)
{
    static const struct {
        const char *kind;
        enum sink_news news;
    } events[] = {
            {"eval", SINK_EVAL}, {"sample", SINK_SAMPLE}, {"state", SINK_TICK}};
    if (kind == MESSAGE_STEP)
        return SINK_STEP;
    for (size_t i = 0; event && i < sizeof events / sizeof events[0]; i++)
        if (strcmp(events[i].kind, event->kind) == 0)
            return events[i].news;
    return kind == MESSAGE_BANNER ? SINK_TICK : SINK_NOTHING;
}

void sinks_take(
        struct sinks *sinks, enum sink_news news, const struct run_state *state)
{
    for (int i = 0; sinks && i < sinks->count; i++)
        if (sinks->all[i].take)
            sinks->all[i].take(sinks->all[i].ctx, news, state);
}

void sinks_close(struct sinks *sinks, const struct run_state *state)
{
    for (int i = 0; sinks && i < sinks->count; i++)
        sinks->all[i].close(sinks->all[i].ctx, state);
    free(sinks);
}
