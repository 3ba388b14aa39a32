/* buckets.c - in which order gradients are complete, which of them leave in one
 * bucket, and where each unit's work buffer lies.
 *
 *   backward     head   L   L-1   L-2  ..  1   embedding
 *   buckets      |---- 0 ----|---- 1 ----|---- 2 ----|
 *   buffers      used again by bucket 2 what bucket 0 used (with overlap_comm:
 *                while 1 fills, 0 is under way); by bucket 1 without
 *
 * A tied head begins the embedding's gradient at the head and the embedding
 * ends it, so that buffer is in use throughout. Where gradients are kept whole
 * and in fp32 the model writes them in place and there are no work buffers. */
#include "zero/plan_parts.h"

#include <stdlib.h>

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
        if (plan_grad_count(plan, unit) > 0)
            plan->grad_units[plan->grad_unit_count++] = unit;
    }
}

static void fill_buckets(struct zero_plan *plan)
{
    size_t limit = (size_t)plan->request.options.reduce_bucket_size;
    size_t waiting = 0;
    int bucket = 0;
    for (int i = 0; i < plan->grad_unit_count; i++) {
        plan->grad_buckets[i] = bucket;
        waiting += plan_grad_count(plan, plan->grad_units[i]);
        if (waiting >= limit) {
            bucket++;
            waiting = 0;
        }
    }
}

static int last_of_bucket(const struct zero_plan *plan, int bucket)
{
    int last = plan->grad_unit_count - 1;
    while (last > 0 && plan->grad_buckets[last] > bucket)
        last--;
    return last;
}

static struct lifetime lifetime_of(const struct zero_plan *plan, int position)
{
    int unit = plan->grad_units[position];
    bool early = unit == 0 && plan->request.config->tied;
    struct lifetime life = {
            .unit = unit,
            .from = early ? 0 : position,
            .to = position,
            .count = plan_grad_count(plan, unit)};
    if (plan->grads_cut) {
        int under_way = plan->request.options.overlap_comm ? 1 : 0;
        life.to =
                last_of_bucket(plan, plan->grad_buckets[position] + under_way);
    }
    return life;
}

static int larger_first(const void *a, const void *b)
{
    const struct lifetime *x = a, *y = b;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return (x->unit > y->unit) - (x->unit < y->unit);
}

/* Lowest offset where lives[i] meets none of the lives before it. */
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
            k = -1; /* look at all of them again */
        }
    }
    return offset;
}

static enum zd_status place_work(struct zero_plan *plan)
{
    int count = plan->grad_unit_count;
    struct lifetime *lives = calloc((size_t)count + 1, sizeof *lives);
    if (!lives)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602", "out of memory planning gradients");
    for (int i = 0; i < count; i++)
        lives[i] = lifetime_of(plan, i);
    qsort(lives, (size_t)count, sizeof *lives, larger_first);
    for (int i = 0; i < count; i++) {
        lives[i].offset = place(lives, i);
        plan->work_offsets[lives[i].unit] = lives[i].offset;
        if (plan->work_count < lives[i].offset + lives[i].count)
            plan->work_count = lives[i].offset + lives[i].count;
    }
    free(lives);
    return ZD_OK;
}

enum zd_status plan_buckets(struct zero_plan *plan)
{
    size_t units = (size_t)plan->request.table->unit_count;
    plan->grad_units = calloc(units, sizeof *plan->grad_units);
    plan->grad_buckets = calloc(units, sizeof *plan->grad_buckets);
    plan->work_offsets = calloc(units, sizeof *plan->work_offsets);
    if (!plan->grad_units || !plan->grad_buckets || !plan->work_offsets)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602", "out of memory planning gradients");
    order_units(plan);
    fill_buckets(plan);
    if (plan->grads_cut || plan->grad_dtype != DTYPE_FP32)
        return place_work(plan);
    return ZD_OK;
}
