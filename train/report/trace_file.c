#include "train/report/trace_file.h"

#include "base/file/fs.h"
#include "base/file/json.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct trace_file {
    FILE *stream;
    char path[PATH_MAX], beside[PATH_MAX];
    bool has_events;
    uint64_t dropped;
    uint8_t *lanes; /* of the rank at hand: named already */
    int lane_count;
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
    char *text = name ? json_dumps(name, JSON_ENCODE_ANY) : NULL;
    fprintf(file->stream,
            "{\"displayTimeUnit\": \"ms\", \"otherData\": {\"job\": %s},\n"
            "\"traceEvents\": [",
            text ? text : "\"\"");
    free(text);
    json_decref(name);
    *file_out = file;
    return ZD_OK;
}

static void next_event(struct trace_file *file)
{
    fputs(file->has_events ? ",\n" : "\n", file->stream);
    file->has_events = true;
}

static void metadata(
        struct trace_file *file, const char *what, int pid, int tid,
        const char *key, const char *value)
{
    next_event(file);
    fprintf(file->stream,
            "{\"ph\": \"M\", \"name\": \"%s\", \"pid\": %d, \"tid\": %d, "
            "\"args\": {\"%s\": %s}}",
            what, pid, tid, key, value);
}

void trace_file_rank(struct trace_file *file, const struct trace_rank *rank)
{
    char text[128];
    if (!file)
        return;
    /* hosts' names hold no quote */
    snprintf(text, sizeof text, "\"rank %d (%s)\"", rank->rank, rank->host);
    metadata(file, "process_name", rank->rank, 0, "name", text);
    snprintf(text, sizeof text, "%d", rank->rank);
    metadata(file, "process_sort_index", rank->rank, 0, "sort_index", text);
    file->dropped += rank->dropped;
    free(file->lanes);
    file->lanes = NULL;
    file->lane_count = 0;
}

static void name_lane(struct trace_file *file, int rank, int lane)
{
    static const char *const names[] = {"\"trainer\"", "\"down\"", "\"up\""};
    char text[64];
    if (lane >= file->lane_count) {
        uint8_t *more = realloc(file->lanes, (size_t)lane + 1);
        if (!more)
            return; /* a number stands for the name */
        memset(more + file->lane_count, 0,
               (size_t)(lane + 1 - file->lane_count));
        file->lanes = more;
        file->lane_count = lane + 1;
    }
    if (file->lanes[lane])
        return;
    file->lanes[lane] = 1;
    snprintf(text, sizeof text, "\"host %d\"", lane - LANE_WORKERS);
    metadata(
            file, "thread_name", rank, lane, "name",
            lane < LANE_WORKERS ? names[lane] : text);
    snprintf(text, sizeof text, "%d", lane);
    metadata(file, "thread_sort_index", rank, lane, "sort_index", text);
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
        name_lane(file, rank->rank, span->lane);
        next_event(file);
        fprintf(file->stream, "{\"ph\": \"X\", \"name\": \"%s", span->name);
        if (strcmp(span->name, "layer") == 0)
            fprintf(file->stream, " %lld", (long long)span->number);
        fprintf(file->stream,
                "\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f",
                rank->rank, span->lane, begin > 0 ? begin : 0,
                1e6 * (span->end - span->begin));
        if (span->number >= 0)
            fprintf(file->stream, ", \"args\": {\"%s\": %lld}",
                    number_name(span->lane), (long long)span->number);
        fputc('}', file->stream);
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
    free(file->lanes);
    free(file);
}
