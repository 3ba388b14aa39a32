/* replan.c - change the number of micro-batches of a running job, where a plan
 * with that number asks for the memory that the job has. */
#include "base/must.h"
#include "zero/plan_parts.h"

#include <string.h>

static bool same_spans(const struct arena_plan *a, const struct arena_plan *b)
{
    if (a->span_count != b->span_count)
        return false;
    for (int i = 0; i < a->span_count; i++)
        if (strcmp(a->spans[i].name, b->spans[i].name) != 0 ||
            a->spans[i].bytes != b->spans[i].bytes)
            return false;
    return true;
}

/* How many settles where they are. */
static bool same_slots(const struct zero_plan *a, const struct zero_plan *b)
{
    return a->outer_slots == b->outer_slots && a->layer_slots == b->layer_slots;
}

/* The host sums gradients, in memory reserved for that. */
static bool adds_on_host(const struct zero_plan *plan)
{
    return plan->grads_pass && plan->request.accumulation > 1;
}

static enum zd_status check_same(
        const struct zero_plan *plan, const struct zero_plan *other)
{
    ZD_SCOPED(arena_plan_fini) struct arena_plan a = {0};
    ZD_SCOPED(arena_plan_fini) struct arena_plan b = {0};
    if (plan->grad_dtype != other->grad_dtype)
        return ZD_FAIL(
                ZD_ERR_UNFIT, "E1008",
                "the gradients of one micro-batch are kept in %s, the sum of "
                "several in fp32: that is other memory",
                dtype_name(plan->request.dtype));
    ZD_TRY(zero_plan_spans(plan, &a));
    ZD_TRY(zero_plan_spans(other, &b));
    if (!same_spans(&a, &b) || !same_slots(plan, other) ||
        adds_on_host(plan) != adds_on_host(other))
        return ZD_FAIL(
                ZD_ERR_UNFIT, "E1008",
                "a step of %d micro-batches needs other buffers than one of "
                "%d",
                other->request.accumulation, plan->request.accumulation);
    return ZD_OK;
}

enum zd_status zero_plan_reaccumulate(struct zero_plan *plan, int accumulation)
{
    ZD_SCOPED(zero_plan_fini) struct zero_plan other = {.segments = NULL};
    struct zero_request request = plan->request;
    if (request.by_layer)
        request.by_layer = accumulation > 1 ? accumulation : 0;
    else
        request.accumulation = accumulation;
    ZD_TRY(zero_plan_build(&request, &other));
    ZD_TRY(check_same(plan, &other));
    struct zero_move *moves = plan->train_moves;
    plan->train_moves = other.train_moves;
    plan->train_move_count = other.train_move_count;
    other.train_moves = moves;
    plan->wire = other.wire;
    plan->request.accumulation = request.accumulation;
    if (plan->request.by_layer)
        plan->request.by_layer = accumulation;
    return ZD_OK;
}
