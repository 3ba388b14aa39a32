/* plan_grads.c - in which order gradients are complete, and where each unit's
 * work buffer lies.
 *
 *   backward     head   L   L-1   L-2  ..  1   embedding
 *   buffers       A     B    A     B           with overlap_comm: while one
 *                                              fills, the one before is reduced
 *
 * A tied head begins the embedding's gradient at the head and the embedding
 * ends it, so that buffer is in use throughout. Where gradients are kept whole
 * and in fp32 the model writes them in place and there are no work buffers.
 *
 * If gradients pass to the host, the reduced shards of a unit have their own
 * buffer: they are reduced into it while the next unit fills and copied down
 * while the one after that does; replicas add one step in between. If nothing
 * is sharded the work buffers themselves are sent. */
#include "base/must.h"
#include "zero/plan_parts.h"

#include <stdlib.h>

/* --- how much of a unit passes through fp32 ------------------------------- */

bool plan_grad_is_direct(const struct zero_plan *plan, int id)
{
    const struct param *param = &plan->request.table->params[id];
    return plan->grads_direct && param->trainable &&
           param_is_product(param, plan->request.mlp_pieces);
}

bool plan_unit_is_direct(const struct zero_plan *plan, int unit)
{
    const int *first = plan->request.table->unit_first;
    for (int id = first[unit]; id < first[unit + 1]; id++)
        if (plan_grad_is_direct(plan, id))
            return true;
    return false;
}

size_t plan_work_sums(const struct zero_plan *plan, int unit)
{
    if (!plan->grads_cut && !plan->grads_pass)
        return 0;
    return plan_unit_of(plan, unit).grads * dtype_bytes(plan->grad_dtype) /
           sizeof(float);
}

size_t plan_sum_count(const struct zero_plan *plan, int id)
{
    size_t count = plan->request.table->params[id].count;
    return (count + ZERO_ALIGN - 1) / ZERO_ALIGN * ZERO_ALIGN;
}

size_t plan_work_count(const struct zero_plan *plan, int unit)
{
    const struct param_table *table = plan->request.table;
    if (!plan_unit_is_direct(plan, unit))
        return plan_unit_of(plan, unit).grads;
    size_t count = plan_work_sums(plan, unit);
    for (int id = table->unit_first[unit]; id < table->unit_first[unit + 1];
         id++)
        if (table->params[id].trainable && !plan_grad_is_direct(plan, id))
            count += plan_sum_count(plan, id);
    return count;
}

size_t zero_rounded_count(const struct zero_plan *plan, int unit)
{
    if (plan->grad_dtype == DTYPE_FP32)
        return 0;
    if (!plan_unit_is_direct(plan, unit))
        return plan_unit_of(plan, unit).grads;
    return plan_work_count(plan, unit) - plan_work_sums(plan, unit);
}

/* A unit's buffer is in use from position `from` to position `to` of the order,
 * both included. */
struct lifetime {
    int unit, from, to;
    size_t count, offset;
};

static void order_units(struct zero_plan *plan)
{
    int last = plan->request.table->unit_count - 1;
    for (int i = 0; i <= last; i++) {
        int unit = last - i;
        if (plan_unit_of(plan, unit).grads > 0)
            plan->grad_units[plan->grad_unit_count++] = unit;
    }
}

int plan_reductions_under_way(const struct zero_plan *plan)
{
    return plan->request.options.overlap_comm ? 1 : 0;
}

static struct lifetime work_lifetime(const struct zero_plan *plan, int position)
{
    int unit = plan->grad_units[position];
    bool early = unit == 0 && plan->request.config->tied;
    struct lifetime life = {
            .unit = unit,
            .from = early ? 0 : position,
            .to = position,
            .count = plan_work_count(plan, unit)};
    if (plan->grads_cut || plan->grads_pass)
        life.to = position + plan_reductions_under_way(plan);
    return life;
}

/* From its reduction to the reduction before which its copy must be done. */
static struct lifetime passing_lifetime(
        const struct zero_plan *plan, int position)
{
    int unit = plan->grad_units[position];
    int sums = plan->replicas > 1 ? 2 : 1; /* in sequence */
    return (struct lifetime){
            .unit = unit,
            .from = position,
            .to = position + sums * plan_reductions_under_way(plan),
            .count = plan_unit_of(plan, unit).grads / (size_t)plan->shards};
}

static int larger_first(const void *a, const void *b)
{
    const struct lifetime *x = a, *y = b;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return (x->unit > y->unit) - (x->unit < y->unit);
}

/* The lowest offset where lives[i] overlaps none of the earlier ones. */
static size_t place(const struct lifetime *lives, int i)
{
    size_t offset = 0;
    for (int k = 0; k < i; k++) {
        const struct lifetime *other = &lives[k];
        bool together =
                lives[i].from <= other->to && other->from <= lives[i].to;
        if (together && offset < other->offset + other->count &&
            other->offset < offset + lives[i].count) {
            offset = other->offset + other->count;
            k = -1; /* compare with all of them again */
        }
    }
    return offset;
}

/* Assign every unit an offset; *count_out: elements in total. */
static void place_buffers(
        const struct zero_plan *plan,
        struct lifetime (*lifetime_of)(const struct zero_plan *, int),
        size_t *offsets, size_t *count_out)
{
    int count = plan->grad_unit_count;
    struct lifetime *lives = zd_array((size_t)count, sizeof *lives);
    for (int i = 0; i < count; i++)
        lives[i] = lifetime_of(plan, i);
    qsort(lives, (size_t)count, sizeof *lives, larger_first);
    for (int i = 0; i < count; i++) {
        lives[i].offset = place(lives, i);
        offsets[lives[i].unit] = lives[i].offset;
        if (*count_out < lives[i].offset + lives[i].count)
            *count_out = lives[i].offset + lives[i].count;
    }
    free(lives);
}

void plan_grads(struct zero_plan *plan)
{
    size_t units = (size_t)plan->request.table->unit_count;
    plan->grad_units = zd_array(units, sizeof *plan->grad_units);
    plan->work_offsets = zd_array(units, sizeof *plan->work_offsets);
    plan->passing_offsets = zd_array(units, sizeof *plan->passing_offsets);
    order_units(plan);
    if (plan->grads_cut || plan->grads_pass || plan->grad_dtype != DTYPE_FP32)
        place_buffers(
                plan, work_lifetime, plan->work_offsets, &plan->work_count);
    if (plan->grads_pass && plan->shards > 1)
        place_buffers(
                plan, passing_lifetime, plan->passing_offsets,
                &plan->passing_count);
}
