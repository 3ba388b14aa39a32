/* export.h - a Hugging Face directory from a checkpoint, streaming. Internal to
 * train. */
#ifndef ZD_TRAIN_CHECKPOINT_EXPORT_H
#define ZD_TRAIN_CHECKPOINT_EXPORT_H

#include "train/checkpoint/checkpoint.h"

/* `dtype`: NULL = the type the run decided on. `path`: the checkpoint's folder,
 * whose config.json and tokenizer files are taken along. */
enum zd_status export_checkpoint(
        const struct checkpoint *checkpoint, const char *path,
        const char *out_dir, const enum dtype *dtype, uint64_t max_shard_bytes);

#endif
