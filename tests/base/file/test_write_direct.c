
#include "base/file/hash.h"
#include "base/file/safetensors.h"
#include "base/must.h"
#include "tests/support/scratch_suite.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

/* --- the system's calls, in the place of the library's -------------------- */

static atomic_size_t through_cache, past_cache; /* bytes, by fsync none */
static _Atomic int refusal; /* of writes past the cache: 0, or an errno .. */
static atomic_int after;    /* .. when so many were done */
static _Atomic int late_ms; /* each takes so much longer */
static size_t written_at_fsync;

static bool is_direct(int fd)
{
    return fcntl(fd, F_GETFL) & O_DIRECT;
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    bool direct = is_direct(fd);
    if (direct && refusal && atomic_fetch_sub(&after, 1) <= 0) {
        errno = refusal;
        return -1;
    }
    if (late_ms)
        poll(NULL, 0, late_ms);
    ssize_t put = syscall(SYS_pwrite64, fd, data, bytes, at);
    if (put > 0)
        atomic_fetch_add(direct ? &past_cache : &through_cache, (size_t)put);
    return put;
}

int fsync(int fd)
{
    written_at_fsync = past_cache + through_cache;
    return (int)syscall(SYS_fsync, fd);
}

TestSuite(write_direct, IN_SCRATCH, .timeout = 100);

/* floats, of each of two tensors */
enum { BLOCK = 4096, PART = 1 << 20, PARTS = 12 };

static struct st_writer *create(const char *name)
{
    static const struct st_entry two[] = {
            {"a", "F32", 1, {PART * PARTS}}, {"b", "F32", 1, {PART * PARTS}}};
    struct st_writer *writer;
    through_cache = past_cache = 0;
    MUST(st_writer_create(scratch_path(&scratch, name), two, 2, NULL, &writer));
    return writer;
}

/* Of one in turn with the other: into the writer's room, or handed over. */
static enum zd_status write_parts(struct st_writer *writer)
{
    enum zd_status status = ZD_OK;
    ZD_FREED float *own = malloc(PART * sizeof *own);
    for (int i = 0; status == ZD_OK && i < 2 * PARTS; i++) {
        void *room = own;
        if (i % 3)
            room = st_writer_room(writer, i % 2, PART * sizeof(float));
        for (int k = 0; k < PART; k++)
            ((float *)room)[k] = (float)(i * 7 + k);
        status = st_writer_add(writer, i % 2, room, PART * sizeof(float));
    }
    return status;
}

static void expect_whole(struct st_writer *writer)
{
    char hex[HASH_HEX], read[HASH_HEX];
    uint64_t bytes;
    MUST(write_parts(writer));
    MUST(st_writer_finish(writer, hex, &bytes));
    cr_expect_geq(
            written_at_fsync, bytes, "all is written before it is synced");
    MUST(st_digest(scratch.path, read));
    cr_expect_str_eq(hex, read);
}

Test(write_direct, all_but_the_edges_bypasses_the_cache)
{
    struct st_writer *writer = create("f");
    if (past_cache == 0)
        cr_skip("the file system of /tmp has no O_DIRECT");
    expect_whole(writer);
    cr_expect_leq(
            (size_t)through_cache, 4096 + (2 * PARTS * 2) * BLOCK,
            "the header, and less than a block at either end of each piece");
}

Test(write_direct, slow_writes_are_waited_for_before_the_fsync)
{
    struct st_writer *writer = create("f");
    late_ms = 10;
    expect_whole(writer);
}

Test(write_direct, without_direct_writes_the_cache_is_used)
{
    refusal = EINVAL;
    struct st_writer *writer = create("f");
    expect_whole(writer);
    cr_expect_eq((size_t)past_cache, 0);
}

Test(write_direct, a_failed_write_is_reported_and_leaves_no_file)
{
    struct st_writer *writer = create("f");
    if (past_cache == 0)
        cr_skip("the file system of /tmp has no O_DIRECT");
    after = 2 * PARTS - 1; /* the last: told by nothing but the end */
    refusal = EIO;
    MUST(write_parts(writer));
    REFUSED(st_writer_finish(writer, NULL, NULL), ZD_ERR_IO, "E0707",
            scratch.path);
    cr_expect_not(fs_exists(scratch.path));

    refusal = 0;
    writer = create("f");
    after = 2;
    refusal = ENOSPC;
    cr_expect_eq(write_parts(writer), ZD_ERR_IO, "a room, or what is added");
    cr_expect_str_eq(zd_error_get()->code, "E0707");
    st_writer_abandon(writer);
    cr_expect_str_eq(zd_error_get()->code, "E0707", "the cause stays");
    cr_expect_not(fs_exists(scratch.path));
}
