/* predict.h - how long a step of a plan takes on a machine: the moves of
 * zero's program, each on the resource that makes it, as early as what it
 * waits for allows. What overlaps follows from that; there is no other
 * formula. Pure. */
#pragma once

#include "train/plan/machine.h"
#include "train/plan/plan.h"

enum plan_resource {
    PLAN_COMPUTE,  /* the device */
    PLAN_WIRE,     /* collectives over shards, and .. */
    PLAN_REPLICAS, /* .. between replicas, and .. */
    PLAN_PLACES,   /* .. between places of tensor parallelism */
    PLAN_DOWN,     /* copies to the host, and .. */
    PLAN_UP,       /* .. to the device */
    PLAN_HOST,     /* updates there */
    PLAN_DISK,
    PLAN_RESOURCES
};
extern const char *const plan_resource_names[PLAN_RESOURCES];
/* As a plan says what binds: "copying to the host". */
extern const char *const plan_resource_words[PLAN_RESOURCES];

/* Parts of a step, as a run measures them (train_step_report): what a part
 * waits for is its own. */
enum plan_part {
    PLAN_FORWARD,
    PLAN_BACKWARD,
    PLAN_REDUCE, /* from the last backward until the norm is known */
    PLAN_UPDATE,
    PLAN_GATHER, /* after the update, where nothing overlaps it */
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
    double busy[PLAN_RESOURCES]; /* seconds of a step at work */
    enum plan_resource binds;    /* the busiest */
};

/* Warnings where tensor parallelism crosses hosts, with what it costs, and
 * where offload.undo_memory has room for nothing. */
void plan_warn(
        const struct job_plan *plan, const struct plan_prediction *predicted);
/* cuBLASLt multiplies E4M3 from 8.9 on, and blocks on 9.0 alone. */
bool plan_has_fp8(enum fp8_mode mode, int capability);
/* A warning where GPUs of that machine cannot compute train.fp8. */
void plan_warn_of_fp8(
        const struct job_plan *plan, const struct plan_machine *machine);

/* {"step_seconds", "tokens_per_second", "binds", "phases": {..}, "busy": {..},
 * and of a machine "machine", "calibrated"}; new reference. */
json_t *plan_prediction_json(
        const struct plan_prediction *predicted,
        const struct plan_machine *machine);

/* The plan has its moves (job_plan_try). */
struct plan_prediction plan_predict(
        const struct job_plan *plan, const struct plan_machine *machine);
