/* search_parts.h - a search in progress. Internal to search.c, fits.c,
 * smallest.c and most.c. */
#ifndef ZD_TRAIN_PLAN_SEARCH_PARTS_H
#define ZD_TRAIN_PLAN_SEARCH_PARTS_H

#include "train/plan/search.h"

struct plan_searching {
    const struct plan_search *search;
    const struct plan_machine *machine;
    struct job_plan plan; /* begun; the last that was tried */
    struct plan_limits limits;
    struct plan_found *found; /* owned */
    int count, room;
    int given, samples;  /* of a rank: in a micro-batch as the job has it, and
                            in a step */
    int sizes[64], many; /* micro-batches that divide them, ascending */
    bool keeps_batch;    /* the job's own alone */
    bool keeps_job;      /* no candidate changes it */
    int adapters;        /* option that the plan was begun with; -1: there is
                            no such model */
    /* What is done with a candidate where not what fits is sought; NULL. */
    enum zd_status (*try_other)(
            struct plan_searching *state, const struct train_job *job,
            const struct plan_candidate *candidate, struct job_choice *choice);
    struct plan_smallest *smallest; /* try_other's */
};

enum zd_status plan_search_begin(
        const struct plan_search *search, struct plan_searching *out);
void plan_search_end(struct plan_searching *state);
/* What a plan takes that was made of a candidate and a choice; not how long. */
struct plan_found plan_found_of(
        const struct job_plan *plan, const struct plan_candidate *candidate,
        const struct job_choice *choice);
/* Every candidate; what fits is kept. */
enum zd_status plan_search_all(struct plan_searching *state, bool first_only);

/* fits.c: for qsort; the fastest first, of equals the one with the fewest
 * changes. */
int plan_found_order(const void *a, const void *b);

/* smallest.c: ZD_ERR_UNFIT, with the smallest machine that would do. */
enum zd_status plan_fail_smallest(struct plan_searching *state);
/* .. and for the job as it is (`fits`: or as any candidate has it), which does
 * not fit even with `least`. */
enum zd_status plan_fail_least(
        const struct plan_search *search, bool fits, bool keeps_batch,
        const char *least);

#endif
