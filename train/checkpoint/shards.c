#include "train/checkpoint/shards.h"

#include "base/must.h"
#include "train/checkpoint/checkpoint.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Descriptors are the process's, and so is their count. */
static _Atomic int open_files;

struct shards *shards_create(size_t most)
{
    struct shards *shards = zd_array(1, sizeof *shards);
    shards->list = zd_array(most, sizeof *shards->list);
    return shards;
}

int shards_add(struct shards *shards, const char *path, uint64_t bytes)
{
    shards->list[shards->count] =
            (struct shard){.path = zd_must(strdup(path)), .bytes = bytes};
    return shards->count++;
}

static void rest(struct shard *shard)
{
    if (!shard->file || shard->file->fd < 0)
        return;
    st_rest(shard->file);
    atomic_fetch_sub(&open_files, 1);
}

static void rest_oldest(struct shards *shards)
{
    struct shard *oldest = NULL;
    for (int i = 0; i < shards->count; i++) {
        struct shard *shard = &shards->list[i];
        if (shard->file && shard->file->fd >= 0 &&
            (!oldest || shard->used < oldest->used))
            oldest = shard;
    }
    if (oldest)
        rest(oldest);
}

enum zd_status shards_wake(struct shards *shards, struct shard *shard)
{
    shard->used = ++shards->clock;
    if (shard->file && shard->file->fd >= 0)
        return ZD_OK;
    if (atomic_fetch_add(&open_files, 1) >= CHECKPOINT_OPEN_FILES)
        rest_oldest(shards);
    enum zd_status status = shard->file ? st_wake(shard->file)
                                        : st_open(shard->path, &shard->file);
    if (status != ZD_OK) {
        atomic_fetch_sub(&open_files, 1);
        return status;
    }
    if (shard->file->file_bytes != shard->bytes)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0804",
                "%s has %llu bytes, the manifest says %llu", shard->path,
                (unsigned long long)shard->file->file_bytes,
                (unsigned long long)shard->bytes);
    return ZD_OK;
}

void shards_close(struct shards *shards)
{
    for (int i = 0; shards && i < shards->count; i++) {
        rest(&shards->list[i]);
        st_close(shards->list[i].file);
        free(shards->list[i].path);
    }
    if (shards)
        free(shards->list);
    free(shards);
}
