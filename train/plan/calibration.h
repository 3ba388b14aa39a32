/* calibration.h - what was measured on this machine, for predict.h: the last
 * calibration of a backend, kept in the user's cache folder as
 * machine-HOST-BACKEND.json.
 *
 *   {"format", "program", "cpus", and what calibration_json has}
 *
 * A file that is broken, of another machine, or of another version of zerod is
 * not taken; the next calibration replaces it. */
#pragma once

#include "base/file/json.h"
#include "comm/comm.h"
#include "train/job/options.h"
#include "train/plan/machine.h"

#include <limits.h>

struct plan_calibration {
    int ranks, threads; /* measured at once; threads of each */
    enum device_backend backend;
    struct plan_machine machine; /* its pointers are set by calibration_use */
    char what[200];
};

/* calibrate.c: measures for about so many seconds, all ranks at once, with the
 * thread's device. Collective. Where there is one rank its wire is that of the
 * backend's table. */
enum zd_status calibration_measure(
        struct comm *comm, double seconds, int threads,
        struct plan_calibration *out);

/* Of every number the mean of all ranks, which measured at once, as a run would
 * use them. Collective. */
enum zd_status calibration_mean(
        struct comm *comm, struct plan_machine *machine);

/* As this machine's file. */
enum zd_status calibration_keep(
        const struct plan_calibration *calibration, char path[PATH_MAX]);

/* False: there is none; `why` says what is wrong with the file, or is empty if
 * there is no calibration. The caller then predicts by a table. */
bool calibration_find(
        enum device_backend backend, struct plan_calibration *out,
        char why[400]);
/* As a machine; borrowed from `calibration`. */
const struct plan_machine *calibration_use(
        struct plan_calibration *calibration);

/* {"backend", "ranks", "threads", "wire_measured", "what", "machine"}. New
 * reference. */
json_t *calibration_json(const struct plan_calibration *calibration);
