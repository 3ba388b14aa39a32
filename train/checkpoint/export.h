/* export.h - a Hugging Face directory from a checkpoint, streaming. Internal to
 * train. */
#ifndef ZD_TRAIN_CHECKPOINT_EXPORT_H
#define ZD_TRAIN_CHECKPOINT_EXPORT_H

#include "train/checkpoint/checkpoint.h"

struct export_request {
    const char *path; /* the checkpoint's folder, whose config.json and
                         tokenizer files are taken along */
    const char *out_dir;
    const enum dtype *dtype; /* NULL: the type the run decided on */
    uint64_t max_shard_bytes;
    enum checkpoint_check check;
};

/* Collective: every rank reads and writes a part of the weights. `comm` NULL:
 * the caller does all of it. */
enum zd_status export_checkpoint(
        struct comm *comm, const struct export_request *request);

#endif
