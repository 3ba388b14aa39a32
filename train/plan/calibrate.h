/* calibrate.h - parts of a calibration. Internal to calibrate*.c. */
#pragma once

#include "comm/comm.h"
#include "train/plan/machine.h"

struct bench {
    double share;  /* seconds per measurement */
    size_t rounds; /* runs so far, over all measurements */
    const void *ctx;
};
typedef enum zd_status bench_fn(struct bench *bench);
/* Mean seconds of a run. */
enum zd_status bench_time(
        struct bench *bench, bench_fn *run, double *seconds_out);

/* Measures updates of every kind, by the device, and on the host by an offload
 * engine with `threads` workers. */
enum zd_status calibrate_updates(
        struct comm *comm, double seconds, int threads,
        struct plan_machine *machine);
