/* search_parts.h - a search in progress. Internal to search.c and the files of
 * its queries. */
#ifndef ZD_TRAIN_PLAN_SEARCH_PARTS_H
#define ZD_TRAIN_PLAN_SEARCH_PARTS_H

#include "train/plan/search.h"

enum plan_score {
    PLAN_UNSCORED,
    PLAN_BY_TIME, /* predicted; snapshots are planned too */
    PLAN_BY_COST, /* the cheapest first, without the job as it is; none that
                     holds another's changes */
};
struct plan_searching;
struct plan_query {
    struct plan_space space;
    bool keeps_batch; /* its own micro-batches, unless BATCH_OTHER */
    bool is_job;      /* no candidate: where it cannot be planned, an error */
    enum plan_score score;
    int changes_most; /* options of a candidate; 0: any number */
    int most;         /* ends with so many; 0: all */
    /* What is done with a candidate, whatever the limits. NULL: if it fits it
     * is kept. */
    void (*try)(
            struct plan_searching *state, const struct plan_query *query,
            const struct train_job *job, const struct plan_candidate *candidate,
            struct job_choice *choice);
};

enum { PLAN_SIZES_MAX = 64 };
struct plan_searching {
    const struct plan_search *search;
    const struct plan_machine *machine;
    struct job_plan *plan; /* begun; the last that was tried */
    struct job_plan own;   /* where the caller has none */
    struct plan_limits limits;
    struct plan_found *found; /* owned */
    int count;
    int given, samples; /* of a rank: in a micro-batch, and in a step */
    bool is_job;
    enum zd_status failed; /* planning the job as it is */
    int adapters; /* option that the plan was begun with; -1: no such model */
    struct plan_smallest *smallest; /* of smallest.c */
};

/* `plan`: begun, with limits; it is overwritten. NULL: one is begun, with the
 * limits of the job. */
enum zd_status plan_search_begin(
        const struct plan_search *search, struct job_plan *plan,
        struct plan_searching *out);
void plan_search_end(struct plan_searching *state);
/* The loop. */
enum zd_status plan_search_run(
        struct plan_searching *state, const struct plan_query *query);
/* All that is allowed, unscored; and the job as it is. */
struct plan_query plan_query_fit(const struct plan_search *search);
struct plan_query plan_query_job(const struct plan_search *search);

/* What a plan takes that was made of a candidate and a choice. */
struct plan_found plan_found_of(
        const struct plan_searching *state,
        const struct plan_candidate *candidate,
        const struct job_choice *choice);
/* For qsort: the fastest first, of equals the one with the fewest changes. */
int plan_found_order(const void *a, const void *b);

/* smallest.c: what is least for a query; added to `out`, which begins as all 0. */
enum zd_status plan_smallest_of(
        const struct plan_search *search, struct plan_query query,
        struct plan_smallest *out);
/* .. ZD_ERR_UNFIT: `what` was to fit and does not, and what would. */
enum zd_status plan_fail_smallest(
        const struct plan_search *search, const struct plan_smallest *smallest,
        const char *what);

#endif
