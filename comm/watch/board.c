/* Memory that the ranks of a host share: a file in memory of the host's first
 * rank, opened by the others through /proc. */
#include "base/must.h"
#include "comm/watch/private.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

static size_t board_bytes(int seats)
{
    return sizeof(struct board) + (size_t)seats * sizeof(struct seat);
}

struct board *board_create(int seats)
{
    return zd_must(calloc(1, board_bytes(seats)));
}

void seat_take(struct seat *seat)
{
    seat->pid = (int32_t)getpid();
    atomic_store(&seat->beat, seat_clock());
    seat_begin(seat, LANE_MESSAGES, 1, seat_word(SEAT_JOIN, DTYPE_FP32, 0));
    seat_wait_begin(seat, LANE_MESSAGES, 1);
}

/* --- joining -------------------------------------------------------------- */

/* NULL: it cannot be had. */
static struct board *map_file(const struct place *place, size_t bytes)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", place->pid, place->file);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *base = MAP_FAILED;
    if (fd < 0)
        return NULL;
    if (lseek(fd, 0, SEEK_END) >= (off_t)bytes)
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (base == MAP_FAILED)
        return NULL;
    /* in another container this may be another process' file */
    if (memcmp(((struct board *)base)->token, place->token,
               HOSTS_TOKEN_BYTES) != 0) {
        munmap(base, bytes);
        return NULL;
    }
    return base;
}

/* A file that holds a board of so many seats; -1: the system gives none. */
static int create_file(int seats, const unsigned char *token)
{
    int file = memfd_create("zerod ranks", MFD_CLOEXEC);
    if (file < 0)
        return -1;
    if (ftruncate(file, (off_t)board_bytes(seats)) != 0 ||
        pwrite(file, token, HOSTS_TOKEN_BYTES, 0) != HOSTS_TOKEN_BYTES) {
        close(file);
        return -1;
    }
    return file;
}

static void find_hosts(struct watch *watch)
{
    const struct place *all = watch->places;
    for (int r = 0; r < watch->size; r++) {
        watch->places[r].host[WATCH_HOST_MAX - 1] = '\0';
        watch->first[r] = 0;
        while (strcmp(all[watch->first[r]].host, all[r].host) != 0)
            watch->first[r]++;
    }
}

/* Where `rank` sits among the ranks of its host. */
struct sitting {
    int seat, count;
};

static struct sitting find_seat(const struct watch *watch)
{
    struct sitting sitting = {0};
    for (int r = 0; r < watch->size; r++) {
        if (watch->first[r] != watch->first[watch->rank])
            continue;
        if (r < watch->rank)
            sitting.seat++;
        sitting.count++;
    }
    return sitting;
}

/* Each rank of a host that could not share is a host of its own, with the seat
 * that it has. */
static void settle_hosts(struct watch *watch, int8_t *had)
{
    enum { HAS = 1, IS_BROKEN = 2 }; /* the second of a host, at its first */
    for (int r = 0; r < watch->size; r++)
        if (!(had[r] & HAS))
            had[watch->first[r]] |= IS_BROKEN;
    for (int r = 0; r < watch->size; r++)
        if (had[watch->first[r]] & IS_BROKEN)
            watch->first[r] = r;
}

/* The seat is another one from the moment on that the board is: until then, and
 * where nothing is shared, it is the first of the private board, which has no
 * others. */
static enum zd_status share(
        struct watch *watch, const struct watch_world *world)
{
    int first = watch->first[watch->rank];
    struct sitting all = find_seat(watch);
    size_t bytes = board_bytes(all.count);
    struct board *board = map_file(&watch->places[first], bytes);
    int8_t has = board != NULL;
    enum zd_status status =
            world->gather(world->ctx, &has, sizeof has, watch->flags);
    pthread_mutex_lock(&watch->lock);
    settle_hosts(watch, watch->flags);
    struct sitting settled = find_seat(watch);
    bool is_shared = status == ZD_OK && board && settled.count == all.count;
    if (is_shared) {
        watch->first_seat = settled.seat;
        watch->host_count = settled.count;
        watch->shared_bytes = bytes;
        watch->shared = board;
        seat_take(watch_own(watch, 0));
    }
    pthread_mutex_unlock(&watch->lock);
    if (board && !is_shared)
        munmap(board, bytes);
    return status;
}

static enum zd_status meet(struct watch *watch, const struct watch_world *world)
{
    struct place mine = {.pid = (int32_t)getpid()};
    snprintf(mine.host, sizeof mine.host, "%s", world->host);
    if (getrandom(mine.token, sizeof mine.token, 0) != sizeof mine.token)
        mine.token[0] = 0; /* only to tell files apart */
    /* as many seats as there are ranks: who shares is not known yet */
    mine.file = create_file(watch->size, mine.token);
    enum zd_status status =
            world->gather(world->ctx, &mine, sizeof mine, watch->places);
    if (status == ZD_OK) {
        pthread_mutex_lock(&watch->lock);
        find_hosts(watch);
        pthread_mutex_unlock(&watch->lock);
        status = share(watch, world);
    }
    if (mine.file >= 0)
        close(mine.file);
    return status;
}

static bool are_several(const struct watch *watch)
{
    for (int r = 1; r < watch->size; r++)
        if (watch->first[r] != watch->first[0])
            return true;
    return false;
}

static enum zd_status find_others(
        struct watch *watch, const struct watch_world *world)
{
    struct hosts_about mine;
    if (!are_several(watch))
        return ZD_OK;
    hosts_open(watch->hosts, watch->rank, watch->first, &watch->calls, &mine);
    enum zd_status status = world->gather(
            world->ctx, &mine, sizeof mine, hosts_all(watch->hosts));
    pthread_mutex_lock(&watch->lock);
    hosts_join(watch->hosts, status == ZD_OK);
    pthread_mutex_unlock(&watch->lock);
    return status;
}

void watch_prepare(struct watch *watch, int rank, int size)
{
    size_t count = (size_t)size;
    pthread_mutex_lock(&watch->lock);
    watch->rank = rank;
    watch->size = size;
    watch->first = zd_must(calloc(count, sizeof *watch->first));
    watch->places = zd_must(calloc(count, sizeof *watch->places));
    watch->flags = zd_must(calloc(count, sizeof *watch->flags));
    watch->told = zd_must(calloc(count, sizeof *watch->told));
    watch->heard = zd_must(calloc(count, sizeof *watch->heard));
    watch->ever_heard = zd_must(calloc(count, sizeof *watch->ever_heard));
    watch->hosts = hosts_create(size);
    pthread_mutex_unlock(&watch->lock);
}

/* All ranks are threads of this process. */
static void join_threads(struct watch *watch, const struct watch_world *world)
{
    pthread_mutex_lock(&watch->lock);
    for (int r = 0; r < watch->size; r++)
        snprintf(
                watch->places[r].host, sizeof watch->places[r].host, "%s",
                world->host);
    find_hosts(watch);
    watch->host_count = watch->size;
    pthread_mutex_unlock(&watch->lock);
}

enum zd_status watch_join(struct watch *watch, const struct watch_world *world)
{
    if (!world->gather) {
        join_threads(watch, world);
    } else {
        ZD_TRY(meet(watch, world));
        ZD_TRY(find_others(watch, world));
    }
    for (int n = 0; n < watch->count; n++)
        seat_wait_end(watch_own(watch, n));
    return ZD_OK;
}

void board_leave(struct watch *watch)
{
    if (watch->shared)
        munmap(watch->shared, watch->shared_bytes);
    watch->shared = NULL;
    watch->first_seat = 0;
}
