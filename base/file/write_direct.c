#include "base/file/write_direct.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "base/progress.h"
#include "base/threads.h"

#include <assert.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Two writes in flight keep a disk busy while a third piece is filled. */
enum { PIECES = 3, ASIDE_BYTES = 4 << 20, ASIDE_PARTS = 4096 };
static const uint64_t FILE_LEAST = 2 * WRITE_DIRECT_BYTES;

/* Each has a thread. The producer owns a piece from its wait for `free`
 * (write_direct_room) until it posts `full` (write_direct_put); then the thread
 * owns it until it posts `free`. The threads are kept: during training a new
 * thread waits long for a core. */
struct piece {
    const struct write_direct *of;
    sem_t free, full;
    pthread_t thread;
    bool has_thread; /* else the maker writes it */
    char *memory;    /* of the block with its first byte */
    uint64_t at;
    size_t bytes;
    uint64_t first, last;      /* its whole blocks */
    struct progress *progress; /* the maker's */
    enum zd_status status;
    struct zd_error error; /* of a status that is a failure */
};

/* Bytes outside whole blocks. They are written while no piece is in flight: the
 * file system blocks cached writes during a direct one, so the producer would
 * wait for the disk at every edge. */
struct aside {
    char data[ASIDE_BYTES];
    size_t bytes;
    int count;
    struct {
        uint64_t at;
        size_t bytes;
    } parts[ASIDE_PARTS];
};

struct write_direct {
    int cached, direct; /* descriptors; the first is borrowed */
    const char *path;   /* borrowed */
    size_t block; /* a page, so that no page is written both cached and directly
                   */
    struct piece pieces[PIECES];
    int made; /* the maker's next piece */
    bool is_taken, is_ending;
    struct aside *aside;
    size_t behind;         /* of it (fs_write_behind) */
    enum zd_status status; /* of the first write that failed, and .. */
    struct zd_error error; /* .. its record */
};

static char *memory_at(const struct piece *piece, uint64_t at)
{
    return piece->memory +
           (at - piece->at / piece->of->block * piece->of->block);
}

static void await(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0)
        continue; /* a signal */
}

static void write_blocks(struct piece *piece)
{
    const struct write_direct *of = piece->of;
    piece->status = fs_pwrite(
            of->direct, of->path, memory_at(piece, piece->first),
            piece->last - piece->first, piece->first);
    piece->error = *zd_error_get();
}

static void *run(void *ctx)
{
    struct piece *piece = ctx;
    for (;;) {
        await(&piece->full);
        if (piece->of->is_ending)
            return NULL;
        progress_use(piece->progress);
        write_blocks(piece);
        sem_post(&piece->free);
    }
}

/* The producer owns the piece. */
static void take(struct write_direct *direct, struct piece *piece)
{
    await(&piece->free);
    if (piece->status != ZD_OK && direct->status == ZD_OK) {
        direct->status = piece->status;
        direct->error = piece->error;
    }
}

static void begin_piece(struct write_direct *direct, struct piece *piece)
{
    piece->of = direct;
    piece->memory = zd_must(aligned_alloc(
            direct->block, WRITE_DIRECT_BYTES + 2 * direct->block));
    sem_init(&piece->free, 0, 1);
    sem_init(&piece->full, 0, 0);
    piece->has_thread =
            thread_start(&piece->thread, "zerod-write", run, piece) == 0;
}

static void end_piece(struct piece *piece)
{
    sem_post(&piece->full);
    if (piece->has_thread)
        pthread_join(piece->thread, NULL);
    sem_destroy(&piece->free);
    sem_destroy(&piece->full);
    free(piece->memory);
}

/* A successful open proves little, so a block is written. */
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
    direct->aside = zd_must(malloc(sizeof *direct->aside));
    direct->aside->count = 0;
    direct->aside->bytes = 0;
    for (int i = 0; i < PIECES; i++)
        begin_piece(direct, &direct->pieces[i]);
    if (direct->direct >= 0 && takes_blocks(direct))
        return direct;
    write_direct_end(direct);
    return NULL;
}

static enum zd_status failure(const struct write_direct *direct)
{
    if (direct->status != ZD_OK)
        zd_error_set(&direct->error);
    return direct->status;
}

/* Writes all pieces and the bytes that were set aside. */
static enum zd_status finish(struct write_direct *direct)
{
    struct aside *aside = direct->aside;
    const char *data = aside->data;
    for (int i = 0; i < PIECES; i++) {
        struct piece *piece = &direct->pieces[i];
        if (i == direct->made && direct->is_taken)
            continue;
        take(direct, piece);
        sem_post(&piece->free);
    }
    ZD_TRY(failure(direct));
    for (int i = 0; i < aside->count; i++) {
        uint64_t at = aside->parts[i].at;
        size_t bytes = aside->parts[i].bytes;
        ZD_TRY(fs_pwrite(direct->cached, direct->path, data, bytes, at));
        fs_write_behind(direct->cached, &direct->behind, bytes);
        data += bytes;
    }
    aside->count = 0;
    aside->bytes = 0;
    return ZD_OK;
}

enum zd_status write_direct_small(
        struct write_direct *direct, uint64_t at, const void *data,
        size_t bytes)
{
    struct aside *aside = direct->aside;
    assert(bytes <= WRITE_DIRECT_SMALL);
    if (!bytes)
        return ZD_OK;
    if (aside->bytes + bytes > ASIDE_BYTES || aside->count == ASIDE_PARTS)
        ZD_TRY(finish(direct));
    memcpy(aside->data + aside->bytes, data, bytes);
    aside->bytes += bytes;
    aside->parts[aside->count].at = at;
    aside->parts[aside->count++].bytes = bytes;
    return ZD_OK;
}

void *write_direct_room(struct write_direct *direct, uint64_t at, size_t bytes)
{
    struct piece *piece = &direct->pieces[direct->made];
    assert(bytes <= WRITE_DIRECT_BYTES);
    if (!direct->is_taken)
        take(direct, piece);
    direct->is_taken = true;
    piece->at = at;
    piece->bytes = bytes;
    return memory_at(piece, at);
}

enum zd_status write_direct_put(struct write_direct *direct)
{
    struct piece *piece = &direct->pieces[direct->made];
    size_t block = direct->block;
    uint64_t at = piece->at, end = at + piece->bytes;
    ZD_TRY(failure(direct));
    piece->first = (at + block - 1) / block * block;
    piece->last = end / block * block;
    if (piece->first >= piece->last)
        return write_direct_small(
                direct, at, memory_at(piece, at), piece->bytes);
    ZD_TRY(write_direct_small(
            direct, at, memory_at(piece, at), piece->first - at));
    ZD_TRY(write_direct_small(
            direct, piece->last, memory_at(piece, piece->last),
            end - piece->last));
    direct->made = (direct->made + 1) % PIECES;
    direct->is_taken = false;
    piece->progress = progress_use(NULL);
    progress_use(piece->progress);
    if (!piece->has_thread)
        write_blocks(piece);
    sem_post(piece->has_thread ? &piece->full : &piece->free);
    return ZD_OK;
}

enum zd_status write_direct_end(struct write_direct *direct)
{
    if (!direct)
        return ZD_OK;
    enum zd_status status = finish(direct);
    if (direct->direct >= 0)
        close(direct->direct);
    direct->is_ending = true;
    for (int i = 0; i < PIECES; i++)
        end_piece(&direct->pieces[i]);
    free(direct->aside);
    free(direct);
    return status;
}
