/* rank_device.h - the device that a rank computes on: opened before the plan,
 * which is fitted to what it has free, and closed after everything on it is
 * gone. Internal to train. */
#pragma once

#include "train/report/observer.h"

struct trainer;

/* Collective; makes it the thread's device. All ranks have a GPU or none has:
 * else ZD_ERR_UNFIT (E1250). Ranks that share a GPU share what is free of it,
 * and rank 0 says so. */
enum zd_status rank_device_open(struct trainer *trainer);
void rank_device_close(struct trainer *trainer);

/* Threads that a rank of the job computes with. */
int rank_device_threads(const struct train_job *job, struct comm *comm);

/* What the driver says of this rank's GPU now; all 0: the CPU, or it does not
 * say. Waits for nothing. */
void rank_device_measure(
        const struct trainer *trainer, struct train_gpu_report *out);

/* Every rank's GPU is measured, for rank 0's log; the first time, once the run
 * has taken its memory, for its plan too (plan.measured). At the end of a run
 * it has what libraries load with the first step. Collective. */
enum zd_status rank_device_tell(struct trainer *trainer);
