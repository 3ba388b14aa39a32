/* plan_ranks.c - the parts that a plan must measure to know the maximum.
 *
 *   tensors |  0      |       1              |   2     |
 *   parts   |0   |1   |2   |3   |4   |5   |6   |7   |8   |
 *
 * Part 4 has as much of the same tensor as part 3, so it takes what that takes:
 * what is counted of an extent does not ask where in its tensor it begins.
 * Those that hold an end of a tensor are looked at, and the one after each.
 */
#include "base/must.h"
#include "zero/plan_parts.h"

#include <stdlib.h>

static void mark(bool *apart, size_t part, int parts)
{
    apart[part] = true;
    if (part + 1 < (size_t)parts)
        apart[part + 1] = true;
}

static void mark_tensors(const struct zero_plan *plan, bool *apart)
{
    const struct param_table *table = plan->request.table;
    int parts = mesh_parts(plan->request.mesh);
    for (int id = 0; id < table->count; id++) {
        const struct zero_place *place = &plan->places[id];
        size_t each = plan->segments[place->segment].part_count;
        size_t count = table->params[id].count;
        if (!plan->segments[place->segment].trainable || !count)
            continue;
        mark(apart, place->offset / each, parts);
        mark(apart, (place->offset + count - 1) / each, parts);
    }
}

bool *plan_parts_apart(const struct zero_plan *plan, int *parts_out)
{
    int parts = plan->states_cut ? mesh_parts(plan->request.mesh) : 1;
    bool *apart = zd_array((size_t)parts, sizeof *apart);
    if (plan->states_cut)
        mark_tensors(plan, apart);
    apart[0] = true;
    *parts_out = parts;
    return apart;
}

enum zd_status plan_parts_visit(
        const struct zero_plan *plan, plan_part_fn *visit, void *context)
{
    enum zd_status status = ZD_OK;
    int parts;
    bool *apart = plan_parts_apart(plan, &parts);
    for (int part = 0; status == ZD_OK && part < parts; part++)
        if (apart[part])
            status = visit(plan, part, context);
    free(apart);
    return status;
}
