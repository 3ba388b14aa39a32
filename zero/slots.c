/* slots.c - how many units stage 3 keeps gathered at a time. */
#include "base/must.h"
#include "base/number/sizes.h"
#include "zero/plan_parts.h"

#include <limits.h>

/* What the units of one class need at the same time. */
struct needs {
    int held;                  /* layers held by the model at once */
    bool outers_held;          /* embedding and head held at once */
    size_t outer, head, layer; /* largest gather of each: elements */
    size_t outer_bytes, head_bytes, layer_bytes;
};

/* What is held at a time in a pass. */
static void needs_measure(
        const struct zero_plan *plan, const struct unit_event *events,
        int event_count, struct needs *needs)
{
    int held = 0;
    bool outer_held[2] = {false, false};
    for (int i = 0; i < event_count; i++) {
        if (!plan_gather_count(plan, events[i].unit))
            continue;
        if (plan_is_layer(plan, events[i].unit))
            held += events[i].acquire ? 1 : -1;
        else
            outer_held[events[i].unit > 0] = events[i].acquire;
        needs->held = held > needs->held ? held : needs->held;
        needs->outers_held |= outer_held[0] && outer_held[1];
    }
}

static void needs_sizes(const struct zero_plan *plan, struct needs *needs)
{
    int last = plan->request.table->unit_count - 1;
    needs->outer = plan_gather_count(plan, 0);
    needs->head = plan_gather_count(plan, last);
    needs->outer_bytes = plan_gather_bytes(plan, 0);
    needs->head_bytes = plan_gather_bytes(plan, last);
    for (int u = 1; u < last; u++) {
        needs->layer = size_max(needs->layer, plan_gather_count(plan, u));
        needs->layer_bytes =
                size_max(needs->layer_bytes, plan_gather_bytes(plan, u));
    }
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
                    : size_max(needs->outer, needs->head);
}

static void lay_out_slots(
        struct zero_plan *plan, const struct needs *needs, bool separate)
{
    size_t outer = outer_elements(needs, false);
    size_t bytes = size_max(needs->outer_bytes, needs->head_bytes);
    struct zero_slot outers[2] = {{.bytes = bytes, .count = outer}};
    if (separate) {
        outers[0] = (struct zero_slot){
                .bytes = needs->outer_bytes, .count = needs->outer};
        outers[1] = (struct zero_slot){
                .bytes = needs->head_bytes, .count = needs->head};
    }
    plan->outer_slots = separate ? 2 : outer > 0;
    plan->slots = zd_array(
            (size_t)(plan->outer_slots + plan->layer_slots),
            sizeof *plan->slots);
    size_t offset = 0;
    for (int s = 0; s < plan->outer_slots + plan->layer_slots; s++) {
        struct zero_slot layer = {
                .bytes = needs->layer_bytes, .count = needs->layer};
        plan->slots[s] = s < plan->outer_slots ? outers[s] : layer;
        plan->slots[s].offset = offset;
        offset += plan->slots[s].bytes;
    }
}

void plan_slots(struct zero_plan *plan, const struct plan_events *events)
{
    struct needs needs = {0};
    needs_sizes(plan, &needs);
    needs_measure(plan, events->train, events->train_count, &needs);
    needs_measure(plan, events->eval, events->eval_count, &needs);
    int layers = needs.held + layers_ahead(plan, &needs);
    int all = layers_to_gather(plan);
    plan->layer_slots = layers < all ? layers : all;
    lay_out_slots(plan, &needs, needs.outers_held);
}
