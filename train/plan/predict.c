/* predict.c - the schedule of a step.
 *
 *   compute   forward 1 | forward 2 | ..  backward 2 | backward 1 | update
 *   wire      gather 2    gather 3         reduce 2     reduce 1
 *   down                                     gradient 2   gradient 1
 *
 * Each resource does one thing at a time, in the order of the program. A
 * gather begins where zero's program says (zero_move.start); a gradient is
 * reduced when its unit is done; the update waits for the norm of all.
 * Micro-batches from the third on are like the second. */
#include "train/plan/predict.h"

#include "train/plan/fit.h"

#include <stdlib.h>

enum { MICROS_MAX = 3 };

const char *plan_resource_name(enum plan_resource resource)
{
    static const char *const names[] = {"compute",   "wire", "to host",
                                        "to device", "host", "disk"};
    return names[resource];
}

struct unit_work {
    double forward;  /* seconds of its forward pass; backward is twice that */
    double gather;   /* bytes of all its parameters that are cut */
    double grads;    /* elements of its gradient */
    double residual; /* bytes of its input, where that goes to the host */
};

struct schedule {
    const struct job_plan *plan;
    const struct plan_machine *machine;
    struct unit_work *units; /* (unit_count) */
    struct unit_event *events;
    int event_count, micros; /* micro-batches that are laid out */
    double *end;             /* by move: when it was done */
    double free_at[PLAN_RESOURCES], busy[PLAN_RESOURCES];
    double now;        /* compute has come so far */
    double grads_done; /* the last gradient is where it is updated */
};

static double latest(double a, double b)
{
    return a > b ? a : b;
}

static double use(
        struct schedule *s, enum plan_resource resource, double ready,
        double seconds)
{
    s->free_at[resource] = latest(s->free_at[resource], ready) + seconds;
    s->busy[resource] += seconds;
    return s->free_at[resource];
}

static void compute(struct schedule *s, double ready, double seconds)
{
    s->now = use(s, PLAN_COMPUTE, latest(ready, s->now), seconds);
}

/* --- what things cost ----------------------------------------------------- */

/* A collective over so many bytes, all ranks' together: within nodes, and in
 * two levels between them. */
static double wire_seconds(const struct schedule *s, double bytes)
{
    const struct job_plan *plan = s->plan;
    const struct plan_machine *machine = s->machine;
    double world = plan->world, node = plan->node_size;
    if (plan->world < 2 || bytes <= 0)
        return 0;
    if (node < 1 || node > world)
        node = world;
    double nodes = world / node, share = bytes / world;
    return machine->latency * ((node - 1) + (nodes - 1)) +
           share * nodes * (node - 1) / machine->inside +
           share * (nodes - 1) / machine->between;
}

static double products_per_second(const struct schedule *s, double tokens)
{
    const struct plan_machine *machine = s->machine;
    double peak = s->plan->zero.request.dtype == DTYPE_FP32
                          ? machine->products_32
                          : machine->products_16;
    return peak * tokens / (tokens + machine->half_tokens);
}

/* Elements that pass through memory for a token of a layer beside the
 * products: norms, rotations, sums, activations. */
static double layer_traffic(const struct model_config *config)
{
    return 20.0 * config->hidden_size + 6.0 * config->intermediate_size;
}

static void measure_unit(struct schedule *s, int unit)
{
    const struct job_plan *plan = s->plan;
    const struct model_config *config = &plan->config;
    const struct param_table *table = &plan->table;
    const struct zero_plan *zero = &plan->zero;
    struct unit_work *work = &s->units[unit];
    double tokens = (double)plan->shape.B * plan->shape.T, weights = 0;
    double width = (double)dtype_bytes(zero->request.dtype);
    bool is_head = unit == table->unit_count - 1;
    bool is_layer = unit > 0 && !is_head;
    for (int id = table->unit_first[unit];
         id < table->unit_first[unit + 1] && unit > 0; id++)
        if (table->params[id].dims == 2)
            weights += (double)table->params[id].count;
    if (is_head && config->tied)
        weights += (double)config->vocab_size * config->hidden_size;
    double flops = 2 * weights * tokens;
    if (is_layer)
        flops +=
                2.0 * plan->shape.T * config->heads * config->head_dim * tokens;
    double elements = is_layer  ? layer_traffic(config)
                      : is_head ? (double)config->vocab_size
                                : (double)config->hidden_size;
    work->forward = flops / products_per_second(s, tokens) +
                    elements * tokens * width / s->machine->memory +
                    s->machine->launch;
    for (int i = zero->unit_segments[unit]; i < zero->unit_segments[unit + 1];
         i++) {
        const struct zero_segment *segment = &zero->segments[i];
        if (!segment->persistent)
            work->gather += (double)zero_segment_bytes(segment, segment->count);
        if (segment->trainable)
            work->grads += (double)segment->count;
    }
    if (is_layer && plan->shape.offload_activations)
        work->residual = tokens * config->hidden_size * width;
}

/* --- micro-batches -------------------------------------------------------- */

/* Parameters of a unit come to where compute finds them. */
static double fetch(struct schedule *s, int unit, double begin)
{
    const struct zero_plan *zero = &s->plan->zero;
    const struct unit_work *work = &s->units[unit];
    double shard = work->gather / s->plan->world, ready = begin;
    if (zero->request.offload.params == OFFLOAD_NVME)
        ready = use(s, PLAN_DISK, ready, shard / s->machine->disk);
    if (zero->params_on_host)
        ready = use(s, PLAN_UP, ready, shard / s->machine->link);
    return use(s, PLAN_WIRE, ready, wire_seconds(s, work->gather));
}

/* A unit's gradient is complete: reduced if it is time, and brought down. */
static void give_gradient(struct schedule *s, int unit, bool is_last)
{
    const struct zero_plan *zero = &s->plan->zero;
    double count = s->units[unit].grads;
    double bytes = count * (double)dtype_bytes(zero->grad_dtype);
    double done = s->now;
    if (count <= 0)
        return;
    if (zero->grads_cut || is_last)
        done = use(s, PLAN_WIRE, done, wire_seconds(s, bytes));
    if (is_last && !zero->states_cut)
        done = use(s, PLAN_WIRE, done, wire_seconds(s, bytes));
    if (zero->states_on_host && (zero->grads_pass || is_last)) {
        double held = zero->states_cut ? bytes / s->plan->world : bytes;
        done = use(s, PLAN_DOWN, done, held / s->machine->link);
        if (zero->request.accumulate_on_host)
            done = use(s, PLAN_HOST, done, 3 * held / s->machine->host);
    }
    s->grads_done = latest(s->grads_done, done);
}

static void acquire(struct schedule *s, int i, bool is_backward)
{
    const struct zero_plan *zero = &s->plan->zero;
    struct unit_event event = s->events[i % s->event_count];
    const struct unit_work *work = &s->units[event.unit];
    bool recomputes = s->plan->shape.checkpointing.mode != CHECKPOINTING_NONE;
    double ready = 0;
    if (zero->params_cut && zero->train_moves[i].gather) {
        int start = zero->train_moves[i].start;
        double begin = start == i ? s->now : start < 0 ? 0 : s->end[start];
        ready = fetch(s, event.unit, begin);
    }
    if (is_backward && work->residual > 0)
        ready =
                latest(ready, use(s, PLAN_UP, i > 1 ? s->end[i - 2] : 0,
                                  work->residual / s->machine->link));
    bool is_head = event.unit == s->plan->table.unit_count - 1;
    double share = is_head ? 3 : is_backward ? recomputes : 1;
    compute(s, ready, share * work->forward);
    if (!is_backward && work->residual > 0)
        use(s, PLAN_DOWN, s->now, work->residual / s->machine->link);
}

/* The head's gradient is made with the loss, that of the embedding last. */
static void lay_micro(struct schedule *s, int micro, bool is_last)
{
    int head = s->plan->table.unit_count - 1;
    bool is_backward = false;
    for (int e = 0; e < s->event_count; e++) {
        struct unit_event event = s->events[e];
        int i = micro * s->event_count + e;
        if (event.acquire) {
            acquire(s, i, is_backward);
        } else if (is_backward) {
            compute(s, 0, 2 * s->units[event.unit].forward);
            give_gradient(s, event.unit, is_last);
        } else if (event.unit == head) {
            give_gradient(s, head, is_last);
            is_backward = true;
        }
        s->end[i] = s->now;
    }
    compute(s, 0, s->units[0].forward);
    give_gradient(s, 0, is_last);
}

static void pass_time(struct schedule *s, double seconds, double times)
{
    for (int r = 0; r < PLAN_RESOURCES; r++)
        s->free_at[r] += seconds * times;
    for (int i = 0; i < s->micros * s->event_count; i++)
        s->end[i] += seconds * times;
    s->now += seconds * times;
    s->grads_done += seconds * times;
}

/* The second stands for all between the first and the last. */
static void lay_micros(struct schedule *s)
{
    double before = 0, busy[PLAN_RESOURCES] = {0};
    for (int micro = 0; micro < s->micros; micro++) {
        bool is_last = micro == s->micros - 1;
        for (int r = 0; r < PLAN_RESOURCES; r++)
            busy[r] = s->busy[r];
        before = s->now;
        lay_micro(s, micro, is_last);
        double times = (double)(s->plan->accumulation - s->micros);
        if (micro != 1 || times <= 0)
            continue;
        for (int r = 0; r < PLAN_RESOURCES; r++)
            s->busy[r] += (s->busy[r] - busy[r]) * times;
        pass_time(s, s->now - before, times);
    }
}

/* --- the update ----------------------------------------------------------- */

static double span_sum(
        const struct arena_plan *arena, enum arena_memory memory,
        enum span_kind kind)
{
    return (double)arena_plan_kind_bytes(arena, memory, kind);
}

/* States are read and written, gradients read, parameters written. */
static double update_here(struct schedule *s, double begin, double held)
{
    const struct job_plan *plan = s->plan;
    double states = span_sum(&plan->arena, ARENA_DEVICE, SPAN_OPTIMIZER);
    double rest = held * (double)(dtype_bytes(plan->zero.grad_dtype) +
                                  dtype_bytes(plan->zero.request.dtype));
    double spilled = (double)job_plan_paged(plan).host, done;
    done =
            use(s, PLAN_COMPUTE, begin,
                (2 * states + rest) / s->machine->memory + s->machine->launch);
    if (spilled > 0) {
        done = latest(done, use(s, PLAN_UP, begin, spilled / s->machine->link));
        done = latest(
                done, use(s, PLAN_DOWN, begin, spilled / s->machine->link));
    }
    return done;
}

static double update_on_host(struct schedule *s, double begin, double held)
{
    const struct job_plan *plan = s->plan;
    const struct zero_request *request = &plan->zero.request;
    double states = span_sum(&plan->arena, ARENA_HOST, SPAN_OPTIMIZER) +
                    span_sum(&plan->arena, ARENA_PINNED, SPAN_OPTIMIZER);
    double width = (double)dtype_bytes(request->dtype), done;
    double disk = (double)plan->arena.bytes[ARENA_DISK];
    if (request->offload.optimizer == OFFLOAD_NVME)
        states = latest(states, disk);
    done =
            use(s, PLAN_HOST, begin,
                (2 * states + 2 * width * held) / s->machine->host);
    if (request->offload.optimizer == OFFLOAD_NVME)
        done = latest(
                done, use(s, PLAN_DISK, begin, 2 * disk / s->machine->disk));
    if (!plan->zero.params_on_host)
        done = latest(
                done, use(s, PLAN_UP, begin, width * held / s->machine->link));
    return done;
}

/* Stages 1 and 2 gather all parameters that were updated, stage 3 those that
 * stay gathered. */
static double gather_updated(struct schedule *s, double begin)
{
    const struct zero_plan *zero = &s->plan->zero;
    double bytes = 0;
    if (!zero->states_cut)
        return begin;
    for (int i = 0; i < zero->segment_count; i++) {
        const struct zero_segment *segment = &zero->segments[i];
        if (segment->trainable && (segment->persistent || !zero->params_cut))
            bytes += (double)zero_segment_bytes(segment, segment->count);
    }
    return use(s, PLAN_WIRE, begin, wire_seconds(s, bytes));
}

static double lay_update(struct schedule *s)
{
    const struct zero_plan *zero = &s->plan->zero;
    double held = (double)zero->trainable_count;
    double begin = latest(s->now, s->grads_done);
    if (zero->states_cut)
        held /= s->plan->world;
    if (s->plan->world > 1) /* the norm */
        begin += s->machine->latency * s->plan->world;
    double done = zero->states_on_host ? update_on_host(s, begin, held)
                                       : update_here(s, begin, held);
    return gather_updated(s, done);
}

static void conclude(
        const struct schedule *s, double end, struct plan_prediction *out)
{
    const struct job_plan *plan = s->plan;
    double tokens = (double)plan->per_device * plan->accumulation *
                    plan->world * plan->shape.T;
    *out = (struct plan_prediction){
            .step_seconds = end,
            .tokens_per_second = tokens / end,
            .micro_seconds = s->now,
            .update_seconds = end - s->now};
    for (int r = 0; r < PLAN_RESOURCES; r++) {
        out->busy[r] = s->busy[r];
        if (s->busy[r] > s->busy[out->binds])
            out->binds = (enum plan_resource)r;
    }
}

enum zd_status plan_predict(
        const struct job_plan *plan, const struct plan_machine *machine,
        struct plan_prediction *out)
{
    struct schedule s = {.plan = plan, .machine = machine};
    int units = plan->table.unit_count;
    struct checkpointing mode = plan->shape.checkpointing;
    s.micros =
            plan->accumulation < MICROS_MAX ? plan->accumulation : MICROS_MAX;
    s.event_count = model_unit_events(
            &plan->config, &plan->table, mode, MODEL_TRAIN, NULL, 0);
    size_t moves = (size_t)s.event_count * (size_t)s.micros;
    s.units = calloc((size_t)units, sizeof *s.units);
    s.events = calloc((size_t)s.event_count + 1, sizeof *s.events);
    s.end = calloc(moves + 1, sizeof *s.end);
    enum zd_status status = ZD_OK;
    if (s.units && s.events && s.end) {
        model_unit_events(
                &plan->config, &plan->table, mode, MODEL_TRAIN, s.events,
                s.event_count);
        for (int unit = 0; unit < units; unit++)
            measure_unit(&s, unit);
        lay_micros(&s);
        conclude(&s, lay_update(&s), out);
    } else {
        status = ZD_FAIL(
                ZD_ERR_MEMORY, "E0602", "out of memory predicting a step");
    }
    free(s.units);
    free(s.events);
    free(s.end);
    return status;
}
