/* program.c - stage 3: which unit is gathered when, and into which slot.
 *
 * The order in which a model uses its units is known (model_unit_events), so
 * the whole step is settled before it runs, the same on every rank:
 *
 *   layer slots  L1  L2  L3 ..          two, or as many as prefetch and reuse
 * ask outer slots  embedding | head      one that both use in turn, or one each
 *                                      when both are held at a time (a tied
 * head)
 *
 *   forward   acquire 1   acquire 2   acquire 3
 *             gather 2 >> gather 3 >> gather 4      while computing
 *
 * A unit that is still in its slot is not gathered again. When a slot is needed
 * the unit whose next use is furthest away leaves (Belady 1966, which is
 * optimal when the future is known); among those never used again the one
 * released first, so that its slot can be filled early. A gather begins as soon
 * as its slot is free and no more is under way than prefetch allows. */
#include "zero/plan_parts.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>

enum { NEVER = INT_MAX };

enum slot_class { CLASS_NONE, CLASS_OUTER, CLASS_HEAD, CLASS_LAYER, CLASSES };

struct unit_state {
    size_t count; /* elements to gather */
    enum slot_class class;
    int next_use; /* move index of its next acquire */
    int slot;     /* where it is resident; -1: nowhere */
    int released; /* move index of its last release; -1 */
    bool held;
};

struct program {
    const struct zero_plan *plan;
    const struct unit_event *events;
    int event_count, repeats;
    struct unit_state *units;
    int *next_use; /* by move: next acquire of the same unit */
    int *content;  /* by slot: unit in it; -1 */
};

static int move_count(const struct program *program)
{
    return program->event_count * program->repeats;
}

static struct unit_event event_at(const struct program *program, int i)
{
    return program->events[i % program->event_count];
}

static bool is_layer(const struct zero_plan *plan, int unit)
{
    return unit > 0 && unit < plan->request.table->unit_count - 1;
}

static void program_fini(struct program *program)
{
    free(program->units);
    free(program->next_use);
    free(program->content);
}

static enum zd_status program_init(
        struct program *program, const struct zero_plan *plan,
        const struct unit_event *events, int event_count, int repeats)
{
    int unit_count = plan->request.table->unit_count;
    int64_t moves = (int64_t)event_count * repeats;
    *program = (struct program){
            .plan = plan,
            .events = events,
            .event_count = event_count,
            .repeats = repeats};
    if (moves > INT_MAX / 2)
        return ZD_FAIL(
                ZD_ERR_CONFIG, "E0606",
                "%d micro-batches a step are more than stage 3 can plan",
                repeats);
    program->units = calloc((size_t)unit_count, sizeof *program->units);
    program->next_use = calloc((size_t)moves + 1, sizeof *program->next_use);
    program->content = calloc((size_t)unit_count + 2, sizeof *program->content);
    if (!program->units || !program->next_use || !program->content) {
        program_fini(program);
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602", "out of memory planning stage 3");
    }
    for (int u = 0; u < unit_count; u++) {
        program->units[u].count = plan_gather_count(plan, u);
        program->units[u].slot = -1;
        program->units[u].released = -1;
        program->units[u].next_use = NEVER;
    }
    for (int i = (int)moves - 1; i >= 0; i--) {
        struct unit_event event = event_at(program, i);
        if (!event.acquire)
            continue;
        program->next_use[i] = program->units[event.unit].next_use;
        program->units[event.unit].next_use = i;
    }
    return ZD_OK;
}

/* --- how many slots ------------------------------------------------------- */

/* What the units of one class need at a time. */
struct needs {
    int held;                  /* layers held by the model at once */
    int kept;                  /* layers held, or kept for a use that is near */
    bool outers_held;          /* embedding and head held at once */
    bool outers_kept;          /* .. or one kept while the other is held */
    size_t outer, head, layer; /* largest gather of each */
};

static int max_int(int a, int b)
{
    return a > b ? a : b;
}

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Walk the events with unlimited memory. A released unit is kept when its next
 * use is at most max_reuse_distance elements of other units away. */
static enum zd_status measure_needs(
        struct program *program, struct needs *needs)
{
    const struct zero_plan *plan = program->plan;
    int unit_count = plan->request.table->unit_count;
    size_t reach = (size_t)plan->request.options.max_reuse_distance;
    int total = move_count(program);
    size_t *used = calloc((size_t)total + 1, sizeof *used);
    bool *keeps = calloc((size_t)unit_count, sizeof *keeps);
    if (!used || !keeps) {
        free(used);
        free(keeps);
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602", "out of memory planning stage 3");
    }
    for (int i = 0; i < total; i++) { /* elements acquired before move i */
        struct unit_event event = event_at(program, i);
        used[i + 1] = used[i] +
                      (event.acquire ? program->units[event.unit].count : 0);
    }
    int held = 0, kept = 0;
    bool outer_in[2] = {false, false}, outer_held[2] = {false, false};
    for (int i = 0; i < total; i++) {
        struct unit_event event = event_at(program, i);
        struct unit_state *unit = &program->units[event.unit];
        bool layer = is_layer(plan, event.unit);
        int outer = event.unit == 0 ? 0 : 1;
        if (!unit->count)
            continue;
        if (event.acquire) {
            unit->next_use = program->next_use[i];
            held += layer;
            kept += layer && !keeps[event.unit];
            keeps[event.unit] = true;
            if (!layer)
                outer_in[outer] = outer_held[outer] = true;
        } else {
            bool near = reach > 0 && unit->next_use != NEVER &&
                        used[unit->next_use] - used[i] <= reach;
            held -= layer;
            kept -= layer && !near;
            keeps[event.unit] = near;
            if (!layer) {
                outer_held[outer] = false;
                outer_in[outer] = near;
            }
        }
        needs->held = max_int(needs->held, held);
        needs->kept = max_int(needs->kept, kept);
        needs->outers_held |= outer_held[0] && outer_held[1];
        needs->outers_kept |= outer_in[0] && outer_in[1];
    }
    free(used);
    free(keeps);
    return ZD_OK;
}

static void measure_sizes(const struct zero_plan *plan, struct needs *needs)
{
    int last = plan->request.table->unit_count - 1;
    needs->outer = plan_gather_count(plan, 0);
    needs->head = plan_gather_count(plan, last);
    for (int u = 1; u < last; u++)
        needs->layer = max_size(needs->layer, plan_gather_count(plan, u));
}

static int layers_to_gather(const struct zero_plan *plan)
{
    int layers = 0;
    for (int u = 1; u < plan->request.table->unit_count - 1; u++)
        layers += plan_gather_count(plan, u) > 0;
    return layers;
}

/* Layers gathered ahead of the one in use. */
static int layers_ahead(const struct zero_plan *plan, const struct needs *needs)
{
    const struct zero_options *options = &plan->request.options;
    if (!options->overlap_comm || !needs->layer)
        return 0;
    if (!options->prefetch_bucket_size)
        return 1;
    size_t ahead = (size_t)options->prefetch_bucket_size / needs->layer;
    return ahead < INT_MAX / 2 ? (int)ahead : INT_MAX / 2;
}

static size_t outer_elements(const struct needs *needs, bool separate)
{
    return separate ? needs->outer + needs->head
                    : max_size(needs->outer, needs->head);
}

/* Settle layer_slots and whether the outer units have a slot each, within
 * max_live_parameters: first reuse and prefetch give way, then it is an error.
 */
static enum zd_status choose_slots(
        struct zero_plan *plan, const struct needs *needs, bool *separate_out)
{
    int64_t limit = plan->request.options.max_live_parameters;
    size_t live = limit > 0 ? (size_t)limit : SIZE_MAX;
    bool separate = needs->outers_held || needs->outers_kept;
    int layers = needs->kept + layers_ahead(plan, needs);
    int all = layers_to_gather(plan);
    if (layers > all)
        layers = all;

    size_t smallest = outer_elements(needs, needs->outers_held) +
                      (size_t)needs->held * needs->layer;
    if (smallest > live) {
        ZD_FAIL(ZD_ERR_CONFIG, "E0605",
                "zero.max_live_parameters = %lld is too small: the model holds "
                "%zu gathered parameters at a time",
                (long long)limit, smallest);
        zd_fail_help(
                "zero.max_live_parameters = %zu is the smallest that works",
                smallest);
        return ZD_ERR_CONFIG;
    }
    if (outer_elements(needs, separate) + (size_t)needs->held * needs->layer >
        live)
        separate = needs->outers_held;
    while (layers > needs->held &&
           outer_elements(needs, separate) + (size_t)layers * needs->layer >
                   live)
        layers--;
    plan->layer_slots = layers;
    *separate_out = separate;
    return ZD_OK;
}

static enum zd_status lay_out_slots(
        struct zero_plan *plan, const struct needs *needs, bool separate)
{
    size_t outers[2] = {outer_elements(needs, false), 0};
    if (separate) {
        outers[0] = needs->outer;
        outers[1] = needs->head;
    }
    plan->outer_slots = separate ? 2 : outers[0] > 0;
    plan->slots =
            calloc((size_t)(plan->outer_slots + plan->layer_slots) + 1,
                   sizeof *plan->slots);
    if (!plan->slots)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602", "out of memory planning stage 3");
    size_t offset = 0;
    for (int s = 0; s < plan->outer_slots + plan->layer_slots; s++) {
        size_t count = s < plan->outer_slots ? outers[s] : needs->layer;
        plan->slots[s] = (struct zero_slot){.offset = offset, .count = count};
        offset += count;
    }
    return ZD_OK;
}

/* --- the moves ------------------------------------------------------------ */

static void assign_classes(struct program *program)
{
    const struct zero_plan *plan = program->plan;
    int last = plan->request.table->unit_count - 1;
    for (int u = 0; u <= last; u++) {
        struct unit_state *unit = &program->units[u];
        if (!unit->count)
            unit->class = CLASS_NONE;
        else if (is_layer(plan, u))
            unit->class = CLASS_LAYER;
        else
            unit->class = u == last && plan->outer_slots == 2 ? CLASS_HEAD
                                                              : CLASS_OUTER;
    }
    for (int s = 0; s < plan->outer_slots + plan->layer_slots; s++)
        program->content[s] = -1;
}

/* The slot to gather a unit of this class into; -1 when all are held. */
static int pick_slot(const struct program *program, enum slot_class class)
{
    const struct zero_plan *plan = program->plan;
    int first = class == CLASS_LAYER ? plan->outer_slots : class == CLASS_HEAD;
    int end = class == CLASS_LAYER ? plan->outer_slots + plan->layer_slots
                                   : first + 1;
    int best = -1;
    for (int s = first; s < end; s++) {
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
    if (unit->class == CLASS_NONE || unit->slot >= 0)
        return ZD_OK;

    int slot = pick_slot(program, unit->class);
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

/* The gathers in order, with a window of those under way ahead of their use. */
struct window {
    const struct zero_options *options;
    const struct zero_move *moves;
    const struct unit_state *units;
    int *gathers; /* move indices of all gathers so far */
    int count;
    int oldest;      /* first gather within the window */
    size_t elements; /* of the gathers in the window */
};

/* When the gather of move i may begin. `last` is when the one before it did:
 * gathers begin in the order of their use. */
static int start_of(struct window *window, int i, int free_at, int last)
{
    size_t count = window->units[window->moves[i].unit].count;
    size_t limit = (size_t)window->options->prefetch_bucket_size;
    window->gathers[window->count++] = i;
    window->elements += count;
    if (!limit) /* the next unit, whatever its size: the one before is in use */
        limit = count;
    while (window->elements > limit && window->oldest < window->count) {
        int first = window->gathers[window->oldest++];
        window->elements -= window->units[window->moves[first].unit].count;
    }
    if (!window->options->overlap_comm || window->oldest == window->count)
        return i;
    int start = max_int(free_at, last);
    if (window->oldest > 0)
        start = max_int(start, window->gathers[window->oldest - 1]);
    return start;
}

static enum zd_status make_moves(
        struct program *program, struct zero_move **moves_out, int *count_out)
{
    int total = move_count(program);
    enum zd_status status = ZD_OK;
    struct zero_move *moves = calloc((size_t)total + 1, sizeof *moves);
    int *gathers = calloc((size_t)total + 1, sizeof *gathers);
    struct window window = {
            .options = &program->plan->request.options,
            .moves = moves,
            .units = program->units,
            .gathers = gathers};
    if (!moves || !gathers)
        status = ZD_FAIL(
                ZD_ERR_MEMORY, "E0602", "out of memory planning stage 3");
    int last = -1;
    for (int i = 0; i < total && status == ZD_OK; i++) {
        struct unit_event event = event_at(program, i);
        struct zero_move *move = &moves[i];
        int free_at = -1;
        *move = (struct zero_move){
                .unit = event.unit, .acquire = event.acquire, .slot = -1};
        if (event.acquire) {
            status = acquire_unit(program, i, move, &free_at);
        } else {
            program->units[event.unit].held = false;
            program->units[event.unit].released = i;
        }
        if (move->gather)
            last = move->start = start_of(&window, i, free_at, last);
    }
    free(gathers);
    if (status != ZD_OK) {
        free(moves);
        return status;
    }
    *moves_out = moves;
    *count_out = total;
    return ZD_OK;
}

static enum zd_status build_moves(
        struct zero_plan *plan, const struct unit_event *events,
        int event_count, int repeats, struct zero_move **moves_out,
        int *count_out)
{
    struct program program;
    ZD_TRY(program_init(&program, plan, events, event_count, repeats));
    assign_classes(&program);
    enum zd_status status = make_moves(&program, moves_out, count_out);
    program_fini(&program);
    return status;
}

static enum zd_status needs_of(
        const struct zero_plan *plan, const struct unit_event *events,
        int event_count, int repeats, struct needs *needs)
{
    struct program program;
    ZD_TRY(program_init(&program, plan, events, event_count, repeats));
    enum zd_status status = measure_needs(&program, needs);
    program_fini(&program);
    return status;
}

enum zd_status plan_program(
        struct zero_plan *plan, const struct plan_events *events)
{
    struct needs needs = {0};
    bool separate = false;
    int micros = plan->request.accumulation;
    measure_sizes(plan, &needs);
    if (events->train_count)
        ZD_TRY(needs_of(
                plan, events->train, events->train_count, micros, &needs));
    ZD_TRY(needs_of(plan, events->eval, events->eval_count, 1, &needs));
    ZD_TRY(choose_slots(plan, &needs, &separate));
    ZD_TRY(lay_out_slots(plan, &needs, separate));
    if (events->train_count)
        ZD_TRY(build_moves(
                plan, events->train, events->train_count, micros,
                &plan->train_moves, &plan->train_move_count));
    return build_moves(
            plan, events->eval, events->eval_count, 1, &plan->eval_moves,
            &plan->eval_move_count);
}
