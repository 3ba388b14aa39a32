/* calibrate.h - parts of a calibration. Internal to calibrate*.c. */
#pragma once

#include "comm/comm.h"
#include "train/plan/machine.h"

struct bench {
    double share;  /* seconds for each thing that is measured */
    size_t rounds; /* runs so far, of all things */
    const void *ctx;
};
typedef enum zd_status bench_fn(struct bench *bench);
/* Seconds of one run, the mean of many. */
enum zd_status bench_time(
        struct bench *bench, bench_fn *run, double *seconds_out);

/* Updates of every kind, by the device, and on the host by an offload engine of
 * so many workers. */
enum zd_status calibrate_updates(
        struct comm *comm, double seconds, int threads,
        struct plan_machine *machine);
