/* status_file.c - output_dir/status.json: the object of GET /v1/status for who
 * sees the folder and not the socket (a login node). */
#include "base/fs.h"
#include "daemon/sinks/sink.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static void write_status(
        struct sink_writer *writer, const struct run_state *state)
{
    json_t *status = run_state_status(state);
    char *text =
            status ? json_dumps(
                             status, JSON_INDENT(2) | JSON_REAL_PRECISION(17))
                   : NULL;
    json_decref(status);
    if (!text)
        return;
    size_t bytes = strlen(text);
    char *line = realloc(text, bytes + 2);
    if (!line) {
        free(text);
        return;
    }
    line[bytes] = '\n';
    sink_write_file(writer, line, bytes + 1);
}

static void tick(void *ctx, const struct run_state *state)
{
    if (state->has_banner)
        write_status(ctx, state);
}

static void close_file(void *ctx, const struct run_state *state)
{
    tick(ctx, state);
    sink_writer_destroy(ctx);
}

enum zd_status status_file_open(
        const struct train_job *job, uv_loop_t *loop, struct sink *sink_out)
{
    char path[PATH_MAX];
    struct sink_writer *writer;
    fs_join(path, sizeof path, job->job.output_dir, "status.json");
    ZD_TRY(sink_writer_create(loop, path, &writer));
    *sink_out = (struct sink){
            .name = "status.json",
            .ctx = writer,
            .tick = tick,
            .close = close_file};
    return ZD_OK;
}
