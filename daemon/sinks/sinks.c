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

static void take(void *ctx, const char *news, const struct run_state *state)
{
    if (strcmp(news, "tick") == 0)
        write_text(ctx, state);
}

static void close_sink(void *ctx, const struct run_state *state)
{
    struct text_sink *sink = ctx;
    write_text(sink, state);
    file_writer_close(sink->file);
    free(sink);
}

enum zd_status text_file_open(
        const struct train_job *job, enum text_file file, struct sink *sink_out)
{
    char prom[128], path[PATH_MAX];
    const struct {
        const char *dir, *name; /* dir NULL or "": not wanted */
        char *(*text)(const struct run_state *state, size_t *bytes_out);
    } rows[] = {
            [TEXT_STATUS] = {job->job.output_dir, "status.json", status_text},
            [TEXT_PROMETHEUS] =
                    {job->report.prometheus_textfile, prom, prometheus_write},
            [TEXT_REPORT] = {
                    job->report.html ? job->job.output_dir : NULL,
                    "report.html", report_text}};
    ZD_PRINT(prom, "zerod_%s.prom", job->job.name);
    if (!rows[file].dir || !rows[file].dir[0])
        return ZD_OK;
    struct text_sink *sink = zd_array(1, sizeof *sink);
    sink->text = rows[file].text;
    fs_join(path, sizeof path, rows[file].dir, rows[file].name);
    enum zd_status status =
            file_writer_open(path, FILE_WHOLE, 0, NULL, &sink->file);
    if (status == ZD_OK)
        *sink_out = (struct sink){
                sink, file == TEXT_REPORT ? NULL : take, close_sink};
    else
        free(sink);
    return status;
}

/* --- all of them --- */

enum { SINKS_MAX = TEXT_FILES + 2 };

struct sinks {
    struct sink all[SINKS_MAX];
    int count;
};

struct sinks *sinks_open(const struct train_job *job)
{
    struct sinks *sinks = zd_array(1, sizeof *sinks);
    for (int i = 0; i < SINKS_MAX; i++) {
        struct sink *sink = &sinks->all[sinks->count];
        enum zd_status status =
                i < TEXT_FILES    ? text_file_open(job, (enum text_file)i, sink)
                : i == TEXT_FILES ? tensorboard_open(job, sink)
                                  : systemd_open(job, sink);
        if (status != ZD_OK) {
            zd_log_warning("%s; training goes on", zd_error_get()->what);
            zd_error_clear();
        }
        sinks->count += sink->close != NULL;
    }
    return sinks;
}

void sinks_take(
        struct sinks *sinks, const char *news, const struct run_state *state)
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
