/* calibration.h - what was measured on this machine, for predict.h: kept in the
 * user's cache folder as machine-HOST.json, a table for each number of ranks on
 * the machine, threads of a rank, and backend.
 *
 *   {"format", "program", "machine": {"host", "cpus"}, "tables": [..]}
 *
 * A file that is broken, of another machine, or of another version of zerod is
 * not taken; the next calibration makes it anew. */
#ifndef ZD_TRAIN_PLAN_CALIBRATION_H
#define ZD_TRAIN_PLAN_CALIBRATION_H

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

/* Into this machine's file, beside its other tables. *anew_out: why what was
 * there is gone; empty: nothing is. */
enum zd_status calibration_keep(
        const struct plan_calibration *calibration, char path[PATH_MAX],
        char anew_out[400]);

/* The table that is nearest to what such a job has: threads first, then ranks.
 * False: there is none; `why` says what is wrong with the file, or is empty
 * if there is no calibration. The caller then predicts by a table. */
bool calibration_find(
        enum device_backend backend, int ranks, int threads,
        struct plan_calibration *out, char why[400]);
/* The same for a job on so many ranks, so many of them on a machine (0: all).
 */
bool calibration_find_job(
        const struct train_job *job, int world, int local_size,
        struct plan_calibration *out, char why[400]);
/* As a machine; borrowed from `calibration`. */
const struct plan_machine *calibration_use(
        struct plan_calibration *calibration);

/* As the file has a table. New reference. */
json_t *calibration_json(const struct plan_calibration *calibration);

#endif
