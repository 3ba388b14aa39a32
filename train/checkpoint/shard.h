/* shard.h - the file of a checkpoint that one rank writes. Internal
 * to the checkpoint. */
#ifndef ZD_TRAIN_CHECKPOINT_SHARD_H
#define ZD_TRAIN_CHECKPOINT_SHARD_H

#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/manifest.h"
#include "zero/snapshot.h"

/* Write this rank's arrays, as the view shows them, into `dir`; fills `file`
 * with name, size, digest and what it holds (the caller's reference). */
enum zd_status checkpoint_write_shard(
        const struct checkpoint_writer *writer, const struct zero_view *view,
        const char *dir, struct manifest_file *file);
/* Bytes of all ranks' shards, for the free-space check. */
uint64_t checkpoint_shard_bytes(const struct checkpoint_writer *writer);

#endif
