/* rank_device.h - the device of a rank: opened before the plan, which fits its
 * free memory, and closed after everything on it is freed. Internal to train.
 */
#pragma once

#include "train/report/observer.h"

struct trainer;

/* Collective; makes it the thread's device. ZD_ERR_UNFIT (E1250) if only some
 * ranks have a GPU. Ranks that share a GPU share its free memory; rank 0 logs
 * it. */
enum zd_status rank_device_open(struct trainer *trainer);
void rank_device_close(struct trainer *trainer);

/* The number of threads with which a rank computes. */
int rank_device_threads(const struct train_job *job, struct comm *comm);

/* The driver's current report on this rank's GPU; all 0: the CPU, or unknown.
 * Does not wait. */
void rank_device_measure(
        const struct trainer *trainer, struct train_gpu_report *out);

/* Collective: measures every rank's GPU for rank 0's log; the first time, after
 * the run has taken its memory, also for plan.measured. At the end of a run it
 * includes what libraries load in the first step. */
enum zd_status rank_device_tell(struct trainer *trainer);
