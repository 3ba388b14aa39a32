#include "train/trainer/trace.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "train/report/trace_file.h"
#include "train/trainer/trainer.h"

#include <stdlib.h>
#include <string.h>

enum { SPANS_MOST = 1 << 20, PIECE = 2048 };

struct trace {
    struct spans *spans;
    int64_t first_step;
    int steps;          /* that are still to come */
    double clock;       /* that the ranks call 0 */
    double *unit_begin; /* by unit: since when the model has it */
    int unit_count;
    struct model_hooks hooks; /* that are wrapped */
};

struct spans *trace_spans(const struct trace *trace)
{
    return trace ? trace->spans : NULL;
}

/* --- the model's hooks -----------------------------------------------------
 */

static const char *unit_name(const struct trace *trace, int unit)
{
    if (unit == 0)
        return "embedding";
    return unit == trace->unit_count - 1 ? "head" : "layer";
}

static int64_t unit_number(const struct trace *trace, int unit)
{
    return unit > 0 && unit < trace->unit_count - 1 ? unit - 1 : -1;
}

static enum zd_status params_acquire(void *ctx, int unit, const void **params)
{
    struct trace *trace = ctx;
    double begin = clock_seconds();
    enum zd_status status =
            trace->hooks.params_acquire(trace->hooks.ctx, unit, params);
    double end = clock_seconds();
    spans_add(trace->spans, LANE_TRAINER, "gather", -1, begin, end);
    trace->unit_begin[unit] = begin;
    return status;
}

static enum zd_status params_release(void *ctx, int unit)
{
    struct trace *trace = ctx;
    enum zd_status status = trace->hooks.params_release(trace->hooks.ctx, unit);
    spans_add(
            trace->spans, LANE_TRAINER, unit_name(trace, unit),
            unit_number(trace, unit), trace->unit_begin[unit], clock_seconds());
    return status;
}

static enum zd_status grads_acquire(
        void *ctx, int unit, void **grads, bool *accumulate_out)
{
    struct trace *trace = ctx;
    double begin = clock_seconds();
    enum zd_status status = trace->hooks.grads_acquire(
            trace->hooks.ctx, unit, grads, accumulate_out);
    spans_add(trace->spans, LANE_TRAINER, "bucket", -1, begin, clock_seconds());
    return status;
}

static enum zd_status grads_release(void *ctx, int unit)
{
    struct trace *trace = ctx;
    double begin = clock_seconds();
    enum zd_status status = trace->hooks.grads_release(trace->hooks.ctx, unit);
    spans_add(
            trace->spans, LANE_TRAINER, "reduce-scatter", -1, begin,
            clock_seconds());
    return status;
}

struct model_hooks trace_hooks(struct trace *trace, struct model_hooks hooks)
{
    if (!trace)
        return hooks;
    trace->hooks = hooks;
    return (struct model_hooks){
            .ctx = trace,
            .params_acquire = params_acquire,
            .params_release = params_release,
            .grads_acquire = grads_acquire,
            .grads_release = grads_release,
            .product_grads = hooks.product_grads,
    };
}

/* --- beginning -------------------------------------------------------------
 */

/* A step has some phases; a unit of a micro-batch is acquired at most three
 * times, with a gather each, and its gradient once; what is offloaded goes in
 * chunks. */
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

/* All that add spans; NULL: nothing adds any more. */
static void attach(struct trainer *trainer, struct spans *spans)
{
    stream_set_spans(trainer->streams_down, spans, LANE_DOWN);
    stream_set_spans(trainer->streams_up, spans, LANE_UP);
    zero_set_spans(trainer->zero, spans);
}

static enum zd_status create(
        const struct trainer *trainer, int steps, struct trace **out)
{
    int units = trainer->plan.table.unit_count;
    struct trace *trace = zd_array(1, sizeof *trace);
    *trace = (struct trace){
            .unit_count = units,
            .first_step = trainer->state.step + 1,
            .steps = steps,
            .unit_begin = zd_array((size_t)units, sizeof *trace->unit_begin)};
    *out = trace;
    return spans_create(capacity_of(trainer, steps), &trace->spans);
}

void trace_destroy(struct trace *trace)
{
    if (!trace)
        return;
    spans_destroy(trace->spans);
    free(trace->unit_begin);
    free(trace);
}

/* Ranks of one host read one clock. */
static enum zd_status agree_on_clock(
        const struct trainer *trainer, struct trace *trace)
{
    struct comm *comm = trainer->comm;
    ZD_TRY(comm_barrier(comm)); /* the second one finds all of them awake */
    ZD_TRY(comm_barrier(comm));
    trace->clock = clock_seconds();
    if (comm_local_size(comm) < comm_size(comm))
        return ZD_OK;
    return comm_broadcast(comm, &trace->clock, sizeof trace->clock, 0);
}

enum zd_status trace_begin(struct trainer *trainer, int steps)
{
    struct trace *trace = NULL;
    enum zd_status status = ZD_OK;
    if (trainer->trace)
        status = ZD_FAIL(ZD_ERR_USAGE, "E1031", "a profile is being made");
    else
        status = create(trainer, steps, &trace);
    enum zd_status agreed = comm_agree(trainer->comm, status);
    if (agreed == ZD_OK)
        agreed = agree_on_clock(trainer, trace);
    if (agreed != ZD_OK) {
        trace_destroy(trace);
        return agreed;
    }
    trainer->trace = trace;
    attach(trainer, trace->spans);
    return ZD_OK;
}

bool trace_step(struct trainer *trainer)
{
    return trainer->trace && --trainer->trace->steps == 0;
}

/* --- the end ---------------------------------------------------------------
 */

/* Rank r's spans, in pieces that all ranks receive and rank 0 writes. */
static enum zd_status pass_on(
        const struct trainer *trainer, struct trace_file *file, int r,
        struct span *piece)
{
    struct comm *comm = trainer->comm;
    const struct trace *trace = trainer->trace;
    bool is_mine = comm_rank(comm) == r;
    size_t count;
    struct trace_rank about = {.rank = r};
    const struct span *mine = spans_get(trace->spans, &count, &about.dropped);
    about.count = count;
    about.clock = trace->clock;
    snprintf(about.host, sizeof about.host, "%s", comm_host(comm));
    ZD_TRY(comm_broadcast(comm, &about, sizeof about, r));
    trace_file_rank(file, &about);
    for (uint64_t at = 0; at < about.count; at += PIECE) {
        size_t here = about.count - at < PIECE ? about.count - at : PIECE;
        if (is_mine)
            memcpy(piece, mine + at, here * sizeof *piece);
        ZD_TRY(comm_broadcast(comm, piece, here * sizeof *piece, r));
        trace_file_spans(file, &about, piece, here);
    }
    return ZD_OK;
}

static enum zd_status write_all(
        struct trainer *trainer, const char *path, struct span *piece)
{
    struct trace_file *file = NULL; /* of other ranks: none */
    enum zd_status status = ZD_OK;
    if (trainer_is_first(trainer))
        status = trace_file_open(path, trainer->job->job.name, &file);
    status = comm_agree(trainer->comm, status);
    for (int r = 0; status == ZD_OK && r < comm_size(trainer->comm); r++)
        status = pass_on(trainer, file, r, piece);
    if (status != ZD_OK) {
        trace_file_abandon(file);
        return status;
    }
    return comm_agree(trainer->comm, trace_file_close(file));
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
    snprintf(
            name, sizeof name, "profile-%06lld.json",
            (long long)trace->first_step);
    fs_join(path_out, PATH_MAX, trainer->job->job.output_dir, name);
    struct span *piece = zd_array(PIECE, sizeof *piece);
    status = comm_agree(trainer->comm, status);
    if (status == ZD_OK)
        status = write_all(trainer, path_out, piece);
    free(piece);
    trainer->trace = NULL;
    trace_destroy(trace);
    return status;
}
