#include "train/trainer/trace.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "train/trainer/trainer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SPANS_MOST = 1 << 20, PIECE = 2048 };

struct trace {
    struct spans *spans;
    int64_t first_step;
    int steps;    /* left to trace */
    double clock; /* the ranks' time 0 */
};

struct spans *trace_spans(const struct trace *trace)
{
    return trace ? trace->spans : NULL;
}

/* --- beginning -------------------------------------------------------------
 */

/* Estimates the spans: a step has a few phases; a unit of a micro-batch is
 * acquired at most three times, with a gather each, and its gradient once;
 * offload works in chunks. */
static size_t capacity_of(const struct trainer *trainer, int steps)
{
    const struct job_plan *plan = &trainer->plan;
    size_t units = (size_t)plan->table.unit_count;
    size_t step = 64 + (size_t)plan->accumulation * (16 * units + 8);
    if (trainer->streams_down)
        step += (size_t)plan->accumulation * 64 * units + 4096;
    size_t all = (size_t)(steps + 1) * step;
    return all < SPANS_MOST ? all : SPANS_MOST;
}

/* Sets where all sources add spans; NULL: nowhere. */
static void attach(struct trainer *trainer, struct spans *spans)
{
    stream_set_spans(trainer->streams_down, spans, LANE_DOWN);
    stream_set_spans(trainer->streams_up, spans, LANE_UP);
    zero_set_spans(trainer->zero, spans);
}

static enum zd_status create(
        const struct trainer *trainer, int steps, struct trace **out)
{
    struct trace *trace = zd_array(1, sizeof *trace);
    trace->first_step = trainer->state.step + 1;
    trace->steps = steps;
    *out = trace;
    return spans_create(capacity_of(trainer, steps), &trace->spans);
}

void trace_destroy(struct trace *trace)
{
    if (!trace)
        return;
    spans_destroy(trace->spans);
    free(trace);
}

/* Sets time 0; ranks of one host share a clock. */
static enum zd_status agree_on_clock(
        const struct trainer *trainer, struct trace *trace)
{
    struct comm *comm = trainer->comm;
    ZD_TRY(comm_barrier(comm)); /* the second barrier finds all ranks awake */
    ZD_TRY(comm_barrier(comm));
    trace->clock = clock_seconds();
    if (comm_local_size(comm) < comm_size(comm))
        return ZD_OK;
    return comm_broadcast(comm, &trace->clock, sizeof trace->clock, 0);
}

enum zd_status trace_begin(struct trainer *trainer, int steps)
{
    struct trace *trace = NULL;
    enum zd_status status = trainer->trace ? ZD_FAIL(ZD_ERR_USAGE, "E1031",
                                                     "a profile is being made")
                                           : create(trainer, steps, &trace);
    status = comm_agree(trainer->comm, status);
    ZD_THEN(status, agree_on_clock(trainer, trace));
    if (status != ZD_OK) {
        trace_destroy(trace);
        return status;
    }
    trainer->trace = trace;
    attach(trainer, trace->spans);
    return ZD_OK;
}

bool trace_step(struct trainer *trainer)
{
    return trainer->trace && --trainer->trace->steps == 0;
}

/* --- the file -------------------------------------------------------------
 */

enum { LANES_NAMED = 1024 };
struct about { /* a rank; plain bytes: broadcast */
    int rank;
    char host[64];
    uint64_t count, dropped; /* spans */
    double clock;            /* of its host, at the trace's time 0 */
};

/* Rank 0's output, written to a temporary file and renamed; elsewhere all 0. */
struct output {
    FILE *stream;
    const char *path;
    char beside[PATH_MAX];
    const char *between;
    uint64_t dropped;
    bool named[LANES_NAMED]; /* lanes of the current rank */
};

static enum zd_status fail_write(const struct output *out, int error)
{
    return ZD_FAIL(
            ZD_ERR_IO, "E0707", "cannot write %s: %s", out->path,
            strerror(error));
}

static enum zd_status open_output(struct output *out, const char *job)
{
    if (snprintf(out->beside, PATH_MAX, "%s.tmp", out->path) >= PATH_MAX)
        return fail_write(out, ENAMETOOLONG);
    int fd = fs_create(out->beside, 0644);
    out->stream = fd < 0 ? NULL : fdopen(fd, "w");
    if (!out->stream)
        return fail_write(out, errno);
    json_auto_t *name = json_string(job);
    fputs("{\"displayTimeUnit\": \"ms\", \"otherData\": {\"job\": ",
          out->stream);
    json_dumpf(name, out->stream, JSON_ENCODE_ANY);
    fputs("},\n\"traceEvents\": [", out->stream);
    out->between = "\n";
    return ZD_OK;
}

/* `status`: of writing. */
static enum zd_status close_output(struct output *out, enum zd_status status)
{
    if (!out->stream)
        return status;
    fprintf(out->stream, "\n], \"droppedSpans\": %llu}\n",
            (unsigned long long)out->dropped);
    bool bad = fflush(out->stream) != 0 || ferror(out->stream);
    if (status == ZD_OK && bad)
        status = fail_write(out, errno);
    bad = fclose(out->stream) != 0;
    if (status == ZD_OK && (bad || rename(out->beside, out->path) != 0))
        status = fail_write(out, errno);
    if (status != ZD_OK)
        unlink(out->beside);
    return status;
}

/* Names a rank or one of its threads. */
static void write_name(
        struct output *out, const char *what, int pid, int tid,
        const char *name)
{
    json_auto_t *event = json_pack(
            "{s:s, s:s, s:i, s:i, s:{s:s}}", "ph", "M", "name", what, "pid",
            pid, "tid", tid, "args", "name", name);
    fputs(out->between, out->stream);
    json_dumpf(event, out->stream, 0);
    out->between = ",\n";
}

/* Names a lane; lanes beyond the named ones get numbers. */
static void name_lane(struct output *out, int rank, int lane)
{
    static const char *const names[] = {"trainer", "down", "up"};
    char text[64];
    if (lane >= LANES_NAMED || out->named[lane])
        return;
    out->named[lane] = true;
    ZD_PRINT(text, "host %d", lane - LANE_WORKERS);
    write_name(
            out, "thread_name", rank, lane,
            lane < LANE_WORKERS ? names[lane] : text);
}

static void write_spans(
        struct output *out, const struct about *about, const struct span *spans,
        size_t count)
{
    static const char *const numbers[] = {"number", "bytes", "bytes", "chunk"};
    ZD_EACH(span, spans, count) {
        int kind = span->lane < LANE_WORKERS ? span->lane : LANE_WORKERS;
        double begin = 1e6 * (span->begin - about->clock);
        name_lane(out, about->rank, span->lane);
        fprintf(out->stream, ",\n{\"ph\": \"X\", \"name\": \"%s", span->name);
        if (strcmp(span->name, "layer") == 0)
            fprintf(out->stream, " %lld", (long long)span->number);
        fprintf(out->stream,
                "\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f",
                about->rank, span->lane, begin > 0 ? begin : 0,
                1e6 * (span->end - span->begin));
        if (span->number >= 0)
            fprintf(out->stream, ", \"args\": {\"%s\": %lld}", numbers[kind],
                    (long long)span->number);
        fputc('}', out->stream);
    }
}

/* --- the end ---------------------------------------------------------------
 */

/* Sends rank r's spans in pieces, which all ranks receive and rank 0 writes. */
static enum zd_status pass_on(
        const struct trainer *trainer, struct output *out, int r,
        struct span *piece)
{
    struct comm *comm = trainer->comm;
    const struct trace *trace = trainer->trace;
    char name[128];
    size_t count;
    struct about about = {.rank = r};
    const struct span *mine = spans_get(trace->spans, &count, &about.dropped);
    about.count = count;
    about.clock = trace->clock;
    ZD_PRINT(about.host, "%s", comm_host(comm));
    ZD_TRY(comm_broadcast(comm, &about, sizeof about, r));
    ZD_PRINT(name, "rank %d (%s)", r, about.host);
    if (out->stream)
        write_name(out, "process_name", r, 0, name);
    out->dropped += about.dropped;
    memset(out->named, 0, sizeof out->named);
    for (uint64_t at = 0; at < about.count; at += PIECE) {
        size_t here = about.count - at < PIECE ? about.count - at : PIECE;
        if (comm_rank(comm) == r)
            memcpy(piece, mine + at, here * sizeof *piece);
        ZD_TRY(comm_broadcast(comm, piece, here * sizeof *piece, r));
        if (out->stream)
            write_spans(out, &about, piece, here);
    }
    return ZD_OK;
}

static enum zd_status write_all(struct trainer *trainer, const char *path)
{
    struct output out = {.path = path};
    ZD_FREED struct span *piece = zd_array(PIECE, sizeof *piece);
    enum zd_status status = COMM_FIRST(
            trainer->comm, open_output(&out, trainer->job->job.name));
    for (int r = 0; status == ZD_OK && r < comm_size(trainer->comm); r++)
        status = pass_on(trainer, &out, r, piece);
    enum zd_status closed = close_output(&out, status);
    return status == ZD_OK ? comm_agree(trainer->comm, closed) : closed;
}

enum zd_status trace_end(struct trainer *trainer, char *path_out)
{
    char name[64];
    struct trace *trace = trainer->trace;
    path_out[0] = '\0';
    if (!trace)
        return ZD_OK;
    enum zd_status status = zero_settle(trainer->zero);
    stream_finish(trainer->streams_down);
    stream_finish(trainer->streams_up);
    attach(trainer, NULL);
    ZD_PRINT(name, "profile-%06lld.json", (long long)trace->first_step);
    fs_join(path_out, PATH_MAX, trainer->job->job.output_dir, name);
    status = comm_agree(trainer->comm, status);
    ZD_THEN(status, write_all(trainer, path_out));
    trainer->trace = NULL;
    trace_destroy(trace);
    return status;
}
