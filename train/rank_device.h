/* rank_device.h - the device that a rank computes on: opened before the plan,
 * which is fitted to what it has free, and closed after everything on it is
 * gone. Internal to train. */
#ifndef ZD_TRAIN_RANK_DEVICE_H
#define ZD_TRAIN_RANK_DEVICE_H

#include "train/train.h"

struct trainer;

/* Collective; makes it the thread's device. All ranks have a GPU or none has:
 * else ZD_ERR_UNFIT (E1250). Ranks that share a GPU share what is free of it,
 * and rank 0 says so. */
enum zd_status rank_device_open(struct trainer *trainer);
void rank_device_close(struct trainer *trainer);

/* Once the run has taken its memory: what the driver and libraries hold beside
 * the arenas, by what the GPU says is in use; 0: the CPU, or other ranks are on
 * the GPU. */
uint64_t rank_device_context_bytes(const struct trainer *trainer);

#endif
