/* status_file.c - output_dir/status.json: what GET /v1/status, /v1/ranks and
 * /v1/memory answer, for those who see the folder and not the socket (a login
 * node). */
#include "base/file/fs.h"
#include "daemon/sinks/sink.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* malloc'd text with a newline; NULL: out of memory. */
static char *status_text(const struct run_state *state)
{
    json_t *json = run_state_file(state);
    char *text = json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(json);
    if (!text)
        return NULL;
    size_t bytes = strlen(text);
    char *line = realloc(text, bytes + 2);
    if (!line) {
        free(text);
        return NULL;
    }
    memcpy(line + bytes, "\n", 2);
    return line;
}

static void tick(void *ctx, const struct run_state *state)
{
    char *text = state->has_banner ? status_text(state) : NULL;
    if (text)
        sink_write_file(ctx, text, strlen(text));
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
