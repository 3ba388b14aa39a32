/* saving.h - the parts of a save, in their order:
 *
 *   saving_begin     collective   rank 0 makes OUTPUT_DIR/.tmp-checkpoint-..
 *   saving_write     any thread   this rank's shard, of a view
 *   saving_gather    collective   what each has written; all have written it
 *   saving_commit    any thread of rank 0: manifest, rename
 *   saving_end       any time: what is left of a failed one goes
 *
 * Each but the last is called by one thread at a time, which another may see
 * the end of before the next begins. Internal to the checkpoint. */
#pragma once

#include "train/checkpoint/checkpoint.h"
#include "zero/snapshot.h"

#include <limits.h>

struct saving {
    struct checkpoint_writer writer; /* as it was at the beginning */
    int64_t step;
    char tmp[PATH_MAX], final[PATH_MAX];
    char *report; /* of this rank's shard, as JSON; owned */
    char *shards; /* of all ranks, each as long as the longest; owned */
    size_t shard_bytes;
    json_t *manifest; /* rank 0: all but the files; owned, shared with none */
};

/* On a failure nothing is left, and `saving` is empty. */
enum zd_status saving_begin(
        struct saving *saving, const struct checkpoint_writer *writer,
        const struct train_state *state);
enum zd_status saving_write(
        struct saving *saving, const struct zero_view *view);
enum zd_status saving_gather(struct saving *saving);
enum zd_status saving_commit(struct saving *saving);
/* `status`: of the whole, the same on all ranks. */
void saving_end(struct saving *saving, enum zd_status status);
