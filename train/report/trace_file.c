#include "train/report/trace_file.h"

#include "base/file/fs.h"
#include "base/file/json.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LANES_NAMED = 1024 };
struct trace_file {
    FILE *stream;
    char path[PATH_MAX], beside[PATH_MAX];
    bool has_events;
    uint64_t dropped;
    bool named[LANES_NAMED]; /* lanes of the rank at hand */
};

static enum zd_status fail_write(const char *path, int error)
{
    return ZD_FAIL(
            ZD_ERR_IO, "E0707", "cannot write %s: %s", path, strerror(error));
}

enum zd_status trace_file_open(
        const char *path, const char *job, struct trace_file **file_out)
{
    struct trace_file *file = calloc(1, sizeof *file);
    if (!file)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory for a profile");
    if (snprintf(file->path, PATH_MAX, "%s", path) >= PATH_MAX ||
        snprintf(file->beside, PATH_MAX, "%s.tmp", path) >= PATH_MAX) {
        free(file);
        return fail_write(path, ENAMETOOLONG);
    }
    int fd = fs_create(file->beside, 0644);
    file->stream = fd < 0 ? NULL : fdopen(fd, "w");
    if (!file->stream) {
        enum zd_status status = fail_write(path, errno);
        if (fd >= 0)
            close(fd);
        free(file);
        return status;
    }
    json_t *name = json_string(job);
    fputs("{\"displayTimeUnit\": \"ms\", \"otherData\": {\"job\": ",
          file->stream);
    json_dumpf(name, file->stream, JSON_ENCODE_ANY);
    fputs("},\n\"traceEvents\": [", file->stream);
    json_decref(name);
    *file_out = file;
    return ZD_OK;
}

/* Takes the reference. */
static void add(struct trace_file *file, json_t *event)
{
    fputs(file->has_events ? ",\n" : "\n", file->stream);
    file->has_events = true;
    json_dumpf(event, file->stream, JSON_REAL_PRECISION(12));
    json_decref(event);
}

/* A name, and a place among the others, of a rank or of a thread of it. */
static void metadata(
        struct trace_file *file, const char *what, int pid, int tid,
        const char *name, int place)
{
    char key[32];
    snprintf(key, sizeof key, "%s_name", what);
    add(file, json_pack(
                      "{s:s, s:s, s:i, s:i, s:{s:s}}", "ph", "M", "name", key,
                      "pid", pid, "tid", tid, "args", "name", name));
    snprintf(key, sizeof key, "%s_sort_index", what);
    add(file, json_pack(
                      "{s:s, s:s, s:i, s:i, s:{s:i}}", "ph", "M", "name", key,
                      "pid", pid, "tid", tid, "args", "sort_index", place));
}

void trace_file_rank(struct trace_file *file, const struct trace_rank *rank)
{
    char text[128];
    if (!file)
        return;
    snprintf(text, sizeof text, "rank %d (%s)", rank->rank, rank->host);
    metadata(file, "process", rank->rank, 0, text, rank->rank);
    file->dropped += rank->dropped;
    memset(file->named, 0, sizeof file->named);
}

/* Of the lanes beyond the last that is told, numbers stand for names. */
static void name_lane(struct trace_file *file, int rank, int lane)
{
    static const char *const names[] = {"trainer", "down", "up"};
    char text[64];
    if (lane >= LANES_NAMED || file->named[lane])
        return;
    file->named[lane] = true;
    snprintf(text, sizeof text, "host %d", lane - LANE_WORKERS);
    metadata(
            file, "thread", rank, lane,
            lane < LANE_WORKERS ? names[lane] : text, lane);
}

static const char *number_name(int lane)
{
    if (lane == LANE_TRAINER)
        return "number";
    return lane < LANE_WORKERS ? "bytes" : "chunk";
}

void trace_file_spans(
        struct trace_file *file, const struct trace_rank *rank,
        const struct span *spans, size_t count)
{
    for (size_t i = 0; file && i < count; i++) {
        const struct span *span = &spans[i];
        double begin = 1e6 * (span->begin - rank->clock);
        char name[64];
        name_lane(file, rank->rank, span->lane);
        snprintf(name, sizeof name, "%s", span->name);
        if (strcmp(span->name, "layer") == 0)
            snprintf(name, sizeof name, "layer %lld", (long long)span->number);
        json_t *args = span->number >= 0
                               ? json_pack(
                                         "{s:I}", number_name(span->lane),
                                         (json_int_t)span->number)
                               : NULL;
        add(file, json_pack(
                          "{s:s, s:s, s:i, s:i, s:f, s:f, s:o*}", "ph", "X",
                          "name", name, "pid", rank->rank, "tid", span->lane,
                          "ts", begin > 0 ? begin : 0, "dur",
                          1e6 * (span->end - span->begin), "args", args));
    }
}

static enum zd_status finish(struct trace_file *file)
{
    fprintf(file->stream, "\n], \"droppedSpans\": %llu}\n",
            (unsigned long long)file->dropped);
    bool bad = fflush(file->stream) != 0 || ferror(file->stream);
    int error = errno;
    bad = fclose(file->stream) != 0 || bad;
    file->stream = NULL;
    if (bad)
        return fail_write(file->path, error);
    if (rename(file->beside, file->path) != 0)
        return fail_write(file->path, errno);
    return ZD_OK;
}

enum zd_status trace_file_close(struct trace_file *file)
{
    if (!file)
        return ZD_OK;
    enum zd_status status = finish(file);
    if (status == ZD_OK)
        file->beside[0] = '\0';
    trace_file_abandon(file);
    return status;
}

void trace_file_abandon(struct trace_file *file)
{
    if (!file)
        return;
    if (file->stream)
        fclose(file->stream);
    if (file->beside[0])
        unlink(file->beside);
    free(file);
}
