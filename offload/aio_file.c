#include "base/file/fs.h"
#include "offload/aio.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static enum zd_status fail_create(const char *path, int error)
{
    enum zd_status status = error == EACCES || error == EPERM || error == EROFS
                                    ? ZD_ERR_DENIED
                                    : ZD_ERR_CREATE;
    zd_fail(status, "E0850", "cannot create the offload file: %s",
            strerror(error));
    return zd_fail_where("%s", path);
}

static enum zd_status fail_space(
        const struct aio_file *file, uint64_t bytes, uint64_t free_bytes,
        int error)
{
    zd_fail(ZD_ERR_IO, "E0852",
            "cannot reserve %llu bytes for the offload file: %s (%llu bytes "
            "are free)",
            (unsigned long long)bytes, strerror(error),
            (unsigned long long)free_bytes);
    zd_fail_where("%s", file->path);
    return zd_fail_help(
            "free some space, or set offload.nvme_path to a folder on another "
            "disk");
}

enum zd_status aio_file_check(uint64_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 ||
        limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes)
        return ZD_OK;
    zd_fail(ZD_ERR_UNFIT, "E0658",
            "the offload file needs %llu bytes; the file size limit is %llu",
            (unsigned long long)bytes, (unsigned long long)limit.rlim_cur);
    return zd_fail_help("ulimit -f unlimited");
}

static enum zd_status reserve(
        const struct aio_file *file, const char *dir, uint64_t bytes)
{
    uint64_t free_bytes;
    int error;
    ZD_TRY(aio_file_check(bytes)); /* else SIGXFSZ */
    ZD_TRY(fs_free_bytes(dir, &free_bytes));
    /* a failing posix_fallocate would fill the disk for a moment */
    if (free_bytes < bytes)
        return fail_space(file, bytes, free_bytes, ENOSPC);
    do
        error = posix_fallocate(file->fd, 0, (off_t)bytes);
    while (error == EINTR);
    return error ? fail_space(file, bytes, free_bytes, error) : ZD_OK;
}

/* Does O_DIRECT work with transfers aligned to AIO_ALIGN? A successful open
 * proves little, so read and write one page. */
static bool can_be_direct(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    void *page;
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_DIRECT) != 0)
        return false;
    bool holds = posix_memalign(&page, AIO_ALIGN, AIO_ALIGN) == 0;
    if (holds) {
        memset(page, 0, AIO_ALIGN);
        holds = pwrite(fd, page, AIO_ALIGN, 0) == AIO_ALIGN &&
                pread(fd, page, AIO_ALIGN, 0) == AIO_ALIGN;
        free(page);
    }
    if (!holds)
        fcntl(fd, F_SETFL, flags);
    return holds;
}

enum zd_status aio_file_create(
        struct aio_file *file, const char *dir, const char *name,
        uint64_t bytes, bool direct)
{
    memset(file, 0, sizeof *file);
    if (strlen(dir) + strlen(name) + sizeof "/.XXXXXX" > sizeof file->path)
        return fail_create(name, ENAMETOOLONG);
    ZD_PRINT(file->path, "%s/%s.XXXXXX", dir, name);
    int fd = mkostemp(file->path, O_CLOEXEC);
    if (fd < 0)
        return fail_create(file->path, errno);
    file->fd = fd;
    unlink(file->path);
    enum zd_status status = reserve(file, dir, bytes);
    if (status != ZD_OK) {
        aio_file_close(file);
        return status;
    }
    file->is_direct = direct && bytes >= AIO_ALIGN && can_be_direct(file->fd);
    return ZD_OK;
}

void aio_file_close(struct aio_file *file)
{
    if (file->fd > 0)
        close(file->fd);
    file->fd = 0;
}
