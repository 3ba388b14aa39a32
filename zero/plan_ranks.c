/* plan_ranks.c - the ranks that a plan must measure to know the maximum.
 *
 *   tensors |  0      |       1              |   2     |
 *   ranks   |0   |1   |2   |3   |4   |5   |6   |7   |8   |
 *
 * Rank 4 has as much of the same tensor as rank 3, so it takes what that takes:
 * what is counted of an extent does not ask where in its tensor it begins.
 * Those that hold an end of a tensor are looked at, and the one after each.
 */
#include "base/must.h"
#include "zero/plan_parts.h"

#include <stdlib.h>

static void mark(bool *apart, size_t rank, int world)
{
    apart[rank] = true;
    if (rank + 1 < (size_t)world)
        apart[rank + 1] = true;
}

static void mark_tensors(const struct zero_plan *plan, bool *apart)
{
    const struct param_table *table = plan->request.table;
    int world = plan->shards;
    for (int id = 0; id < table->count; id++) {
        const struct zero_place *place = &plan->places[id];
        size_t shard = plan->segments[place->segment].shard_count;
        size_t count = table->params[id].count;
        if (!plan->segments[place->segment].trainable || !count)
            continue;
        mark(apart, place->offset / shard, world);
        mark(apart, (place->offset + count - 1) / shard, world);
    }
}

bool *plan_ranks_apart(const struct zero_plan *plan, int *ranks_out)
{
    int ranks = plan->states_cut ? plan->shards : 1;
    bool *apart = zd_array((size_t)ranks, sizeof *apart);
    if (plan->states_cut)
        mark_tensors(plan, apart);
    apart[0] = true;
    *ranks_out = ranks;
    return apart;
}

enum zd_status plan_ranks_visit(
        const struct zero_plan *plan, plan_rank_fn *visit, void *context)
{
    enum zd_status status = ZD_OK;
    int ranks;
    bool *apart = plan_ranks_apart(plan, &ranks);
    for (int rank = 0; status == ZD_OK && rank < ranks; rank++)
        if (apart[rank])
            status = visit(plan, rank, context);
    free(apart);
    return status;
}
