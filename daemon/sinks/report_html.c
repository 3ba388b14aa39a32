/* report_html.c - output_dir/report.html at the end: the page with the run's
 * numbers inside, to look at without a job and to send to others. */
#include "base/file/fs.h"
#include "base/log.h"
#include "daemon/page/inline.h"
#include "daemon/sinks/sink.h"

#include <limits.h>
#include <stdlib.h>

struct report_html {
    struct sink_writer *writer;
    json_t *config; /* borrowed */
};

static void close_report(void *ctx, const struct run_state *state)
{
    struct report_html *report = ctx;
    if (state->has_banner) {
        json_t *data = run_state_report(state, report->config);
        char *html;
        size_t bytes;
        if (page_inline(data, &html, &bytes) == ZD_OK) {
            sink_write_file(report->writer, html, bytes);
        } else {
            zd_log_warning("no report.html: %s", zd_error_get()->what);
            zd_error_clear();
        }
        json_decref(data);
    }
    sink_writer_destroy(report->writer);
    free(report);
}

enum zd_status report_html_open(
        const struct train_job *job, uv_loop_t *loop, json_t *config,
        struct sink *sink_out)
{
    char path[PATH_MAX];
    if (!job->report.html)
        return ZD_OK;
    struct report_html *report = calloc(1, sizeof *report);
    if (!report)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    fs_join(path, sizeof path, job->job.output_dir, "report.html");
    enum zd_status status = sink_writer_create(loop, path, &report->writer);
    if (status != ZD_OK) {
        free(report);
        return status;
    }
    report->config = config;
    *sink_out = (struct sink){
            .name = "report.html", .ctx = report, .close = close_report};
    return ZD_OK;
}
