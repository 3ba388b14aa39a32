/* write_direct_threads - pieces of any length, at any place, by a maker and
 * writers of which now one and now the other is late
 * (base/file/write_direct.c): what is written is what was put, and lies in its
 * place; nothing goes into the cache while something is written past it.
 *
 * A plain program that prints TAP, for the sanitizers too. */
#include "base/file/fs.h"
#include "base/file/write_direct.h"
#include "base/number/rng.h"
#include "tests/support/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 12 << 20, BLOCK = 4096, RUNS = 6 };

static uint64_t seed;
static atomic_bool is_tried;  /* what is written is compared */
static atomic_int wrong;      /* bytes, and writes into the cache that wait */
static atomic_int under_way;  /* past the cache */
static uint64_t most_bytes;   /* of a piece */
static atomic_int calls, bad; /* the bad-th fails; 0: none */

static void be_late(uint64_t who, uint64_t at)
{
    float u = rng_uniform(seed, who, at);
    struct timespec time = {.tv_nsec = (long)(1000000 * u)};
    if (u > 0.5F)
        nanosleep(&time, NULL);
}

static char byte_at(uint64_t at)
{
    return (char)(at ^ at >> 8 ^ at >> 16);
}

static void compare(const char *data, size_t bytes, uint64_t at)
{
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != byte_at(at + i))
            atomic_fetch_add(&wrong, 1);
}

/* In the place of the library's: the bytes stay as they were put while they
 * are written. */
ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    bool direct = fcntl(fd, F_GETFL) & O_DIRECT, fails;
    if (!is_tried)
        return syscall(SYS_pwrite64, fd, data, bytes, at);
    if (direct)
        atomic_fetch_add(&under_way, 1);
    else if (atomic_load(&under_way))
        atomic_fetch_add(&wrong, 1);
    compare(data, bytes, (uint64_t)at);
    be_late(1, (uint64_t)at);
    fails = atomic_fetch_add(&calls, 1) + 1 == bad;
    ssize_t put = fails ? -1 : syscall(SYS_pwrite64, fd, data, bytes, at);
    compare(data, bytes, (uint64_t)at);
    if (direct)
        atomic_fetch_sub(&under_way, 1);
    if (fails)
        errno = EIO;
    return put;
}

/* The end of a piece that begins there: close to a block's edge, or far away.
 */
static uint64_t end_of(uint64_t begin, uint64_t random)
{
    static const uint64_t edges[] = {0, 1, 8, BLOCK - 1};
    uint64_t most = begin + most_bytes;
    uint64_t end = begin + 1 + random % most_bytes;
    if (random >> 40 & 1)
        end = end / BLOCK * BLOCK + edges[random >> 41 & 3];
    if (random >> 43 & 1)
        end = begin + 1 + random % 300;
    if (end <= begin)
        end = begin + 1;
    if (end > most)
        end = most;
    return end < BYTES ? end : BYTES;
}

static enum zd_status write_some(
        struct write_direct *direct, uint64_t at, size_t bytes)
{
    static char small[WRITE_DIRECT_SMALL];
    void *room = small;
    bool is_small = bytes <= sizeof small && rng_uniform(seed, 3, at) < 0.7F;
    if (!is_small)
        ZD_TRY(write_direct_room(direct, at, bytes, &room));
    for (size_t i = 0; i < bytes; i++)
        ((char *)room)[i] = byte_at(at + i);
    be_late(2, at);
    if (is_small)
        return write_direct_small(direct, at, small, bytes);
    write_direct_put(direct);
    return ZD_OK;
}

static enum zd_status write_pieces(struct write_direct *direct)
{
    for (uint64_t at = 0, end; at < BYTES; at = end) {
        end = end_of(at, rng_u64(seed, 0, at));
        ZD_TRY(write_some(direct, at, (size_t)(end - at)));
    }
    return ZD_OK;
}

static bool is_whole(const char *path)
{
    char *text;
    size_t bytes;
    if (fs_read_file(path, BYTES, &text, &bytes) != ZD_OK)
        return false;
    bool holds = bytes == BYTES;
    for (uint64_t i = 0; holds && i < BYTES; i++)
        holds = text[i] == byte_at(i);
    free(text);
    return holds;
}

/* -1: there are no such writes here. */
static int try(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    struct write_direct *direct =
            fd >= 0 && fs_reserve(fd, path, BYTES) == ZD_OK
                    ? write_direct_begin(fd, path, BYTES)
                    : NULL;
    if (!direct)
        return -1;
    atomic_store(&calls, 0);
    atomic_store(&is_tried, true);
    enum zd_status made = write_pieces(direct);
    enum zd_status status = write_direct_end(direct);
    atomic_store(&is_tried, false);
    close(fd);
    if (bad)
        return status == ZD_ERR_IO && (made == ZD_OK || made == ZD_ERR_IO);
    return made == ZD_OK && status == ZD_OK && !wrong && is_whole(path);
}

int main(void)
{
    struct scratch scratch;
    int failed = 0;
    scratch_init(&scratch);
    const char *path = scratch_path(&scratch, "f");
    for (int run = 1; run <= RUNS; run++) {
        seed = (uint64_t)run;
        atomic_store(&bad, run % 3 ? 0 : run);
        most_bytes = run % 3 == 2 ? WRITE_DIRECT_SMALL : WRITE_DIRECT_BYTES;
        int holds = try(path);
        failed += !holds;
        printf("%s %d - seed %d, %s%s\n", holds ? "ok" : "not ok", run, run,
               bad                                ? "a write that fails"
               : most_bytes == WRITE_DIRECT_SMALL ? "small pieces"
                                                  : "all sizes",
               holds < 0 ? " # SKIP no O_DIRECT in /tmp" : "");
    }
    scratch_fini(&scratch);
    printf("1..%d\n", RUNS);
    return failed != 0;
}
