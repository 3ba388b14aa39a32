#include "base/file/write_direct.h"

#include "base/file/fs.h"
#include "base/file/write_behind.h"
#include "base/must.h"
#include "base/progress.h"
#include "base/threads.h"

#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint64_t FILE_LEAST = 2 * WRITE_DIRECT_BYTES;

struct piece {
    char *memory; /* of the block with its first byte */
    uint64_t at;
    size_t bytes;
};

/* The maker fills pieces[made]. Where `is_writing`, the other belongs to the
 * thread, and so do the fields below it, until the maker has joined it. */
struct write_direct {
    int cached, direct; /* descriptors; the first is borrowed */
    const char *path;   /* borrowed */
    size_t block;       /* a page: none is both in the cache and past it */
    struct piece pieces[2];
    int made;
    struct write_behind behind; /* what goes through the cache */
    struct progress *progress;  /* the maker's */
    pthread_t thread;
    bool is_writing;
    const char *data; /* whole blocks */
    uint64_t first, last;
    enum zd_status status; /* of the first write that failed, and .. */
    struct zd_error error; /* .. its record */
};

/* Opening says little, so a block is written. */
static bool takes_blocks(const struct write_direct *direct)
{
    char *block = direct->pieces[0].memory;
    memset(block, 0, direct->block);
    return pwrite(direct->direct, block, direct->block, 0) ==
           (ssize_t)direct->block;
}

struct write_direct *write_direct_begin(
        int fd, const char *path, uint64_t bytes)
{
    if (bytes < FILE_LEAST)
        return NULL;
    struct write_direct *direct = zd_array(1, sizeof *direct);
    direct->cached = fd;
    direct->path = path;
    direct->block = (size_t)sysconf(_SC_PAGESIZE);
    direct->direct = open(path, O_WRONLY | O_DIRECT | O_NOFOLLOW | O_CLOEXEC);
    for (int i = 0; i < 2; i++)
        direct->pieces[i].memory = zd_must(aligned_alloc(
                direct->block, WRITE_DIRECT_BYTES + 2 * direct->block));
    if (direct->direct >= 0 && takes_blocks(direct))
        return direct;
    write_direct_end(direct);
    return NULL;
}

static void *write_blocks(void *ctx)
{
    struct write_direct *direct = ctx;
    progress_use(direct->progress);
    direct->status = fs_pwrite(
            direct->direct, direct->path, direct->data,
            direct->last - direct->first, direct->first);
    direct->error = *zd_error_get();
    return NULL;
}

/* The piece before has been written. Fails as it did. */
static enum zd_status await(struct write_direct *direct)
{
    if (direct->is_writing)
        pthread_join(direct->thread, NULL);
    direct->is_writing = false;
    if (direct->status != ZD_OK)
        zd_error_set(&direct->error);
    return direct->status;
}

static enum zd_status put_cached(
        struct write_direct *direct, uint64_t at, const char *data,
        size_t bytes)
{
    if (!bytes)
        return ZD_OK;
    ZD_TRY(fs_pwrite(direct->cached, direct->path, data, bytes, at));
    write_behind(&direct->behind, direct->cached, at, bytes);
    return ZD_OK;
}

enum zd_status write_direct_small(
        struct write_direct *direct, uint64_t at, const void *data,
        size_t bytes)
{
    assert(bytes <= WRITE_DIRECT_SMALL);
    return put_cached(direct, at, data, bytes);
}

void *write_direct_room(struct write_direct *direct, uint64_t at, size_t bytes)
{
    struct piece *piece = &direct->pieces[direct->made];
    assert(bytes <= WRITE_DIRECT_BYTES);
    piece->at = at;
    piece->bytes = bytes;
    return piece->memory + at % direct->block;
}

enum zd_status write_direct_put(struct write_direct *direct)
{
    const struct piece *piece = &direct->pieces[direct->made];
    size_t block = direct->block;
    uint64_t end = piece->at + piece->bytes;
    const char *data = piece->memory + piece->at % block;
    ZD_TRY(await(direct));
    direct->first = (piece->at + block - 1) / block * block;
    direct->last = end / block * block;
    if (direct->first >= direct->last)
        return put_cached(direct, piece->at, data, piece->bytes);
    direct->data = data + (direct->first - piece->at);
    ZD_TRY(put_cached(direct, piece->at, data, direct->first - piece->at));
    ZD_TRY(put_cached(
            direct, direct->last, data + (direct->last - piece->at),
            end - direct->last));
    direct->made = 1 - direct->made;
    direct->progress = progress_use(NULL);
    progress_use(direct->progress);
    direct->is_writing =
            thread_start(
                    &direct->thread, "zerod-write", write_blocks, direct) == 0;
    if (!direct->is_writing) /* the system has no thread for it */
        write_blocks(direct);
    return ZD_OK;
}

enum zd_status write_direct_end(struct write_direct *direct)
{
    if (!direct)
        return ZD_OK;
    enum zd_status status = await(direct);
    if (direct->direct >= 0)
        close(direct->direct);
    free(direct->pieces[0].memory);
    free(direct->pieces[1].memory);
    free(direct);
    return status;
}
