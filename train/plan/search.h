/* search.h - the jobs that fit, of all that differ from a job as candidate.h
 * says, by predicted time; and the most of one thing that fits. No trial runs:
 * plans alone.
 *
 * Every step has the same samples of the same data, and the same learning rate.
 * Of each choice of everything else the largest micro-batch that fits is taken:
 * by the prediction none is faster. */
#ifndef ZD_TRAIN_PLAN_SEARCH_H
#define ZD_TRAIN_PLAN_SEARCH_H

#include "train/plan/candidate.h"
#include "train/plan/predict.h"

struct plan_search {
    const struct train_job *job; /* with limits of [device] */
    int world, local_size;       /* as for job_plan_build */
    unsigned allow;              /* PLAN_ALLOW_* */
    uint64_t disk;               /* bytes of a rank; 0: no limit */
    const struct plan_machine
            *machine; /* NULL: what the backend is taken for */
};

struct plan_found {
    struct plan_candidate candidate;
    struct job_choice choice;
    /* Bytes, as the plan of the job has them: host with pinned memory and with
     * `snapshot`, the copy that is saved in the background where there is room
     * (of the smallest machine: without). */
    uint64_t device, host, pinned, disk, snapshot;
    struct plan_prediction predicted;
    int cost;
};

/* All that fit, the fastest first and of equals the one with the fewest
 * changes; the caller frees *found_out. ZD_ERR_UNFIT where nothing does, naming
 * the smallest machine that would do. */
enum zd_status plan_search_fits(
        const struct plan_search *search, struct plan_found **found_out,
        int *count_out);
/* The smallest machine that would do, whatever the limits: of candidates within
 * the host's limit that with the least of the device, of those within the
 * device's that with the least of the host, and of all that with the least of
 * the device (of both, where one limit holds for both). choice.B 0: there is
 * none. Nothing is predicted. */
struct plan_smallest {
    struct plan_found device, host, any;
};
enum zd_status plan_search_smallest(
        const struct plan_search *search, struct plan_smallest *out);
/* What the job needs to become one that was found. */
int plan_found_settings(
        const struct plan_search *search, const struct plan_found *found,
        struct plan_setting out[PLAN_SETTINGS_MAX]);

/* The most of one thing, all else as the job has it (`fits`: or as any
 * candidate has it). */
enum plan_most { PLAN_MOST_BATCH, PLAN_MOST_SEQ, PLAN_MOST_MODEL };
struct plan_most_found {
    int64_t value;    /* samples of a micro-batch, tokens, parameters, ranks */
    const char *name; /* of the model; static */
    /* With `fits`: the fastest of what fits with so much, and what the job
     * needs to become it. */
    struct plan_found best;
    struct plan_setting settings[PLAN_SETTINGS_MAX];
    int setting_count;
};
/* ZD_ERR_UNFIT when not even the least fits. */
enum zd_status plan_search_most(
        const struct plan_search *search, enum plan_most what, bool fits,
        struct plan_most_found *out);
/* The fewest ranks, `local_size` to a node (0: 8): of any number up to a node,
 * then of whole nodes; 8192 at most. Numbers that cannot share the job's batch
 * or cut its model are passed over. */
enum zd_status plan_search_world(
        const struct plan_search *search, bool fits,
        struct plan_most_found *out);

#endif
