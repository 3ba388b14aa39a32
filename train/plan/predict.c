/* predict.c - the schedule of a step.
 *
 *   compute   forward 1 | forward 2 | ..  backward 2 | backward 1 | update
 *   wire      gather 2    gather 3         reduce 2     reduce 1
 *   down                                     gradient 2   gradient 1
 *
 * Each resource does one thing at a time, in program order. A gather begins
 * where zero's program starts it (zero_move.start); a gradient is reduced when
 * its unit is done; the update waits for the norm of all. The next step uses an
 * update's results unit by unit: gathers of stages 1 and 2 and updates on the
 * host overlap its forward pass. So two steps are scheduled, and the second is
 * reported. Micro-batches from the third on are like the second. Micro-batches
 * that take turns in each unit are scheduled as one with the work of all. */
#include "train/plan/predict.h"

#include "base/must.h"
#include "train/plan/cost.h"
#include "train/plan/fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MICROS_MAX = 3, GAPS = 32 };

struct unit_state {
    struct unit_cost cost;
    double updated, sent; /* when its parameters are updated on the host, and
                             copied to where they are kept */
    double made;          /* when this rank's shard of them is complete */
    double spread;        /* when they are gathered, at stages 1 and 2; 0: not
                             yet */
};

/* Times of a move: its parameters are on the device; gathered; and the training
 * thread has done the move (acquired or released the unit). */
struct move_times {
    double copied, arrives, end;
};

/* Time in which a resource was idle. */
struct gap {
    double begin, end;
};

struct schedule {
    const struct job_plan *plan;
    const struct plan_machine *machine;
    struct costs costs;
    struct unit_state *units; /* (unit_count) */
    struct unit_event *events;
    int event_count, micros; /* micro-batches to schedule */
    int next_update;         /* unit whose host update is scheduled next */
    double update_begin;     /* earliest time of host updates */
    int next_spread;         /* unit whose gather begins next */
    int next_gather;         /* move whose gather begins next, at stage 3 */
    struct move_times *moves;
    double free_at[PLAN_RESOURCES];
    double cores[PLAN_RESOURCES]; /* share of a core's time that each takes from
                                     computation */
    struct gap gaps[GAPS];        /* gaps between copies up */
    int gap_count;
    struct plan_prediction told;
    double now;   /* time of the training thread */
    double begin; /* of the step; of its current part */
    double part_begin;
    double launch;  /* launch overhead of a layer */
    double slowest; /* compute time of the slowest rank over the mean */
    double reduced, grads_down; /* the last gradient is reduced */
    double grads_done; /* gradients are where they are updated, and early
                          updates done */
};

/* The training thread waits until then. */
static void await(struct schedule *s, enum plan_exposed what, double until)
{
    s->told.exposed[what] += fmax(0, until - s->now);
    s->now = fmax(s->now, until);
}

static double use(
        struct schedule *s, enum plan_resource resource, double ready,
        double seconds)
{
    double share = s->cores[resource];
    double *cores = &s->free_at[PLAN_COMPUTE];
    s->told.busy[resource] += seconds;
    s->free_at[resource] = fmax(s->free_at[resource], ready) + seconds;
    if (share == 1 && seconds > 0)
        *cores = fmax(*cores, ready) + seconds;
    else /* parallel to computation, but takes a little of its time */
        *cores += share * seconds;
    return s->free_at[resource];
}

/* Copies up are queued as they become ready: a layer's input does not wait for
 * parameters that the host has not updated yet. A copy uses the earliest gap
 * that is long enough and leaves the rest of it. */
static double copy_up(struct schedule *s, double ready, double bytes)
{
    double seconds = bytes / s->machine->link, free_at = s->free_at[PLAN_UP];
    for (int g = 0; g < s->gap_count && s->cores[PLAN_UP] < 1; g++) {
        struct gap *gap = &s->gaps[g];
        double end = fmax(gap->begin, ready) + seconds;
        if (end > gap->end)
            continue;
        s->told.busy[PLAN_UP] += seconds;
        gap->begin = end;
        return end;
    }
    if (ready > free_at && s->gap_count == GAPS)
        memmove(s->gaps, s->gaps + 1, (size_t)--s->gap_count * sizeof *s->gaps);
    if (ready > free_at)
        s->gaps[s->gap_count++] = (struct gap){free_at, ready};
    return use(s, PLAN_UP, ready, seconds);
}

/* Launch overhead is part of the compute time: a GPU waits for each layer's
 * launches. */
static void launch(struct schedule *s, double passes)
{
    s->told.exposed[EXPOSED_LAUNCHES] += passes * s->launch;
}

static void compute(struct schedule *s, double ready, double seconds)
{
    s->now = use(s, PLAN_COMPUTE, fmax(ready, s->now), seconds * s->slowest);
}

/* The model waits for exchanges between places. */
static void exchange(struct schedule *s, double seconds)
{
    if (seconds > 0)
        await(s, EXPOSED_GATHERS, use(s, PLAN_PLACES, s->now, seconds));
}

/* A collective over `bytes`. On the CPU the training thread does the cores'
 * part. */
static double collect(
        struct schedule *s, enum zero_group group, double ready, double bytes)
{
    if (group == ZERO_REPLICATE && s->plan->zero.replicas == 1)
        return ready; /* nothing to wait for */
    double seconds = cost_wire(&s->costs, group, bytes);
    double done = use(
            s, group == ZERO_SHARD ? PLAN_WIRE : PLAN_REPLICAS, ready, seconds);
    double own = s->cores[PLAN_WIRE] * seconds;
    if (own > 0)
        await(s, EXPOSED_GATHERS, fmax(s->now, ready) + own);
    return done;
}

static void end_part(struct schedule *s, enum plan_part part)
{
    s->told.parts[part] += s->now - s->part_begin;
    s->part_begin = s->now;
}

static int head_of(const struct schedule *s)
{
    return s->plan->table.unit_count - 1;
}

static void lay_updates(struct schedule *s, int unit);

/* --- parameters come ------------------------------------------------------ */

/* Copies the parameters of a unit to the device. */
static void fetch(struct schedule *s, int move, int unit, double begin)
{
    const struct zero_plan *zero = &s->plan->zero;
    const struct unit_cost *cost = &s->units[unit].cost;
    double part = cost->gather / mesh_parts(s->plan->mesh);
    lay_updates(s, unit);
    double ready = fmax(begin, s->units[unit].made);
    if (zero->request.offload.params == OFFLOAD_NVME)
        ready = use(s, PLAN_DISK, ready, part / s->machine->disk);
    if (zero->params_on_host) {
        ready = copy_up(s, ready, part);
        s->moves[move].copied = ready;
        ready = collect(s, ZERO_REPLICATE, ready, cost->gather / zero->shards);
    }
    s->moves[move].arrives = collect(s, ZERO_SHARD, ready, cost->gather);
}

/* Stage 3: begins the gathers before move `end` that may start once move i is
 * done; a move without prefetch begins its own. */
static void gathers_begin(struct schedule *s, int i, int end, double now)
{
    const struct zero_plan *zero = &s->plan->zero;
    for (; zero->params_cut && s->next_gather < end; s->next_gather++) {
        const struct zero_move *move = &zero->train_moves[s->next_gather];
        if (!move->gather)
            continue;
        if (move->start > i)
            return;
        fetch(s, s->next_gather, move->unit, now);
    }
}

static int moves_of(const struct schedule *s)
{
    return s->micros * s->event_count;
}

static void await_update(struct schedule *s, int unit)
{
    lay_updates(s, unit);
    await(s, EXPOSED_UPDATE, s->units[unit].updated);
    await(s, EXPOSED_COPIES, s->units[unit].sent);
    await(s, EXPOSED_GATHERS, s->units[unit].made);
}

/* Begins gathers of updated parameters up to unit `end`: all after updates on
 * the device, the next unit's after updates on the host. */
static void spread_until(struct schedule *s, int end)
{
    for (; s->next_spread < end; s->next_spread++) {
        struct unit_state *at = &s->units[s->next_spread];
        if (s->plan->zero.states_on_host)
            await_update(s, s->next_spread);
        if (!(at->cost.spread > 0))
            continue;
        at->spread = collect(s, ZERO_SHARD, at->made, at->cost.spread);
        if (!s->plan->zero.request.options.overlap_comm)
            await(s, EXPOSED_GATHERS, at->spread);
    }
}

static bool gathers_updated(const struct schedule *s)
{
    return s->plan->zero.states_cut && mesh_parts(s->plan->mesh) > 1;
}

/* Waits until a unit's updated parameters are complete. */
static void wait_updated(struct schedule *s, int unit)
{
    int units = s->plan->table.unit_count;
    int next = unit + 2 < units ? unit + 2 : units;
    if (gathers_updated(s))
        spread_until(s, s->plan->zero.states_on_host ? next : units);
    await_update(s, unit);
    await(s, EXPOSED_GATHERS, s->units[unit].spread);
}

static void acquire(struct schedule *s, int i, bool is_backward)
{
    struct unit_event event = s->events[i % s->event_count];
    const struct unit_cost *cost = &s->units[event.unit].cost;
    bool recomputes =
            checkpointing_segment(
                    s->plan->shape.checkpointing, s->plan->config.layers) > 0;
    bool is_head = event.unit == head_of(s);
    double asked = s->now;
    wait_updated(s, event.unit);
    gathers_begin(s, i, i + 1, asked);
    await(s, EXPOSED_COPIES, s->moves[i].copied);
    await(s, EXPOSED_GATHERS, s->moves[i].arrives);
    if (is_backward && cost->residual > 0)
        await(s, EXPOSED_COPIES,
              copy_up(s, i > 1 ? s->moves[i - 2].end : 0, cost->residual));
    s->moves[i].end = s->now;
    gathers_begin(s, i, moves_of(s), s->now);
    bool is_again = is_backward && !is_head;
    bool ends_segment = !s->events[(i + 1) % s->event_count].acquire;
    if (!is_again || recomputes) {
        double without = is_again && ends_segment ? cost->output : 0;
        exchange(s, cost->exchange[PASS_FORWARD]);
        launch(s, 1);
        compute(s, 0, cost->pass[PASS_FORWARD] - without);
    }
    if (is_backward && cost->pieces > 0)
        compute(s, 0, cost->pieces);
    if (is_backward &&
        s->plan->shape.checkpointing.mode == CHECKPOINTING_SELECTIVE)
        compute(s, 0, cost->recompute);
    if (!is_backward && cost->residual > 0)
        use(s, PLAN_DOWN, s->now, cost->residual / s->machine->link);
}

/* --- gradients go --------------------------------------------------------- */

static double device_part(const struct job_plan *plan)
{
    return fmax(0, plan->zero.request.offload.device_update);
}

/* The device updates elements whose states are copied to it and back; on a CPU
 * its own cores update them. Results stay, or are copied down too. A GPU's
 * copies use host memory bandwidth that the host's workers need. */
static double visit(
        struct schedule *s, double count, bool is_early, double begin)
{
    const struct zero_plan *zero = &s->plan->zero;
    bool comes_down = is_early || zero->params_on_host;
    double states = count * cost_state_width(s->plan);
    double params =
            comes_down ? count * (double)dtype_bytes(zero->request.dtype) : 0;
    double grads = count * cost_slot_width(s->plan);
    double done = copy_up(s, begin, states + grads);
    if (s->plan->backend == DEVICE_CPU) {
        double seconds = cost_update_host(&s->costs, count, is_early);
        s->told.busy[PLAN_HOST] += seconds;
        s->free_at[PLAN_COMPUTE] += s->cores[PLAN_HOST] * seconds;
        done += seconds;
    } else {
        use(s, PLAN_HOST, begin,
            cost_host_moves(&s->costs, 2 * states + grads + params));
    }
    return use(s, PLAN_DOWN, done, (states + params) / s->machine->link);
}

/* These copies alternate with those of parameters that are kept on the host. */
static double update_visitors(
        struct schedule *s, double count, bool is_early, double begin)
{
    int turns = s->plan->zero.params_on_host ? 4 : 1;
    double done = begin;
    for (int i = 0; i < turns; i++)
        done = visit(s, count / turns, is_early, begin);
    return done;
}

/* Updates elements of a unit: after the last gradient, or with `is_early` after
 * the unit's own. */
static void update_on_host(
        struct schedule *s, int unit, double count, bool is_early, double begin)
{
    const struct job_plan *plan = s->plan;
    const struct zero_request *request = &plan->zero.request;
    struct unit_state *at = &s->units[unit];
    double shared = count * device_part(plan);
    if (count <= 0)
        return;
    double done =
            use(s, PLAN_HOST, begin,
                cost_update_host(&s->costs, count - shared, is_early));
    if (shared > 0)
        done = fmax(done, update_visitors(s, shared, is_early, begin));
    if (request->offload.optimizer == OFFLOAD_NVME)
        done = fmax(
                done, use(s, PLAN_DISK, begin,
                          2 * (double)plan->arena.bytes[ARENA_DISK] * count /
                                  cost_held(plan) / s->machine->disk));
    at->updated = done;
}

/* Copies a unit's new parameters up, except those updated by the device.
 * Parameters kept on the host are copied by fetch instead. A GPU's copies use
 * host memory bandwidth that the next unit's update needs. */
static void send_updated(struct schedule *s, int unit, double begin)
{
    const struct zero_plan *zero = &s->plan->zero;
    struct unit_state *at = &s->units[unit];
    const struct unit_cost *cost = &at->cost;
    double stays = zero->params_on_host ? 0 : device_part(s->plan);
    double made = (cost->update - cost->early) * stays;
    double bytes =
            (cost->update - made) * (double)dtype_bytes(zero->request.dtype);
    at->sent = fmax(begin, at->updated);
    if (s->plan->backend == DEVICE_CUDA)
        use(s, PLAN_HOST, at->sent, cost_host_moves(&s->costs, bytes));
    if (!zero->params_on_host && cost->update > 0)
        at->sent = copy_up(s, at->sent, bytes);
    at->made = collect(s, ZERO_REPLICATE, at->sent, cost->rejoin);
}

/* Once the norm is known, in the order of the next forward pass, up to `unit`:
 * schedules remaining updates and all copies. Parameters kept on the device are
 * copied up as they are updated, after the copies of states for the next unit.
 */
static void lay_updates(struct schedule *s, int unit)
{
    int units = head_of(s) + 1;
    int ahead = device_part(s->plan) > 0 && !s->plan->zero.params_on_host;
    for (; s->next_update <= unit + ahead; s->next_update++) {
        int u = s->next_update;
        if (u < units)
            update_on_host(
                    s, u, s->units[u].cost.update - s->units[u].cost.early,
                    false, s->update_begin);
        if (u >= ahead)
            send_updated(s, u - ahead, s->update_begin);
    }
}

/* A unit's gradient is complete: rounds it, reduces it if due, and copies it
 * down. */
static void give_gradient(struct schedule *s, int unit, bool is_last)
{
    const struct zero_plan *zero = &s->plan->zero;
    const struct unit_cost *cost = &s->units[unit].cost;
    double bytes = cost->grads * (double)dtype_bytes(zero->grad_dtype);
    if (cost->grads <= 0)
        return;
    compute(s, 0, cost->round);
    double done = s->now;
    if (zero->grads_cut || is_last)
        done = collect(s, ZERO_SHARD, done, bytes);
    if (zero->grads_pass || is_last)
        done = collect(s, ZERO_REPLICATE, done, bytes / zero->shards);
    if (is_last && !zero->states_cut) {
        done = collect(s, ZERO_REPLICATE, done, bytes / zero->shards);
        done = collect(s, ZERO_SHARD, done, bytes);
    }
    s->reduced = fmax(s->reduced, done);
    if (zero->states_on_host && (zero->grads_pass || is_last)) {
        double held = cost->update * cost_slot_width(s->plan);
        done = use(s, PLAN_DOWN, done, held / s->machine->link);
        s->grads_down = fmax(s->grads_down, done);
        if (zero->request.accumulate_on_host)
            done = use(
                    s, PLAN_HOST, done, cost_host_moves(&s->costs, 3 * held));
        if (is_last && cost->early > 0) { /* the norm waits for this update */
            update_on_host(s, unit, cost->early, true, done);
            done = s->units[unit].updated;
        }
    }
    s->grads_done = fmax(s->grads_done, done);
}

static void go_back(struct schedule *s, int unit, bool is_last)
{
    exchange(s, s->units[unit].cost.exchange[PASS_BACKWARD]);
    compute(s, 0, s->units[unit].cost.pass[PASS_BACKWARD]);
    launch(s, 2);
    give_gradient(s, unit, is_last);
}

/* The head's gradient is computed with the loss, the embedding's last. */
static void lay_micro(struct schedule *s, int micro, bool is_last)
{
    bool is_backward = false;
    for (int e = 0; e < s->event_count; e++) {
        struct unit_event event = s->events[e];
        int i = micro * s->event_count + e;
        bool was_backward = is_backward;
        if (event.acquire) {
            acquire(s, i, is_backward);
        } else if (is_backward) {
            go_back(s, event.unit, is_last);
        } else if (event.unit == head_of(s)) {
            give_gradient(s, event.unit, is_last);
            is_backward = true;
        }
        if (!event.acquire) {
            s->moves[i].end = s->now;
            gathers_begin(s, i, moves_of(s), s->now);
        }
        end_part(s, was_backward ? PLAN_BACKWARD : PLAN_FORWARD);
    }
    go_back(s, 0, is_last);
    end_part(s, PLAN_BACKWARD);
}

/* --- several micro-batches ------------------------------------------------ */

/* Repeats the time of one micro-batch `times` times. */
static void repeat(
        struct schedule *s, const struct schedule *before, double times)
{
    double seconds = (s->now - before->now) * times;
    for (int r = 0; r < PLAN_RESOURCES; r++) {
        s->free_at[r] += seconds;
        s->told.busy[r] += (s->told.busy[r] - before->told.busy[r]) * times;
    }
    for (int p = 0; p < PLAN_PARTS; p++)
        s->told.parts[p] += (s->told.parts[p] - before->told.parts[p]) * times;
    for (int e = 0; e < PLAN_EXPOSED; e++)
        s->told.exposed[e] +=
                (s->told.exposed[e] - before->told.exposed[e]) * times;
    for (int i = 0; i < moves_of(s); i++) {
        s->moves[i].end += seconds;
        s->moves[i].copied += seconds;
        s->moves[i].arrives += seconds;
    }
    s->now += seconds;
    s->part_begin = s->now;
    s->reduced += seconds;
    s->grads_down += seconds;
    s->grads_done += seconds;
}

/* The second micro-batch stands for all between the first and the last. */
static void lay_micros(struct schedule *s)
{
    for (int micro = 0; micro < s->micros; micro++) {
        struct schedule before = *s;
        double times = s->plan->by_layer
                               ? 0
                               : (double)(s->plan->accumulation - s->micros);
        lay_micro(s, micro, micro == s->micros - 1);
        if (micro == 1 && times > 0)
            repeat(s, &before, times);
    }
}

/* --- the update ----------------------------------------------------------- */

static void update_here(struct schedule *s)
{
    const struct job_plan *plan = s->plan;
    double spilled = (double)job_plan_paged(plan).host, begin = s->now;
    compute(s, 0, cost_update(&s->costs, cost_held(plan)) + s->machine->launch);
    if (spilled > 0) {
        await(s, EXPOSED_COPIES, copy_up(s, begin, spilled));
        await(s, EXPOSED_COPIES,
              use(s, PLAN_DOWN, begin, spilled / s->machine->link));
    }
    double made = s->now;
    for (int u = 0; u <= head_of(s); u++)
        s->units[u].made =
                collect(s, ZERO_REPLICATE, made, s->units[u].cost.rejoin);
}

/* Copies of states alternate with parameters going up for forward, so they are
 * scheduled with them. */
static void begin_update_on_host(struct schedule *s)
{
    s->update_begin = s->now;
    s->next_update = 0;
    if (!(device_part(s->plan) > 0) || !s->plan->zero.params_on_host)
        lay_updates(s, head_of(s));
}

static void lay_update(struct schedule *s)
{
    const struct zero_plan *zero = &s->plan->zero;
    await(s, EXPOSED_GATHERS, s->reduced);
    await(s, EXPOSED_COPIES, s->grads_down);
    await(s, EXPOSED_UPDATE, s->grads_done);
    compute(s, 0, cost_norm(&s->costs));
    end_part(s, PLAN_REDUCE);
    if (!zero->states_on_host)
        update_here(s);
    else
        begin_update_on_host(s);
    end_part(s, PLAN_UPDATE);
    for (int u = 0; u <= head_of(s); u++)
        s->units[u].spread = 0;
    s->next_spread = 0;
    if (gathers_updated(s) && !zero->states_on_host &&
        !zero->request.options.overlap_comm)
        spread_until(s, head_of(s) + 1);
    end_part(s, PLAN_GATHER);
}

static void lay_step(struct schedule *s)
{
    s->told = (struct plan_prediction){0};
    s->begin = s->part_begin = s->now;
    s->next_gather = 0;
    memset(s->moves, 0, (size_t)moves_of(s) * sizeof *s->moves);
    gathers_begin(s, -1, moves_of(s), s->now);
    end_part(s, PLAN_FORWARD);
    lay_micros(s);
    lay_update(s);
}

static struct plan_prediction conclude(const struct schedule *s)
{
    const struct job_plan *plan = s->plan;
    double tokens = (double)plan->per_device * plan->accumulation *
                    mesh_samples(plan->mesh, 0).size * plan->shape.T;
    struct plan_prediction out = s->told;
    out.step_seconds = s->now - s->begin;
    out.tokens_per_second = tokens / out.step_seconds;
    for (int r = 0; r < PLAN_RESOURCES; r++)
        if (out.busy[r] > out.busy[out.binds])
            out.binds = (enum plan_resource)r;
    return out;
}

struct plan_prediction plan_predict(
        const struct job_plan *plan, const struct plan_machine *machine)
{
    int units = plan->table.unit_count;
    struct checkpointing mode = plan->shape.checkpointing;
    const struct unit_events listed = model_unit_events(
            plan_slice_config(plan), plan_slice_table(plan), mode, MODEL_TRAIN);
    int events = listed.count;
    double wire = machine->shares_cores ? machine->wire_cores : 0;
    double link = machine->shares_cores ? machine->link_cores : 0;
    int at_once = plan->by_layer ? plan->accumulation : 1;
    int micros = plan->accumulation / at_once;
    if (micros > MICROS_MAX)
        micros = MICROS_MAX;
    struct schedule s = {
            .plan = plan,
            .machine = machine,
            .costs = costs_of(plan, machine),
            .units = zd_array((size_t)units, sizeof *s.units),
            .events = listed.list,
            .event_count = events,
            .micros = micros,
            .moves = zd_array((size_t)(events * micros), sizeof *s.moves),
            .cores =
                    {[PLAN_WIRE] = wire,
                     [PLAN_REPLICAS] = wire,
                     [PLAN_PLACES] = wire,
                     [PLAN_DOWN] = link,
                     [PLAN_UP] = link,
                     [PLAN_HOST] =
                             machine->shares_cores && !plan->has_update_cores},
            .launch = plan->backend == DEVICE_CUDA ? at_once * machine->launch
                                                   : 0,
            .slowest = 1 + machine->jitter * log2(plan->world),
            /* nothing to update before the first step */
            .next_update = units + 1,
            .next_spread = units};
    for (int unit = 0; unit < units; unit++) {
        s.units[unit].cost = cost_unit(&s.costs, unit);
        cost_multiply(&s.units[unit].cost, at_once);
    }
    lay_step(&s);
    lay_step(&s);
    free(s.units);
    free(s.events);
    free(s.moves);
    return conclude(&s);
}
