/* program.h - the use of units over a step, as slots.c and program.c see it.
 * Private to zero. */
#ifndef ZD_ZERO_PROGRAM_H
#define ZD_ZERO_PROGRAM_H

#include "zero/plan_parts.h"

#include <limits.h>

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

static inline int move_count(const struct program *program)
{
    return program->event_count * program->repeats;
}

static inline struct unit_event event_at(const struct program *program, int i)
{
    return program->events[i % program->event_count];
}

static inline bool is_layer(const struct zero_plan *plan, int unit)
{
    return unit > 0 && unit < plan->request.table->unit_count - 1;
}

/* What the units of one class need at the same time (slots.c). */
struct needs {
    int held;                  /* layers held by the model at once */
    bool outers_held;          /* embedding and head held at once */
    size_t outer, head, layer; /* largest gather of each: elements */
    size_t outer_bytes, head_bytes, layer_bytes;
};
/* Largest gathers; then, pass by pass, what is held at a time. */
void needs_sizes(const struct zero_plan *plan, struct needs *needs);
void needs_measure(
        const struct zero_plan *plan, const struct unit_event *events,
        int event_count, struct needs *needs);
/* Settle plan->slots, layer_slots and outer_slots. */
void slots_choose(struct zero_plan *plan, const struct needs *needs);

static inline int max_int(int a, int b)
{
    return a > b ? a : b;
}

#endif
