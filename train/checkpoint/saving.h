/* saving.h - the parts of a save, in their order:
 *
 *   saving_begin     collective   rank 0 makes OUTPUT_DIR/.tmp-checkpoint-..
 *   saving_write     any thread   this rank's shard, from a view
 *   saving_gather    collective   all ranks' reports; then all have written
 *   saving_commit    any thread of rank 0: manifest, rename
 *   saving_end       any time: removes the files of a failed save
 *
 * All but the last are called by one thread at a time; a thread's call is
 * complete before another thread makes the next. Internal to the checkpoint. */
#pragma once

#include "train/checkpoint/checkpoint.h"
#include "zero/snapshot.h"

#include <limits.h>

struct saving {
    struct checkpoint_writer writer; /* copied at the beginning */
    int64_t step;
    char tmp[PATH_MAX], final[PATH_MAX];
    char *report; /* entry of this rank's shard, JSON; owned */
    char *shards; /* of all ranks, padded to the longest; owned */
    size_t shard_bytes;
    json_t *manifest; /* rank 0: without files; owned, not shared */
};

/* On failure it removes its files and `saving` is empty. */
enum zd_status saving_begin(
        struct saving *saving, const struct checkpoint_writer *writer,
        const struct train_state *state);
enum zd_status saving_write(
        struct saving *saving, const struct zero_view *view);
enum zd_status saving_gather(struct saving *saving);
enum zd_status saving_commit(struct saving *saving);
/* `status`: of the whole save, the same on all ranks. */
void saving_end(struct saving *saving, enum zd_status status);
