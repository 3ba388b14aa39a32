/* plan_offload.c - what is on the host, and the request to a rank's offload
 * engine. Segments have the same numbers there. Of a trainable segment the
 * engine has the part whose states this rank holds, with the extents of
 * state_walk_next; of other segments nothing. */
#include "zero/plan_parts.h"

#include "base/must.h"
#include "base/number/rng.h"

#include <stdlib.h>

/* What depends on the world and the micro-batches too: daemon/job checks what
 * the options alone contradict. */
static enum zd_status check(const struct zero_request *request)
{
    int stage = request->options.stage;
    if (mesh_parts(request->mesh) == 1)
        return ZD_OK;
    if (request->offload.params != OFFLOAD_NONE && stage < 3) {
        ZD_FAIL(ZD_ERR_CONFIG, "E0661",
                "offload.params with several ranks needs zero.stage = 3: at "
                "stage %d every rank keeps all parameters",
                stage);
        return zd_fail_help("zero.stage = 3");
    }
    if (!request->accumulate_on_host || stage > 0)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_CONFIG, "E0662",
            "offload.accumulate = \"host\" with several ranks needs "
            "zero.stage = 1 or more: at stage 0 every rank keeps all "
            "gradients on the device");
    return zd_fail_help("zero.stage = 1, or offload.accumulate = \"device\"");
}

enum zd_status plan_offload(struct zero_plan *plan)
{
    const struct zero_request *request = &plan->request;
    bool many = mesh_parts(request->mesh) > 1;
    if (!request->train)
        return ZD_OK;
    ZD_TRY(check(request));
    plan->states_on_host = request->offload.optimizer != OFFLOAD_NONE;
    if (plan->states_on_host)
        plan->request.spill_bytes = 0; /* there already */
    plan->params_on_host = request->offload.params != OFFLOAD_NONE;
    plan->grads_pass =
            plan->states_on_host && !(many && request->options.stage == 0) &&
            (request->accumulation == 1 || request->accumulate_on_host);
    return ZD_OK;
}

void plan_request_free(struct offload_request *request)
{
    free((void *)(uintptr_t)request->segment_counts);
    free((void *)(uintptr_t)request->extents);
    *request = (struct offload_request){0};
}

static struct offload_extent extent_of(
        const struct zero_plan *plan, const struct state_extent *at,
        size_t first, const int64_t *began)
{
    const struct param *param = &plan->request.table->params[at->extent.id];
    bool in_blocks = at->layout.lane[OPTIM_V] == OPTIM_BLOCKS;
    return (struct offload_extent){
            .segment = at->segment,
            .offset = at->extent.offset - first,
            .begin = at->extent.begin,
            .count = at->extent.count,
            .layout = at->layout,
            .blocks = in_blocks ? &param->blocks : NULL,
            .tensor = began ? rng_stream(param->name) : 0,
            .decays = param->decays,
            .copies = at->extent.count -
                      plan_counted(plan, at->segment, &at->extent),
            .rate = param->learning_rate,
            .began = began ? &began[at->extent.id] : NULL};
}

static void fill_request(
        const struct zero_plan *plan, int part, const int64_t *began,
        size_t *counts, struct offload_extent *extents,
        struct offload_request *request)
{
    struct state_walk walk = state_walk_begin(plan, part);
    size_t begin, end;
    for (int s = 0; s < plan->segment_count; s++)
        if (plan->segments[s].trainable) {
            plan_state_part(plan, s, part, &begin, &end);
            counts[s] = end - begin;
        }
    while (state_walk_next(&walk)) {
        plan_state_part(plan, walk.at.segment, part, &begin, &end);
        extents[request->extent_count++] =
                extent_of(plan, &walk.at, begin, began);
    }
    request->segment_counts = counts;
    request->segment_count = plan->segment_count;
    request->extents = extents;
}

struct offload_request plan_request_of(
        const struct zero_plan *plan, int part, const int64_t *began)
{
    const struct zero_request *request = &plan->request;
    size_t *counts = zd_array((size_t)plan->segment_count, sizeof *counts);
    /* at most one extent of each tensor */
    struct offload_extent *extents =
            zd_array((size_t)request->table->count, sizeof *extents);
    struct offload_request out = {
            .options = &request->offload,
            .optim = &request->optim,
            .dtype = request->dtype,
            .accumulates = plan->grads_pass && request->accumulation > 1,
            .params_on_host = plan->params_on_host,
            .undo_first = plan->undo_first};
    fill_request(plan, part, began, counts, extents, &out);
    return out;
}

static void measure_part(
        const struct zero_plan *plan, int number, void *context)
{
    size_t *largest = context, bytes[OFFLOAD_PARTS] = {0};
    ZD_SCOPED(plan_request_free)
    struct offload_request request = plan_request_of(plan, number, NULL);
    offload_measure(&request, bytes);
    for (int part = 0; part < OFFLOAD_PARTS; part++)
        if (largest[part] < bytes[part])
            largest[part] = bytes[part];
}

/* Undo covers as many segments as every rank has memory for. */
static void find_undo(const struct zero_plan *plan, int number, void *context)
{
    int *largest = context;
    ZD_SCOPED(plan_request_free)
    struct offload_request request = plan_request_of(plan, number, NULL);
    int first = offload_undo_first(&request);
    *largest = first > *largest ? first : *largest;
}

void plan_offload_bytes(struct zero_plan *plan)
{
    int first = 0;
    plan_parts_visit(plan, find_undo, &first);
    plan->undo_first = first;
    plan_parts_visit(plan, measure_part, plan->needs.offload);
}

struct offload_visits zero_visits(const struct zero_plan *plan)
{
    if (!plan->states_on_host)
        return (struct offload_visits){0};
    ZD_SCOPED(plan_request_free)
    struct offload_request request = plan_request_of(plan, 0, NULL);
    return offload_visits_of(&request);
}

double zero_undo_share(const struct zero_plan *plan)
{
    double early = 0, all = 0;
    for (int s = 0; s < plan->segment_count; s++) {
        double count = plan->segments[s].trainable
                               ? (double)plan->segments[s].count
                               : 0;
        all += count;
        early += s >= plan->undo_first ? count : 0;
    }
    return all > 0 ? early / all : 0;
}

uint64_t zero_undo_least(const struct zero_plan *plan)
{
    struct zero_plan one = *plan;
    size_t bytes[OFFLOAD_PARTS] = {0};
    one.undo_first = plan->segment_count - 1;
    while (!plan->segments[one.undo_first].trainable)
        one.undo_first--;
    plan_parts_visit(&one, measure_part, bytes);
    return bytes[OFFLOAD_UNDO];
}
