/* calibrate.h - parts of a calibration. Internal to calibrate*.c. */
#ifndef ZD_TRAIN_PLAN_CALIBRATE_H
#define ZD_TRAIN_PLAN_CALIBRATE_H

#include "comm/comm.h"
#include "train/plan/machine.h"

/* calibrate_ways.c: what goes between places: copies between host and device,
 * the disk below the cache folder, and with several ranks the wire, in and
 * between hosts. Collective. */
enum zd_status calibrate_ways(
        struct comm *comm, double seconds, struct plan_machine *machine);

#endif
