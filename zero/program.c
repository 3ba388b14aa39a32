/* program.c - stage 3: which unit is gathered when, and into which slot.
 *
 * The order in which a model uses its units is known (model_unit_events), so
 * the whole step is settled before it runs, the same on every rank:
 *
 *   layer slots  L1  L2  ..           two, or as many as prefetch requires
 *   outer slots  embedding | head     one that both use in turn, or one each
 *                                     when a tied head holds both at a time
 *
 *   forward   acquire 1   acquire 2   acquire 3
 *             gather 2 >> gather 3 >> gather 4      while computing
 *
 * A unit that is still in its slot is not gathered again. When a slot is
 * needed, the unit whose next use is furthest away is evicted (Belady 1966,
 * optimal when the future is known); among those never used again the one
 * released first, so that its slot can be filled early. A gather begins as soon
 * as its slot is free and prefetch's limit allows it. */
#include "base/must.h"

#include "base/number/sizes.h"
#include "zero/plan_parts.h"

#include <limits.h>
#include <stdlib.h>

/* --- slots: how many units are kept gathered at a time -------------------- */

/* What a pass holds at the same time. */
struct held {
    int layers;
    bool outers; /* embedding and head */
};

static void note_held(
        const struct zero_plan *plan, const struct unit_events *events,
        struct held *most)
{
    int layers = 0;
    bool outer[2] = {false, false};
    for (int i = 0; i < events->count; i++) {
        struct unit_event event = events->list[i];
        if (!plan_unit_of(plan, event.unit).count)
            continue;
        if (plan_is_layer(plan, event.unit))
            layers += event.acquire ? 1 : -1;
        else
            outer[event.unit > 0] = event.acquire;
        most->layers = layers > most->layers ? layers : most->layers;
        most->outers |= outer[0] && outer[1];
    }
}

/* How many layers of `layer` elements are gathered ahead of the one in use. */
static int layers_ahead(const struct zero_plan *plan, size_t layer)
{
    const struct zero_options *options = &plan->request.options;
    if (!options->overlap_comm || !layer)
        return 0;
    if (!options->prefetch_bucket_size)
        return 1;
    size_t ahead = (size_t)options->prefetch_bucket_size / layer;
    return ahead < INT_MAX / 2 ? (int)ahead : INT_MAX / 2;
}

static struct plan_unit larger(struct plan_unit a, struct plan_unit b)
{
    return (struct plan_unit){
            .count = size_max(a.count, b.count),
            .bytes = size_max(a.bytes, b.bytes)};
}

static void plan_slots(
        struct zero_plan *plan, const struct unit_events *train,
        const struct unit_events *eval)
{
    struct held held = {0};
    struct plan_unit layer = {0};
    int last = plan->request.table->unit_count - 1, layers = 0;
    struct plan_unit first = plan_unit_of(plan, 0);
    struct plan_unit head = plan_unit_of(plan, last);
    for (int u = 1; u < last; u++) {
        layer = larger(layer, plan_unit_of(plan, u));
        layers += plan_unit_of(plan, u).count > 0;
    }
    note_held(plan, train, &held);
    note_held(plan, eval, &held);
    int wanted = held.layers + layers_ahead(plan, layer.count);
    const struct plan_unit outers[] = {
            held.outers ? first : larger(first, head), head};
    plan->layer_slots = wanted < layers ? wanted : layers;
    plan->outer_slots = held.outers ? 2 : outers[0].count > 0;
    int count = plan->outer_slots + plan->layer_slots;
    plan->slots = zd_array((size_t)count, sizeof *plan->slots);
    size_t offset = 0;
    for (int s = 0; s < count; s++) {
        struct plan_unit of = s < plan->outer_slots ? outers[s] : layer;
        plan->slots[s] =
                (struct zero_slot){.offset = offset, .bytes = of.bytes};
        offset += of.bytes;
    }
}

/* --- the program ---------------------------------------------------------- */

enum { NEVER = INT_MAX };

struct unit_state {
    size_t count;   /* elements to gather */
    int first, end; /* range of slots that it may use */
    int next_use;   /* move index of its next acquire */
    int slot;       /* where it is resident; -1: nowhere */
    int released;   /* move index of its last release; -1 */
    bool held;
};

struct program {
    const struct zero_plan *plan;
    const struct unit_events *events;
    int repeats;
    struct unit_state *units;
    int *next_use; /* by move: next acquire of the same unit */
    int *content;  /* by slot: unit in it; -1 */
};

static int move_count(const struct program *program)
{
    return program->events->count * program->repeats;
}

static struct unit_event event_at(const struct program *program, int i)
{
    return program->events->list[i % program->events->count];
}

static void program_fini(struct program *program)
{
    free(program->units);
    free(program->next_use);
    free(program->content);
}

/* Embedding and head may each have a slot. */
static struct unit_state unit_of(const struct zero_plan *plan, int u)
{
    int last = plan->request.table->unit_count - 1, outers = plan->outer_slots;
    bool is_layer = plan_is_layer(plan, u);
    int first = is_layer ? outers : u == last && outers == 2;
    return (struct unit_state){
            .count = plan_unit_of(plan, u).count,
            .first = first,
            .end = is_layer ? outers + plan->layer_slots : first + 1,
            .next_use = NEVER,
            .slot = -1,
            .released = -1};
}

static enum zd_status program_init(
        struct program *program, const struct zero_plan *plan,
        const struct unit_events *events, int repeats)
{
    int unit_count = plan->request.table->unit_count;
    int64_t moves = (int64_t)events->count * repeats;
    *program = (struct program){
            .plan = plan, .events = events, .repeats = repeats};
    if (moves > INT_MAX / 2)
        return ZD_FAIL(
                ZD_ERR_CONFIG, "E0606",
                "%d micro-batches a step are more than stage 3 can plan",
                repeats);
    program->units = zd_array((size_t)unit_count, sizeof *program->units);
    program->next_use = zd_array((size_t)moves, sizeof *program->next_use);
    program->content =
            zd_array((size_t)unit_count + 2, sizeof *program->content);
    for (int u = 0; u < unit_count; u++)
        program->units[u] = unit_of(plan, u);
    for (int s = 0; s < plan->outer_slots + plan->layer_slots; s++)
        program->content[s] = -1;
    for (int i = (int)moves - 1; i >= 0; i--) {
        struct unit_event event = event_at(program, i);
        if (!event.acquire)
            continue;
        program->next_use[i] = program->units[event.unit].next_use;
        program->units[event.unit].next_use = i;
    }
    return ZD_OK;
}

/* --- the moves ------------------------------------------------------------ */

/* The slot to gather a unit into; -1 when all are held. */
static int pick_slot(
        const struct program *program, const struct unit_state *wanted)
{
    int best = -1;
    for (int s = wanted->first; s < wanted->end; s++) {
        if (program->content[s] < 0)
            return s;
        const struct unit_state *unit = &program->units[program->content[s]];
        if (unit->held)
            continue;
        const struct unit_state *rival =
                best < 0 ? NULL : &program->units[program->content[best]];
        if (!rival || unit->next_use > rival->next_use ||
            (unit->next_use == rival->next_use &&
             unit->released < rival->released))
            best = s;
    }
    return best;
}

/* Move i acquires `unit`. For a gather, *free_at is the move after which its
 * slot is free. */
static enum zd_status acquire_unit(
        struct program *program, int i, struct zero_move *move, int *free_at)
{
    struct unit_state *unit = &program->units[move->unit];
    if (unit->held)
        return ZD_FAIL(
                ZD_ERR_BUG, "E0911", "unit %d is acquired twice", move->unit);
    unit->held = true;
    unit->next_use = program->next_use[i];
    move->slot = unit->slot;
    if (!unit->count || unit->slot >= 0)
        return ZD_OK;

    int slot = pick_slot(program, unit);
    if (slot < 0)
        return ZD_FAIL(
                ZD_ERR_BUG, "E0912", "no slot is free for unit %d", move->unit);
    int old = program->content[slot];
    *free_at = old < 0 ? -1 : program->units[old].released;
    if (old >= 0)
        program->units[old].slot = -1;
    program->content[slot] = move->unit;
    unit->slot = slot;
    move->slot = slot;
    move->gather = true;
    return ZD_OK;
}

/* The gathers in order; the window has those under way ahead of their use. */
struct window {
    const struct zero_options *options;
    const struct zero_move *moves;
    const struct unit_state *units;
    int *gathers; /* move indices of all gathers so far */
    int count;
    int oldest;      /* first gather within the window */
    size_t elements; /* of the gathers in the window */
};

/* After which move the gather of move i may begin. `last`: that of the previous
 * gather, since gathers begin in the order of use. */
static int start_of(struct window *window, int i, int free_at, int last)
{
    size_t count = window->units[window->moves[i].unit].count;
    size_t limit = (size_t)window->options->prefetch_bucket_size;
    window->gathers[window->count++] = i;
    window->elements += count;
    if (!limit) /* the next unit, of any size, once the one before is in use */
        limit = count;
    while (window->elements > limit && window->oldest < window->count) {
        int first = window->gathers[window->oldest++];
        window->elements -= window->units[window->moves[first].unit].count;
    }
    if (!window->options->overlap_comm || window->oldest == window->count)
        return i;
    int start = free_at > last ? free_at : last;
    int before = window->oldest > 0 ? window->gathers[window->oldest - 1] : -1;
    return start > before ? start : before;
}

static enum zd_status make_moves(
        struct program *program, struct zero_move **moves_out, int *count_out)
{
    int total = move_count(program);
    ZD_FREED struct zero_move *moves = zd_array((size_t)total, sizeof *moves);
    ZD_FREED int *gathers = zd_array((size_t)total, sizeof *gathers);
    struct window window = {
            .options = &program->plan->request.options,
            .moves = moves,
            .units = program->units,
            .gathers = gathers};
    int last = -1;
    for (int i = 0; i < total; i++) {
        struct unit_event event = event_at(program, i);
        struct zero_move *move = &moves[i];
        int free_at = -1;
        *move = (struct zero_move){
                .unit = event.unit, .acquire = event.acquire, .slot = -1};
        if (event.acquire) {
            ZD_TRY(acquire_unit(program, i, move, &free_at));
        } else {
            program->units[event.unit].held = false;
            program->units[event.unit].released = i;
        }
        if (move->gather)
            last = move->start = start_of(&window, i, free_at, last);
    }
    *moves_out = ZD_TAKE(moves);
    *count_out = total;
    return ZD_OK;
}

static enum zd_status build_moves(
        struct zero_plan *plan, const struct unit_events *events, int repeats,
        struct zero_move **moves_out, int *count_out)
{
    ZD_SCOPED(program_fini) struct program program = {0};
    ZD_TRY(program_init(&program, plan, events, repeats));
    return make_moves(&program, moves_out, count_out);
}

static void events_fini(struct unit_events *events)
{
    free(events->list);
}

enum zd_status plan_program(struct zero_plan *plan)
{
    const struct zero_request *r = &plan->request;
    ZD_SCOPED(events_fini) struct unit_events train = {0};
    ZD_SCOPED(events_fini)
    struct unit_events eval = model_unit_events(
            r->config, r->table, r->checkpointing, MODEL_EVAL);
    if (r->train)
        train = model_unit_events(
                r->config, r->table, r->checkpointing, MODEL_TRAIN);
    plan_slots(plan, &train, &eval);
    if (r->train)
        ZD_TRY(build_moves(
                plan, &train, r->accumulation, &plan->train_moves,
                &plan->train_move_count));
    return build_moves(
            plan, &eval, 1, &plan->eval_moves, &plan->eval_move_count);
}
