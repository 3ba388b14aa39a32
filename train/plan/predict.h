/* predict.h - predicts the time of a plan's step on a machine: schedules the
 * moves of zero's program on their resources, each as early as its dependencies
 * allow. Overlap results only from this schedule. Pure. */
#pragma once

#include "train/plan/machine.h"
#include "train/plan/plan.h"

enum plan_resource {
    PLAN_COMPUTE,  /* the device */
    PLAN_WIRE,     /* collectives over shards */
    PLAN_REPLICAS, /* .. between replicas */
    PLAN_PLACES,   /* .. between places of tensor parallelism */
    PLAN_DOWN,     /* copies to the host */
    PLAN_UP,       /* .. to the device */
    PLAN_HOST,     /* updates there */
    PLAN_DISK,
    PLAN_RESOURCES
};
extern const char *const plan_resource_names[PLAN_RESOURCES];
/* Words for the binding resource: "copying to the host". */
extern const char *const plan_resource_words[PLAN_RESOURCES];

/* Parts of a step, as a run measures them (train_step_report): a part includes
 * its waits. */
enum plan_part {
    PLAN_FORWARD,
    PLAN_BACKWARD,
    PLAN_REDUCE, /* from the last backward until the norm is known */
    PLAN_UPDATE,
    PLAN_GATHER, /* after the update, without overlap */
    PLAN_PARTS
};
extern const char *const plan_part_names[PLAN_PARTS]; /* "forward" */

/* Time of a step in which the device is idle, by cause; overlapped work does
 * not count. Portions of the parts above. */
enum plan_exposed {
    EXPOSED_UPDATE,   /* on the host */
    EXPOSED_GATHERS,  /* .. and reductions: between ranks */
    EXPOSED_COPIES,   /* between host and device */
    EXPOSED_LAUNCHES, /* of a GPU's kernels */
    PLAN_EXPOSED
};
extern const char *const plan_exposed_names[PLAN_EXPOSED]; /* "update" */

struct plan_prediction {
    double step_seconds, tokens_per_second; /* of all ranks */
    double parts[PLAN_PARTS];               /* their sum is the step */
    double exposed[PLAN_EXPOSED];
    double busy[PLAN_RESOURCES]; /* busy seconds per step */
    enum plan_resource binds;    /* the busiest */
};

/* Warns if tensor parallelism crosses hosts, with its cost, and if
 * offload.undo_memory has room for nothing. */
void plan_warn(
        const struct job_plan *plan, const struct plan_prediction *predicted);
/* cuBLASLt supports E4M3 from 8.9 on, and blocks only on 9.0. */
bool plan_has_fp8(enum fp8_mode mode, int capability);
/* Warns if the machine's GPUs do not support train.fp8. */
void plan_warn_of_fp8(
        const struct job_plan *plan, const struct plan_machine *machine);

/* {"step_seconds", "tokens_per_second", "binds", "phases": {..}, "busy": {..},
 * and of a machine "machine", "calibrated"}; new reference. */
json_t *plan_prediction_json(
        const struct plan_prediction *predicted,
        const struct plan_machine *machine);

/* The plan must have its moves (job_plan_try). */
struct plan_prediction plan_predict(
        const struct job_plan *plan, const struct plan_machine *machine);
