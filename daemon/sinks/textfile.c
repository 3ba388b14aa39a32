/* textfile.c - zerod_JOB.prom in the folder of node_exporter's textfile
 * collector (report.prometheus_textfile), for machines whose Prometheus scrapes
 * that alone. It reads *.prom and no zerod_JOB.prom.tmp.
 *
 * The file stays behind with the last numbers: the state in it says that the
 * job has ended. */
#include "base/file/fs.h"
#include "daemon/sinks/prometheus.h"
#include "daemon/sinks/sink.h"

#include <limits.h>
#include <stdio.h>

static void tick(void *ctx, const struct run_state *state)
{
    size_t bytes;
    char *text = state->has_banner
                         ? prometheus_write(state, PROMETHEUS_TEXTFILE, &bytes)
                         : NULL;
    if (text)
        sink_write_file(ctx, text, bytes);
}

static void close_file(void *ctx, const struct run_state *state)
{
    tick(ctx, state);
    sink_writer_destroy(ctx);
}

enum zd_status textfile_open(
        const struct train_job *job, uv_loop_t *loop, struct sink *sink_out)
{
    char path[PATH_MAX], name[128];
    const char *dir = job->report.prometheus_textfile;
    struct sink_writer *writer;
    if (!dir || !*dir)
        return ZD_OK;
    snprintf(name, sizeof name, "zerod_%s.prom", job->job.name);
    fs_join(path, sizeof path, dir, name);
    ZD_TRY(sink_writer_create(loop, path, &writer));
    *sink_out = (struct sink){
            .name = "prometheus_textfile",
            .ctx = writer,
            .tick = tick,
            .close = close_file};
    return ZD_OK;
}
