#include "base/file/write_direct.h"

#include "base/file/fs.h"
#include "base/progress.h"
#include "base/threads.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Two under way keep a disk busy, while a third is made. */
enum { THREADS = 2, PIECES = 3 };
static const uint64_t FILE_LEAST = 2 * WRITE_DIRECT_BYTES;

/* A piece goes round: the state says who may touch its bytes, `at` and the
 * memory, and who changes the state; all change it under the lock.
 *   FREE     nobody     the maker, in write_direct_room
 *   TAKEN    the maker  the maker, in write_direct_put; one at a time
 *   FULL     nobody     a thread that takes care of it
 *   WRITING  that one   that one, to FREE
 * At the end none is FULL or WRITING; one may be TAKEN, given up. */
enum state { FREE, TAKEN, FULL, WRITING };

struct piece {
    enum state state;
    char *memory; /* of the block with its first byte */
    uint64_t at;
    size_t bytes;
};

struct write_direct {
    int cached, direct; /* descriptors; the first is borrowed */
    const char *path;   /* borrowed */
    size_t block;       /* a page: none is both in the cache and past it */
    char *memory;
    struct progress *progress; /* the maker's */
    int thread_count;
    pthread_t threads[THREADS];
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    struct piece pieces[PIECES];
    bool is_ending;
    enum zd_status status; /* of the first that failed, and .. */
    struct zd_error error; /* .. its record */
};

/* --- a thread's part ------------------------------------------------------ */

static enum zd_status write_piece(
        const struct write_direct *direct, const struct piece *piece)
{
    size_t block = direct->block;
    uint64_t end = piece->at + piece->bytes, base = piece->at / block * block;
    uint64_t first = (piece->at + block - 1) / block * block;
    uint64_t last = end / block * block;
    if (first >= last) /* no block is the piece's alone */
        first = last = end;
    ZD_TRY(fs_pwrite(
            direct->cached, direct->path, piece->memory + (piece->at - base),
            first - piece->at, piece->at));
    ZD_TRY(fs_pwrite(
            direct->direct, direct->path, piece->memory + (first - base),
            last - first, first));
    return fs_pwrite(
            direct->cached, direct->path, piece->memory + (last - base),
            end - last, last);
}

/* Under the lock. NULL: there is none. */
static struct piece *find(struct write_direct *direct, enum state state)
{
    for (int i = 0; i < PIECES; i++)
        if (direct->pieces[i].state == state)
            return &direct->pieces[i];
    return NULL;
}

/* Under the lock, which is left while it writes. Behind a failure nothing is
 * written any more. */
static void take_care(struct write_direct *direct, struct piece *piece)
{
    enum zd_status status = ZD_OK;
    bool writes = direct->status == ZD_OK;
    assert(piece->state == FULL);
    piece->state = WRITING;
    pthread_mutex_unlock(&direct->lock);
    if (writes)
        status = write_piece(direct, piece);
    pthread_mutex_lock(&direct->lock);
    if (status != ZD_OK && direct->status == ZD_OK) {
        direct->status = status;
        direct->error = *zd_error_get();
    }
    zd_error_clear();
    assert(piece->state == WRITING);
    piece->state = FREE;
    pthread_cond_broadcast(&direct->changed);
}

static void *run(void *ctx)
{
    struct write_direct *direct = ctx;
    struct piece *piece;
    progress_use(direct->progress);
    pthread_mutex_lock(&direct->lock);
    while ((piece = find(direct, FULL)) || !direct->is_ending)
        if (piece)
            take_care(direct, piece);
        else
            pthread_cond_wait(&direct->changed, &direct->lock);
    pthread_mutex_unlock(&direct->lock);
    return NULL;
}

/* --- the maker's ---------------------------------------------------------- */

/* Opening says little, so a block is written. */
static bool takes_blocks(const struct write_direct *direct)
{
    void *block;
    if (posix_memalign(&block, direct->block, direct->block) != 0)
        return false;
    memset(block, 0, direct->block);
    bool holds = pwrite(direct->direct, block, direct->block, 0) ==
                 (ssize_t)direct->block;
    free(block);
    return holds;
}

static bool take_memory(struct write_direct *direct)
{
    size_t each = WRITE_DIRECT_BYTES + 2 * direct->block;
    void *memory;
    if (posix_memalign(&memory, direct->block, PIECES * each) != 0)
        return false;
    direct->memory = memory;
    for (size_t i = 0; i < PIECES; i++)
        direct->pieces[i].memory = direct->memory + i * each;
    return true;
}

static void start_threads(struct write_direct *direct)
{
    direct->progress = progress_use(NULL);
    progress_use(direct->progress);
    while (direct->thread_count < THREADS &&
           thread_start(
                   &direct->threads[direct->thread_count], "zerod-write", run,
                   direct) == 0)
        direct->thread_count++;
}

struct write_direct *write_direct_begin(
        int fd, const char *path, uint64_t bytes)
{
    struct write_direct *direct =
            bytes < FILE_LEAST ? NULL : calloc(1, sizeof *direct);
    if (!direct)
        return NULL;
    direct->cached = fd;
    direct->path = path;
    direct->block = (size_t)sysconf(_SC_PAGESIZE);
    pthread_mutex_init(&direct->lock, NULL);
    pthread_cond_init(&direct->changed, NULL);
    direct->direct = open(path, O_WRONLY | O_DIRECT | O_NOFOLLOW | O_CLOEXEC);
    if (direct->direct >= 0 && takes_blocks(direct) && take_memory(direct))
        return direct;
    write_direct_end(direct);
    return NULL;
}

/* Under the lock. */
static enum zd_status failure(const struct write_direct *direct)
{
    if (direct->status != ZD_OK)
        zd_error_set(&direct->error);
    return direct->status;
}

enum zd_status write_direct_room(
        struct write_direct *direct, uint64_t at, size_t bytes, void **out)
{
    struct piece *piece;
    assert(bytes <= WRITE_DIRECT_BYTES);
    if (direct->thread_count == 0)
        start_threads(direct);
    pthread_mutex_lock(&direct->lock);
    assert(!find(direct, TAKEN));
    while (!(piece = find(direct, FREE)))
        pthread_cond_wait(&direct->changed, &direct->lock);
    enum zd_status status = failure(direct);
    if (status == ZD_OK) {
        piece->state = TAKEN;
        piece->at = at;
        piece->bytes = bytes;
        *out = piece->memory + at % direct->block;
    }
    pthread_mutex_unlock(&direct->lock);
    return status;
}

void write_direct_put(struct write_direct *direct)
{
    pthread_mutex_lock(&direct->lock);
    struct piece *piece = find(direct, TAKEN);
    assert(piece);
    piece->state = FULL;
    if (direct->thread_count == 0) /* the system has no thread for it */
        take_care(direct, piece);
    pthread_cond_broadcast(&direct->changed);
    pthread_mutex_unlock(&direct->lock);
}

enum zd_status write_direct_end(struct write_direct *direct)
{
    if (!direct)
        return ZD_OK;
    pthread_mutex_lock(&direct->lock);
    direct->is_ending = true;
    pthread_cond_broadcast(&direct->changed);
    pthread_mutex_unlock(&direct->lock);
    for (int i = 0; i < direct->thread_count; i++)
        pthread_join(direct->threads[i], NULL);
    assert(!find(direct, FULL) && !find(direct, WRITING));
    enum zd_status status = failure(direct);
    if (direct->direct >= 0)
        close(direct->direct);
    pthread_cond_destroy(&direct->changed);
    pthread_mutex_destroy(&direct->lock);
    free(direct->memory);
    free(direct);
    return status;
}
