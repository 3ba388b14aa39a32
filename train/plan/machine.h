/* machine.h - the speed of a machine, for predictions. Numbers of a known
 * machine are its data sheet's, times the share that programs reach; machine.c
 * has the sources. */
#pragma once

#include "base/device/device.h"
#include "base/file/json.h"
#include "comm/comm.h"
#include "optim/optim.h"

#include <limits.h>

/* Kinds of update differ in the states of an element, and in whether it has a
 * master: bare ones are rounded stochastically, which costs more than bytes. */
enum { PLAN_UPDATES = 6 };
static inline int plan_update_kind(const struct optim_options *optim)
{
    return 2 * (int)optim->state_type + (optim->master == OPTIM_MASTER_NONE);
}

struct plan_machine {
    const char *name, *what; /* static, but for one measured */
    /* in 16 bits, and in fp32: FLOP/s of large matmuls, and rows with half that
     * rate */
    double products[2], half[2];
    double memory; /* bytes/s of the device's memory, for element-wise work */
    /* .. of updates of each kind there, and of one rank on the host */
    double update[PLAN_UPDATES], host[PLAN_UPDATES];
    double launch;          /* overhead of a layer in seconds */
    double link;            /* bytes/s between device and host, each way */
    double inside, between; /* bytes/s that a rank sends within its node, and to
                               others */
    double latency;         /* seconds of a step of a collective */
    double jitter;   /* how much slower the slowest rank gets with each doubling
                        of the ranks, as a share */
    double disk;     /* bytes/s of a rank, each way */
    double fp8[2];   /* tensorwise, blockwise: FP8 FLOP/s relative to 16 bits;
                        0: 1 */
    const char *gpu; /* a pattern of the names of its GPUs; NULL: none */
    int capability; /* compute capability of its GPUs, 90 for 9.0; 0: unknown */
    bool shares_cores; /* collectives, copies and host updates use the computing
                          cores (the CPU device); for copies and collectives
                          with this share: */
    double link_cores, wire_cores;
    bool is_measured; /* measured here; else not compared with a run */
    bool is_guess;    /* stands for any processor: plan_guess_words */
    bool wire_is_measured;
};

/* print.c: "cuda", "cpu". */
const char *plan_backend_name(enum device_backend backend);

/* NULL: unknown name. */
const struct plan_machine *plan_machine_find(const char *name);
/* FLOP/s of a GPU's dense matmuls in 16 bits, by its data sheet; 0: unknown. */
double plan_machine_peak(const char *gpu);
/* Significant digits for its times. */
int plan_machine_digits(const struct plan_machine *machine);
/* Printed with times of a guessed machine. */
extern const char plan_guess_words[];
/* The default machine of a backend: on a CPU this processor's row, or the
 * guess. */
const struct plan_machine *plan_machine_default(enum device_backend backend);

/* What was measured on this machine, for predict.h: the last calibration of a
 * backend, kept in the user's cache folder as machine-HOST-BACKEND.json.
 *
 *   {"format", "program", "cpus", and what calibration_json has}
 *
 * A file that is damaged, or from another machine or version of zerod, is
 * ignored; the next calibration replaces it. */
struct plan_calibration {
    int ranks, threads; /* measured at once; threads of each */
    enum device_backend backend;
    struct plan_machine machine; /* if one was found */
    char what[200];
};

/* calibrate.c: measures for about `seconds`, on all ranks at once, with the
 * thread's device. Collective. With a single rank the wire is the table's. */
enum zd_status calibration_measure(
        struct comm *comm, double seconds, int threads,
        struct plan_calibration *out);

/* Collective: averages every number over the ranks. */
enum zd_status calibration_mean(
        struct comm *comm, struct plan_machine *machine);

/* Writes this machine's file. */
enum zd_status calibration_keep(
        const struct plan_calibration *calibration, char path[PATH_MAX]);

/* Reads the calibration into `out` and returns its machine. NULL: none; `why`
 * explains a bad file, or is empty if there is no file. The caller then uses
 * the table. */
const struct plan_machine *calibration_find(
        enum device_backend backend, struct plan_calibration *out,
        char why[400]);

/* {"backend", "ranks", "threads", "wire_measured", "what", "machine"}. New
 * reference. */
json_t *calibration_json(const struct plan_calibration *calibration);
