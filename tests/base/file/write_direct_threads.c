/* write_direct_threads - pieces of any length, at any place, by a maker and
 * writers of which now one and now the other is late
 * (base/file/write_direct.c): what is written is what was put, and lies in its
 * place.
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

enum { BYTES = 20 << 20, BLOCK = 4096, RUNS = 6 };

static uint64_t seed;
static atomic_bool is_tried;  /* what is written is compared */
static atomic_int wrong;      /* bytes */
static atomic_int calls, bad; /* the bad-th fails; 0: none */

static void be_late(uint64_t who, uint64_t at)
{
    float u = rng_uniform(seed, who, at);
    struct timespec time = {.tv_nsec = (long)(2000000 * u)};
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
    if (!is_tried)
        return syscall(SYS_pwrite64, fd, data, bytes, at);
    compare(data, bytes, (uint64_t)at);
    be_late(1, (uint64_t)at);
    if (atomic_fetch_add(&calls, 1) + 1 == bad) {
        errno = EIO;
        return -1;
    }
    ssize_t put = syscall(SYS_pwrite64, fd, data, bytes, at);
    compare(data, bytes, (uint64_t)at);
    return put;
}

/* The end of a piece that begins there: close to a block's edge, or far away.
 */
static uint64_t end_of(uint64_t begin, uint64_t random)
{
    static const uint64_t edges[] = {0, 1, 8, BLOCK - 1};
    uint64_t most = begin + WRITE_DIRECT_BYTES;
    uint64_t end = begin + 1 + random % WRITE_DIRECT_BYTES;
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

static enum zd_status write_pieces(struct write_direct *direct)
{
    for (uint64_t at = 0, end; at < BYTES; at = end) {
        void *room;
        end = end_of(at, rng_u64(seed, 0, at));
        ZD_TRY(write_direct_room(direct, at, (size_t)(end - at), &room));
        for (uint64_t i = at; i < end; i++)
            ((char *)room)[i - at] = byte_at(i);
        be_late(2, at);
        write_direct_put(direct);
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
        int holds = try(path);
        failed += !holds;
        printf("%s %d - seed %d, %s%s\n", holds ? "ok" : "not ok", run, run,
               bad ? "a write that fails" : "all written",
               holds < 0 ? " # SKIP no O_DIRECT in /tmp" : "");
    }
    scratch_fini(&scratch);
    printf("1..%d\n", RUNS);
    return failed != 0;
}
