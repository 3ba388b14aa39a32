/* print.h - what a plan says of itself, as text and as JSON: the names of
 * what was chosen, and what offload moves. Internal to train. */
#ifndef ZD_TRAIN_PLAN_PRINT_H
#define ZD_TRAIN_PLAN_PRINT_H

#include "train/plan/fit.h"

/* names.c: as the job file has them, or as a sentence needs them. */
void plan_checkpointing_name(
        struct checkpointing checkpointing, char out[PLAN_NAME_MAX]);
const char *plan_states_name(const struct optim_options *optim);
const char *plan_tier_name(enum offload_tier tier);
/* "no master weights", also where parameters are fp32 themselves. */
const char *plan_masters_name(enum dtype dtype, enum optim_master master);
const char *plan_transport_name(enum comm_transport transport);
const char *plan_backend_name(const struct job_plan *plan);

/* Of a step of rank 0, as offload_report counts them; unknown without an
 * offloaded optimizer, and with frozen parameters that visit the device. */
struct plan_moves {
    bool is_known, knows_disk;
    uint64_t down, up, disk; /* bytes; as many are read as are written */
};

struct plan_moves plan_moves_of(const struct job_plan *plan);

#endif
