#include "base/file/write_direct.h"

#include "base/file/fs.h"
#include "base/file/write_behind.h"
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
enum { THREADS = 2, PIECES = 3, ASIDE_BYTES = 4 << 20 };
static const uint64_t FILE_LEAST = 2 * WRITE_DIRECT_BYTES;

/* A piece goes round: the state says who may touch the rest of it and who
 * changes the state; all change it under the lock.
 *   FREE     no one     the maker, in write_direct_room
 *   TAKEN    the maker  the maker, in write_direct_put; one at a time; to FREE
 *                       where no block is the piece's alone
 *   FULL     no one     a thread that takes care of it
 *   WRITING  that one   that one, to FREE
 * At the end none is FULL or WRITING; one may be TAKEN, given up. */
enum state { FREE, TAKEN, FULL, WRITING };

struct piece {
    enum state state;
    char *memory; /* of the block with its first byte */
    uint64_t at;
    size_t bytes;
    uint64_t first, last; /* FULL, WRITING: its whole blocks */
};

/* What is not of whole blocks: the maker's, who writes it while no thread does.
 * The file system lets no one into the cache beside a write past it. */
struct aside {
    char *data;
    size_t bytes;
    struct extent {
        uint64_t at;
        size_t bytes;
    } * extents;
    int count, room;
};

struct write_direct {
    int cached, direct; /* descriptors; the first is borrowed */
    const char *path;   /* borrowed */
    size_t block;       /* a page: none is both in the cache and past it */
    char *memory;
    struct aside aside;
    struct write_behind behind; /* it */
    struct progress *progress;  /* the maker's */
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

/* Under the lock. NULL: there is none. */
static struct piece *find(struct write_direct *direct, enum state state)
{
    for (int i = 0; i < PIECES; i++)
        if (direct->pieces[i].state == state)
            return &direct->pieces[i];
    return NULL;
}

/* Under the lock, which is left while it writes. After a failure nothing is
 * written any more. */
static void take_care(struct write_direct *direct, struct piece *piece)
{
    enum zd_status status = ZD_OK;
    bool writes = direct->status == ZD_OK;
    assert(piece->state == FULL);
    piece->state = WRITING;
    pthread_mutex_unlock(&direct->lock);
    if (writes)
        status = fs_pwrite(
                direct->direct, direct->path,
                piece->memory + (piece->first -
                                 piece->at / direct->block * direct->block),
                piece->last - piece->first, piece->first);
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
    direct->aside.data = malloc(ASIDE_BYTES);
    if (!direct->aside.data)
        return false;
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

/* Write the partial blocks once no write is in flight. */
static enum zd_status empty_aside(struct write_direct *direct)
{
    struct aside *aside = &direct->aside;
    const char *data = aside->data;
    pthread_mutex_lock(&direct->lock);
    while (find(direct, FULL) || find(direct, WRITING))
        pthread_cond_wait(&direct->changed, &direct->lock);
    enum zd_status status = failure(direct);
    pthread_mutex_unlock(&direct->lock);
    for (int i = 0; status == ZD_OK && i < aside->count; i++) {
        const struct extent *extent = &aside->extents[i];
        status = fs_pwrite(
                direct->cached, direct->path, data, extent->bytes, extent->at);
        write_behind(
                &direct->behind, direct->cached, extent->at, extent->bytes);
        data += extent->bytes;
    }
    aside->count = 0;
    aside->bytes = 0;
    return status;
}

/* Room for so much more, in `extents` more. */
static enum zd_status make_room_aside(
        struct write_direct *direct, size_t bytes, int extents)
{
    struct aside *aside = &direct->aside;
    if (aside->bytes + bytes > ASIDE_BYTES)
        ZD_TRY(empty_aside(direct));
    if (aside->count + extents <= aside->room)
        return ZD_OK;
    int room = 2 * (aside->room + extents);
    struct extent *more = realloc(aside->extents, (size_t)room * sizeof *more);
    if (!more)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    aside->extents = more;
    aside->room = room;
    return ZD_OK;
}

static void lay_aside(
        struct aside *aside, uint64_t at, const void *data, size_t bytes)
{
    struct extent *last = NULL;
    assert(aside->bytes + bytes <= ASIDE_BYTES);
    if (aside->count)
        last = &aside->extents[aside->count - 1];
    memcpy(aside->data + aside->bytes, data, bytes);
    aside->bytes += bytes;
    if (last && last->at + last->bytes == at)
        last->bytes += bytes;
    else if (bytes)
        aside->extents[aside->count++] = (struct extent){at, bytes};
    assert(aside->count <= aside->room);
}

enum zd_status write_direct_small(
        struct write_direct *direct, uint64_t at, const void *data,
        size_t bytes)
{
    assert(bytes <= WRITE_DIRECT_SMALL);
    ZD_TRY(make_room_aside(direct, bytes, 1));
    lay_aside(&direct->aside, at, data, bytes);
    return ZD_OK;
}

enum zd_status write_direct_room(
        struct write_direct *direct, uint64_t at, size_t bytes, void **out)
{
    struct piece *piece;
    assert(bytes <= WRITE_DIRECT_BYTES);
    if (direct->thread_count == 0)
        start_threads(direct);
    ZD_TRY(make_room_aside(direct, 2 * direct->block, 2)); /* for its edges */
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

/* Set partial blocks aside: other parts may share them. */
static void cut_edges(struct write_direct *direct, struct piece *piece)
{
    size_t block = direct->block;
    uint64_t end = piece->at + piece->bytes, base = piece->at / block * block;
    piece->first = (piece->at + block - 1) / block * block;
    piece->last = end / block * block;
    if (piece->first >= piece->last)
        piece->first = piece->last = end;
    lay_aside(
            &direct->aside, piece->at, piece->memory + (piece->at - base),
            piece->first - piece->at);
    lay_aside(
            &direct->aside, piece->last, piece->memory + (piece->last - base),
            end - piece->last);
}

void write_direct_put(struct write_direct *direct)
{
    pthread_mutex_lock(&direct->lock);
    struct piece *piece = find(direct, TAKEN);
    assert(piece);
    cut_edges(direct, piece);
    piece->state = piece->first < piece->last ? FULL : FREE;
    if (piece->state == FULL && direct->thread_count == 0)
        take_care(direct, piece); /* the system has no thread for it */
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
    enum zd_status status = empty_aside(direct);
    if (direct->direct >= 0)
        close(direct->direct);
    pthread_cond_destroy(&direct->changed);
    pthread_mutex_destroy(&direct->lock);
    free(direct->aside.extents);
    free(direct->aside.data);
    free(direct->memory);
    free(direct);
    return status;
}
