#include "base/file/fs.h"
#include "base/file/safetensors.h"
#include "base/must.h"
#include "base/progress.h"
#include "base/threads.h"
#include "tests/support/scratch_suite.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

TestSuite(progress, IN_SCRATCH, .timeout = 100);

static struct progress work;

/* What was completed since it was asked last. */
static uint64_t completed(void)
{
    return atomic_exchange(&work.completed, 0);
}

Test(progress, reads_writes_and_fsyncs_are_counted)
{
    const char *path = scratch_path(&scratch, "file");
    ZD_FREED char *data = NULL;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    cr_assert_null(progress_use(&work));
    MUST(fs_pwrite(fd, path, "abc", 3, 0));
    cr_expect_eq(completed(), 1, "a write");
    MUST(fs_pread(fd, path, (char[3]){0}, 3, 0));
    cr_expect_eq(completed(), 1, "a read");
    close(fd);
    MUST(fs_sync_dir(scratch.dir));
    cr_expect_eq(completed(), 1, "an fsync of a folder");
    MUST(fs_write_file(path, "abcd", 4));
    cr_expect_eq(completed(), 3, "a write, an fsync, that of the folder");
    MUST(fs_read_file(path, 10, &data, NULL));
    cr_expect_eq(completed(), 1);
}

/* Of the file, in the page cache; -1: it is all there is of it. */
static int resident_pages(const char *path, size_t bytes)
{
    enum { PAGE = 4096 };
    struct statfs system;
    size_t pages = bytes / PAGE;
    ZD_FREED unsigned char *found = calloc(1, pages);
    int count = 0, fd = open(path, O_RDONLY | O_CLOEXEC);
    void *map = mmap(NULL, pages * PAGE, PROT_READ, MAP_SHARED, fd, 0);
    cr_assert(
            map != MAP_FAILED && fstatfs(fd, &system) == 0 &&
            mincore(map, pages * PAGE, found) == 0);
    for (size_t i = 0; i < pages; i++)
        count += found[i] & 1;
    munmap(map, pages * PAGE);
    close(fd);
    return system.f_type == TMPFS_MAGIC ? -1 : count;
}

/* In the place of the library's. */
static bool refuses_direct;
int open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    unsigned mode = flags & O_CREAT ? va_arg(more, unsigned) : 0;
    va_end(more);
    if (refuses_direct && flags & O_DIRECT) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

/* Else the fsync of a large file on a slow disk is one call of minutes, in
 * which no one can tell that it goes on. */
static void write_large(size_t each, int batches)
{
    enum { BYTES = 96 << 20, STAY = FS_BEHIND_BYTES };
    struct st_entry entry = {
            .name = "a", .dtype = "U8", .dims = 1, .shape = {BYTES}};
    struct st_writer *writer;
    const char *path = scratch_path(&scratch, "a.safetensors");
    ZD_FREED char *part = calloc(1, each);
    progress_use(&work);
    MUST(st_writer_create(path, &entry, 1, NULL, &writer));
    completed();
    for (size_t done = 0; done < BYTES; done += each)
        MUST(st_writer_add(writer, 0, part, each));
    if (batches)
        cr_expect_eq(
                completed(), BYTES / each + (size_t)batches,
                "writes, and each batch when it is on the disk");
    cr_expect_leq(
            resident_pages(path, BYTES), STAY / 4096,
            "what was written first left the page cache");
    MUST(st_writer_finish(writer, NULL, NULL));
}

Test(progress, a_large_tensor_file_goes_to_the_disk_as_it_is_written)
{
    refuses_direct = true;
    write_large(64 << 10, 3);
}

Test(progress, direct_writes_are_counted)
{
    write_large(4 << 20, 0);
}

Test(progress, small_parts_next_to_direct_writes_are_counted)
{
    write_large(64 << 10, 0);
}

static void *write_elsewhere(void *ctx)
{
    fs_write_file(ctx, "abc", 3);
    return NULL;
}

Test(progress, each_thread_says_where_it_counts)
{
    pthread_t thread;
    static char path[4096];
    strcpy(path, scratch_path(&scratch, "file"));
    cr_assert_null(progress_use(&work));
    cr_assert_eq(thread_start(&thread, "other", write_elsewhere, path), 0);
    pthread_join(thread, NULL);
    cr_expect_eq(completed(), 0, "this thread has written nothing");
    cr_expect_eq(progress_use(NULL), &work);
    write_elsewhere(path);
    cr_expect_eq(completed(), 0, "nowhere to count");
}
