/* deadline.h - saves a checkpoint and ends a run before its deadline. Internal
 * to train. Only rank 0 checks its clock; it tells the others in the exchange
 * that begins a step, as if USR1 had come (exit code 75).
 *
 *   when   [run] deadline, a time from the start of the process; else
 *          SLURM_JOB_END_TIME (seconds since 1970); else never
 *   early  by deadline_margin; default: twice the last save (or its estimate)
 * and two steps */
#pragma once

#include "train/job/options.h"

struct deadline {
    double at;     /* seconds since 1970; 0: none */
    double margin; /* seconds; 0: as above */
    bool is_slurm;
};

/* `start`: when the process began, as clock_wall_seconds has it. An implausible
 * SLURM_JOB_END_TIME is reported and ignored. */
void deadline_init(
        const struct run_options *options, double start, struct deadline *out);
/* Is it time to save? */
bool deadline_has_come(
        const struct deadline *deadline, double now, double save_seconds,
        double step_seconds);
/* "in time for the deadline 2026-11-22T08:00:00Z (SLURM_JOB_END_TIME)", or
 * "2.5 s after the deadline .." */
void deadline_print(
        const struct deadline *deadline, double now, char *out, size_t bytes);
