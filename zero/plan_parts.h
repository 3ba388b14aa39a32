/* plan_parts.h - the parts of zero_plan_build, in the order in which it calls
 * them. Private to zero. */
#ifndef ZD_ZERO_PLAN_PARTS_H
#define ZD_ZERO_PLAN_PARTS_H

#include "zero/plan.h"

/* Elements that are gathered when `unit` is acquired at stage 3: its segments
 * but the persistent one. 0: nothing to gather. */
size_t plan_gather_count(const struct zero_plan *plan, int unit);
/* Padded elements of the trainable segments of `unit`. */
size_t plan_grad_count(const struct zero_plan *plan, int unit);

/* plan->grad_*, plan->work_* (buckets.c). */
enum zd_status plan_buckets(struct zero_plan *plan);

/* plan->slots, plan->*_moves (program.c), for one micro-batch's and one
 * evaluation's unit events. */
struct plan_events {
    struct unit_event *train, *eval;
    int train_count, eval_count;
};
enum zd_status plan_program(
        struct zero_plan *plan, const struct plan_events *events);

#endif
