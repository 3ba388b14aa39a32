/* search.h - finds jobs that would fit, by one loop over the candidates of a
 * job (candidate.h). It plans each, keeps those that pass a filter, and orders
 * them by a score. It only plans, without trial runs. Queries:
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
 * Every step has the same samples and learning rate. Each candidate uses the
 * largest micro-batch that fits, which is the fastest by prediction. */
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
    /* Bytes as in the plan: host includes pinned memory and `snapshot`, the
     * copy for background saves (if times are predicted). */
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
    struct plan_limits limits; /* of the search */
};

/* There are too many meshes to try everything in each. A few candidates score
 * each mesh; the search uses the job's own and the six fastest, or if none
 * fits, the one that lacks the least memory. */
enum { PLAN_MESHES = 8 * 8 * 8 };
struct plan_meshes {
    bool is_known;
    bool is_left_out[PLAN_MESHES]; /* by options of MESH, CP and TP */
};

enum plan_score {
    PLAN_UNSCORED,
    PLAN_BY_TIME, /* predicted, the fastest first, of equal ones the fewest
                     changes first; also plans snapshots */
    PLAN_BY_COST, /* the cheapest first, without the job itself; none that
                     includes another's changes */
};
struct plan_query {
    const struct plan_search *search;
    struct plan_space space;
    bool keeps_batch; /* keep the job's micro-batches, unless BATCH_OTHER */
    bool is_job;      /* only the job: an error if it cannot be planned */
    enum plan_score score;
    int changes_most;      /* maximum changes of a candidate; 0: any number */
    int most;              /* stop after this many; 0: all */
    struct job_plan *plan; /* begun, with limits; overwritten. NULL: begins one
                              with the job's limits */
    const struct plan_limits *limits; /* NULL: the plan's */
    struct plan_meshes *meshes;       /* shared by several queries of one space;
                                         NULL: not shared */
    struct plan_smallest *smallest;   /* updated with plans beyond the limits,
                                         too; nothing is kept; start with all
                                         0 */
};
/* The job with the choices of its plan for "auto". */
struct train_job plan_settled(
        const struct train_job *job, const struct job_plan *plan);
/* A query of only the job. */
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

/* The maximum of one quantity that fits, or the minimum of ranks, with all else
 * as in the job (`fits`: or in any candidate). WORLD: any number up to a node
 * (local_size; 0: 8), then whole nodes, at most 8192. Skips numbers that cannot
 * divide the job's batch. */
enum plan_most {
    PLAN_MOST_BATCH,
    PLAN_MOST_SEQ,
    PLAN_MOST_MODEL,
    PLAN_MOST_WORLD
};
struct plan_most_found {
    int64_t value;    /* samples of a micro-batch, tokens, parameters, ranks */
    const char *name; /* of the model, or what limits a sample; static */
    int64_t global;   /* BATCH: the new train.global_batch_size, if given */
    struct plan_found best; /* with `fits`: the fastest candidate at `value` */
};
/* ZD_ERR_UNFIT if not even the least fits, as plan_search_fits. */
enum zd_status plan_search_most(
        const struct plan_search *search, enum plan_most what, bool fits,
        struct plan_most_found *out);
