/* search.h - which jobs would fit: one loop over the candidates of a job
 * (candidate.h). It plans each, keeps those that pass a filter, and orders them
 * by a score. It only plans, without trial runs. Every question is such a
 * query:
 *
 *   asked by          may vary           micro-batches      keeps
 *   --fit, init       what is allowed    largest that fits  all, by time
 *   --max, --min      the job alone, or  its own, or the    the first fit for
 *                     what is allowed    largest            each amount
 *   advice            one option         its own, or the    the fastest
 *                                        largest other
 *   refusal           what is offered    its own, or the    the cheapest four,
 *                                        largest other      none in another
 *   smallest machine  what is allowed    one sample, or     the least device,
 *                                        the whole step     host, and both
 *
 * Every step has the same samples and learning rate. Of each candidate the
 * largest micro-batch that fits is taken: by the prediction none is faster. */
#pragma once

#include "train/plan/candidate.h"
#include "train/plan/predict.h"

struct plan_search {
    const struct train_job *job;        /* with limits of [device] */
    int world, local_size;              /* as for job_plan_build */
    unsigned allow;                     /* PLAN_ALLOW_* */
    uint64_t disk;                      /* bytes of a rank; 0: no limit */
    const struct plan_machine *machine; /* NULL: the backend's default */
};

struct plan_found {
    struct plan_candidate candidate;
    struct job_choice choice;
    int world, cost;
    /* Bytes, as the plan of the job has them: host with pinned memory and with
     * `snapshot`, the copy for background saves (where times are predicted). */
    uint64_t device, host, pinned, disk, snapshot;
    struct plan_prediction predicted;
    struct plan_settings settings;
};

/* The smallest machine that would do: the least device memory of candidates
 * within the host's limit, the least host memory of those within the device's
 * limit, and the least device memory of all (on the CPU device without limits:
 * the least sum of both). choice.B 0: there is none. */
struct plan_smallest {
    struct plan_found device, host, any;
    struct plan_limits limits; /* that they were sought for */
};

/* Meshes are many, and all else is to be tried in each: a few candidates of
 * each say in which. The job's own and the six with the fastest of these are
 * tried, or, where none fits, the one that lacks least memory. */
enum { PLAN_MESHES = 8 * 8 * 8 };
struct plan_meshes {
    bool is_known;
    bool is_left_out[PLAN_MESHES]; /* by options of MESH, CP and TP */
};

enum plan_score {
    PLAN_UNSCORED,
    PLAN_BY_TIME, /* predicted, the fastest first and of equals the one with the
                     fewest changes; snapshots are planned too */
    PLAN_BY_COST, /* the cheapest first, without the job as it is; none that
                     holds another's changes */
};
struct plan_query {
    const struct plan_search *search;
    struct plan_space space;
    bool keeps_batch; /* its own micro-batches, unless BATCH_OTHER */
    bool is_job;      /* no candidate: where it cannot be planned, an error */
    enum plan_score score;
    int changes_most;      /* options of a candidate; 0: any number */
    int most;              /* ends with so many; 0: all */
    struct job_plan *plan; /* begun, with limits; it is overwritten. NULL: one
                              is begun, with the limits of the job */
    const struct plan_limits *limits; /* NULL: those of the plan */
    struct plan_meshes *meshes;       /* found by the first of several queries
                                         of one space; NULL: by each */
    struct plan_smallest *smallest;   /* adds to it, whatever the limits, and
                                         keeps nothing; it begins as all 0 */
};
/* The job with what "auto" has chosen in a plan of it. */
struct train_job plan_settled(
        const struct train_job *job, const struct job_plan *plan);
/* The job as it is. */
struct plan_query plan_query_job(const struct plan_search *search);
/* The loop. The caller frees *found_out, which is set even after an error. */
enum zd_status plan_search_run(
        const struct plan_query *query, struct plan_found **found_out,
        int *count_out);

/* queries.c: all that fit, by time; the caller frees *found_out. ZD_ERR_UNFIT
 * if nothing does, naming the smallest machine that would do. */
enum zd_status plan_search_fits(
        const struct plan_search *search, struct plan_found **found_out,
        int *count_out);

/* `meshes` as in a query. */
enum zd_status plan_search_smallest(
        const struct plan_search *search, struct plan_meshes *meshes,
        struct plan_smallest *out);

/* The most of one thing that fits, or the fewest ranks, all else as the job has
 * it (`fits`: or as any candidate has it). WORLD: of any number up to a node
 * (local_size; 0: 8), then of whole nodes; 8192 at most. Numbers that cannot
 * share the job's batch are passed over. */
enum plan_most {
    PLAN_MOST_BATCH,
    PLAN_MOST_SEQ,
    PLAN_MOST_MODEL,
    PLAN_MOST_WORLD
};
struct plan_most_found {
    int64_t value;    /* samples of a micro-batch, tokens, parameters, ranks */
    const char *name; /* of the model, or what ends a sample; static */
    int64_t global;   /* BATCH: train.global_batch_size then, if it is given */
    struct plan_found best; /* with `fits`: the fastest with so much */
};
/* ZD_ERR_UNFIT if not even the least fits, as plan_search_fits. */
enum zd_status plan_search_most(
        const struct plan_search *search, enum plan_most what, bool fits,
        struct plan_most_found *out);
