/* text_sinks.c - files that are rewritten from the run's state.
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
    json_t *data = run_state_report(state);
    char *html = page_inline(data, bytes_out);
    json_decref(data);
    return html;
}

/* Before the banner the folder may be another job's. */
static void write_text(void *ctx, const struct run_state *state)
{
    const struct text_sink *sink = ctx;
    size_t bytes;
    if (!state->has_banner)
        return;
    char *text = sink->text(state, &bytes);
    if (file_writer_add(sink->file, text, bytes) != ZD_OK)
        zd_error_clear();
    free(text);
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
    snprintf(name, sizeof name, "zerod_%s.prom", job->job.name);
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
