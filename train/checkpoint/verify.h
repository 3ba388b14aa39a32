/* verify.h - every byte of a checkpoint against the digests of its manifest,
 * the files shared out over ranks and threads. Internal to train. */
#ifndef ZD_TRAIN_CHECKPOINT_VERIFY_H
#define ZD_TRAIN_CHECKPOINT_VERIFY_H

#include "comm/comm.h"
#include "train/checkpoint/manifest.h"

/* A share of the files: each `of`-th from `first`. */
struct verify_share {
    int first, of;
    int threads; /* at most VERIFY_THREADS_MAX are taken; 0: one for each CPU */
};
enum { VERIFY_THREADS_MAX = 16 };

/* Read them and compare digests. A thread has one file open at a time.
 * ZD_ERR_DATA names the file and, in a shard, what of it is damaged; of several
 * the first in the manifest. */
enum zd_status verify_files(
        const char *dir, const json_t *manifest,
        const struct verify_share *share);

/* Collective: all files, over all ranks. The same status on all; the record is
 * rank 0's. Damage goes before what could not be read: then it is known that
 * the checkpoint is not sound. */
enum zd_status verify_ranks(struct comm *comm, const char *dir, int threads);

/* Length of one file of `dir` (`entry`: of the manifest's list) and, with
 * `full`, its digest. */
enum zd_status verify_file(const char *dir, const json_t *entry, bool full);

#endif
