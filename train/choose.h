/* choose.h - which checkpoint a run goes on from. Internal to train. */
#ifndef ZD_TRAIN_CHOOSE_H
#define ZD_TRAIN_CHOOSE_H

#include "base/file/hash.h"
#include "comm/comm.h"
#include "train/train.h"

/* Collective: rank 0 looks for one, all ranks read it where the job wants it
 * verified. `path`: (PATH_MAX), the same on all ranks, empty for a fresh start;
 * `digest`: of its manifest, on rank 0. */
enum zd_status choose_checkpoint(
        struct comm *comm, const struct train_job *job, char *path,
        char digest[HASH_HEX]);

#endif
