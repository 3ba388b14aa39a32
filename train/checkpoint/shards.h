/* shards.h - the files of an open checkpoint. Of thousands a few are open, in
 * all checkpoints of the process together. Internal to the checkpoint. */
#ifndef ZD_TRAIN_CHECKPOINT_SHARDS_H
#define ZD_TRAIN_CHECKPOINT_SHARDS_H

#include "base/file/safetensors.h"
#include "base/status.h"

#include <stdint.h>

/* A file with arrays. Its header is read when it is first wanted. */
struct shard {
    char *path; /* owned */
    uint64_t bytes;
    struct st_file *file; /* NULL: not read yet */
    uint64_t used;        /* when it was last wanted */
};

struct shards {
    struct shard *list; /* owned */
    int count;
    uint64_t clock;
};

/* Room for `most`, of which there is none yet. */
struct shards *shards_create(size_t most);
/* The index of a file that the manifest says to have so many bytes. */
int shards_add(struct shards *shards, const char *path, uint64_t bytes);
/* `shard` of the list can be read from, and its header is known; the one that
 * no one has wanted for longest is closed where too many are open.
 * ZD_ERR_DATA: it has another size. */
enum zd_status shards_wake(struct shards *shards, struct shard *shard);
void shards_close(struct shards *shards); /* NULL: none */

#endif
