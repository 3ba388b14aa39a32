#include "base/file/fs.h"

#include "base/progress.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Why a path cannot be opened for reading. */
static enum zd_status fail_open(const char *path, int error)
{
    struct stat link;
    switch (error) {
    case ENOENT:
    case ENOTDIR:
        return ZD_FAIL(
                ZD_ERR_NO_INPUT, "E0712",
                lstat(path, &link) == 0
                        ? "%s is a link to a file that does not exist"
                        : "%s does not exist",
                path);
    case EACCES:
    case EPERM:
        return ZD_FAIL(
                ZD_ERR_DENIED, "E0702", "no permission to read %s", path);
    default:
        ZD_FAIL(ZD_ERR_IO, "E0706", "cannot open %s: %s", path,
                strerror(error));
        if (error == EMFILE)
            zd_fail_help("allow this process more open files: ulimit -n 4096");
        return ZD_ERR_IO;
    }
}

/* Why it is unknown whether a name exists. */
static enum zd_status fail_look(const char *path, int error)
{
    if (error != EACCES)
        return fail_open(path, error);
    return ZD_FAIL(
            ZD_ERR_DENIED, "E0702", "no permission to enter the folder of %s",
            path);
}

static enum zd_status fail_write(const char *path, int error)
{
    enum zd_status status = ZD_FAIL(
            ZD_ERR_IO, "E0707", "cannot write %s: %s", path, strerror(error));
    if (error == ENOSPC || error == EDQUOT)
        zd_fail_help("free some space on that file system");
    return status;
}

static enum zd_status check_regular(const char *path, const struct stat *info)
{
    if (S_ISREG(info->st_mode))
        return ZD_OK;
    const char *kind = S_ISDIR(info->st_mode)    ? "a directory"
                       : S_ISFIFO(info->st_mode) ? "a FIFO"
                       : S_ISSOCK(info->st_mode) ? "a socket"
                                                 : "a device";
    return ZD_BAD("E0703", "%s is %s, not a file", path, kind);
}

enum zd_status fs_open_read(const char *path, int *fd_out, uint64_t *size_out)
{
    struct stat info;
    /* Looked at before it is opened, because opening a device can act on it,
     * and after, because it may have been replaced; O_NONBLOCK, because opening
     * a FIFO would wait for a writer. */
    if (stat(path, &info) != 0)
        return fail_open(path, errno);
    ZD_TRY(check_regular(path, &info));
    int fd;
    do
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return fail_open(path, errno);
    enum zd_status status = fstat(fd, &info) != 0 ? fail_open(path, errno)
                                                  : check_regular(path, &info);
    if (status != ZD_OK) {
        close(fd);
        return status;
    }
    *fd_out = fd;
    if (size_out)
        *size_out = (uint64_t)info.st_size;
    return ZD_OK;
}

FILE *fs_open_lines(const char *path)
{
    struct zd_error before = *zd_error_get();
    FILE *file = NULL;
    int fd;
    if (fs_open_read(path, &fd, NULL) != ZD_OK) {
        zd_error_set(&before);
        return NULL;
    }
    file = fdopen(fd, "r");
    if (!file)
        close(fd);
    return file;
}

enum zd_status fs_pread(
        int fd, const char *path, void *data, size_t bytes, uint64_t offset)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t got = pread(
                fd, (char *)data + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ZD_FAIL(
                    ZD_ERR_IO, "E0706", "cannot read %s: %s", path,
                    strerror(errno));
        if (got == 0)
            return ZD_BAD(
                    "E0705", "%s ends at byte %llu, %zu bytes early", path,
                    (unsigned long long)(offset + done), bytes - done);
        done += (size_t)got;
        progress_completed();
    }
    return ZD_OK;
}

enum zd_status fs_read_file(
        const char *path, uint64_t max, char **data_out, size_t *bytes_out)
{
    uint64_t bytes;
    char *data = NULL;
    int fd;
    enum zd_status status;
    ZD_TRY(fs_open_read(path, &fd, &bytes));
    if (bytes > max)
        status = ZD_BAD(
                "E0704", "%s has %llu bytes, more than the %llu allowed", path,
                (unsigned long long)bytes, (unsigned long long)max);
    else if (!(data = malloc((size_t)bytes + 1)))
        status = ZD_FAIL(
                ZD_ERR_MEMORY, "E0602", "out of memory reading %s", path);
    else
        status = fs_pread(fd, path, data, (size_t)bytes, 0);
    close(fd);
    if (status != ZD_OK) {
        free(data);
        return status;
    }
    data[bytes] = '\0';
    *data_out = data;
    if (bytes_out)
        *bytes_out = (size_t)bytes;
    return ZD_OK;
}

enum zd_status fs_pwrite(
        int fd, const char *path, const void *data, size_t bytes,
        uint64_t offset)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t put =
                pwrite(fd, (const char *)data + done, bytes - done,
                       (off_t)(offset + done));
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return fail_write(path, errno);
        done += (size_t)put;
        progress_completed();
    }
    return ZD_OK;
}

void fs_write_behind(int fd, size_t *behind, size_t bytes)
{
    *behind += bytes;
    if (*behind < FS_BEHIND_BYTES)
        return;
    *behind = 0;
    sync_file_range(
            fd, 0, 0,
            SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                    SYNC_FILE_RANGE_WAIT_AFTER);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    progress_completed();
}

static int open_folder(const char *path)
{
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Closes it. */
static enum zd_status sync_folder(int fd, const char *path)
{
    enum zd_status status = ZD_OK;
    /* some network file systems cannot sync a folder and say EINVAL */
    if (fsync(fd) != 0 && errno != EINVAL)
        status = fail_write(path, errno);
    progress_completed();
    close(fd);
    return status;
}

/* For dirname and basename, which write into what they are given. */
static char *copy_path(const char *path, char out[PATH_MAX])
{
    int length = snprintf(out, PATH_MAX, "%s", path);
    assert(length < PATH_MAX);
    (void)length;
    return out;
}

enum zd_status fs_sync_dir(const char *path)
{
    int fd = open_folder(path);
    return fd < 0 ? fail_open(path, errno) : sync_folder(fd, path);
}

/* Syncs the whole file system: for a folder that we may write to but not
 * read. */
static enum zd_status sync_all(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fail_open(path, errno);
    enum zd_status status = syncfs(fd) == 0 ? ZD_OK : fail_write(path, errno);
    close(fd);
    return status;
}

enum zd_status fs_sync_name(const char *path)
{
    char copy[PATH_MAX];
    const char *folder = dirname(copy_path(path, copy));
    int fd = open_folder(folder);
    if (fd < 0 && errno == EACCES)
        return sync_all(path);
    return fd < 0 ? fail_open(folder, errno) : sync_folder(fd, folder);
}

enum zd_status fs_reserve(int fd, const char *path, uint64_t bytes)
{
    int refused = fallocate(fd, 0, 0, (off_t)bytes) == 0 ? 0 : errno;
    if (refused == EOPNOTSUPP || refused == ENOSYS || refused == EINVAL)
        refused = ftruncate(fd, (off_t)bytes) == 0 ? 0 : errno;
    progress_completed();
    return refused ? fail_write(path, refused) : ZD_OK;
}

enum zd_status fs_sync_close(int fd, const char *path)
{
    enum zd_status status = ZD_OK;
    if (fsync(fd) != 0)
        status = fail_write(path, errno);
    progress_completed();
    if (close(fd) != 0 && status == ZD_OK)
        status = fail_write(path, errno);
    return status;
}

enum zd_status fs_create_status(int error)
{
    return error == EACCES || error == EPERM ? ZD_ERR_DENIED : ZD_ERR_CREATE;
}

int fs_create(const char *path, mode_t mode)
{
    if (unlink(path) != 0 && errno != ENOENT)
        return -1;
    return open(
            path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
}

static enum zd_status write_and_sync(
        const char *path, const void *data, size_t bytes)
{
    int fd = fs_create(path, 0644);
    if (fd < 0) {
        ZD_FAIL(fs_create_status(errno), "E0708", "cannot create %s: %s", path,
                strerror(errno));
        return zd_fail_help("its folder must be there, and be writable");
    }
    enum zd_status status = fs_pwrite(fd, path, data, bytes, 0);
    enum zd_status synced = fs_sync_close(fd, path);
    return status != ZD_OK ? status : synced;
}

enum zd_status fs_write_file(const char *path, const void *data, size_t bytes)
{
    char beside[PATH_MAX];
    int length = ZD_PRINT(beside, "%s.tmp", path);
    if (length >= (int)sizeof beside)
        return ZD_FAIL(ZD_ERR_CREATE, "E0708", "the path %s is too long", path);
    enum zd_status status = write_and_sync(beside, data, bytes);
    if (status == ZD_OK && rename(beside, path) != 0)
        status = fail_write(path, errno);
    if (status != ZD_OK) {
        unlink(beside);
        return status;
    }
    return fs_sync_name(path);
}

enum zd_status fs_make_dirs(const char *path)
{
    char part[PATH_MAX];
    size_t length = strlen(path);
    if (length >= sizeof part)
        return ZD_FAIL(ZD_ERR_CREATE, "E0708", "the path %s is too long", path);
    memcpy(part, path, length + 1);
    for (size_t i = 1; i <= length; i++) {
        if (part[i] != '/' && part[i] != '\0')
            continue;
        part[i] = '\0';
        bool is_made = mkdir(part, 0755) == 0;
        if (!is_made && !fs_is_dir(part))
            return ZD_FAIL(
                    fs_create_status(errno), "E0708",
                    "cannot make the folder %s: %s", part,
                    errno == EEXIST ? "something else has that name"
                                    : strerror(errno));
        if (is_made)
            ZD_TRY(fs_sync_name(part));
        part[i] = path[i];
    }
    return ZD_OK;
}

bool fs_is_dir(const char *path)
{
    /* errno is left to the caller, who may be about to explain a failure */
    int saved = errno;
    struct stat info;
    bool is_dir = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    errno = saved;
    return is_dir;
}

bool fs_exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

enum zd_status fs_look(const char *path, bool *is_there_out)
{
    struct stat info;
    *is_there_out = lstat(path, &info) == 0;
    if (!*is_there_out && errno != ENOENT && errno != ENOTDIR)
        return fail_look(path, errno);
    return ZD_OK;
}

/* NULL at the end or after a failure; then *error_out is its errno. */
static const char *next_name(DIR *dir, int *error_out)
{
    struct dirent *entry;
    do {
        errno = 0; /* of readdir: the end and a failure look alike */
        entry = readdir(dir);
    } while (entry && (strcmp(entry->d_name, ".") == 0 ||
                       strcmp(entry->d_name, "..") == 0));
    *error_out = entry ? 0 : errno;
    return entry ? entry->d_name : NULL;
}

enum zd_status fs_each_name(
        const char *path, enum zd_status (*take)(void *ctx, const char *name),
        void *ctx)
{
    enum zd_status status = ZD_OK;
    const char *name;
    int error = 0;
    DIR *dir = opendir(path);
    if (!dir)
        return fail_open(path, errno);
    while (status == ZD_OK && (name = next_name(dir, &error)))
        status = take(ctx, name);
    if (error)
        status =
                ZD_FAIL(ZD_ERR_IO, "E0706", "cannot read %s: %s", path,
                        strerror(error));
    closedir(dir);
    return status;
}

enum { REMOVE_DEPTH = 64 };

static int remove_at(int parent, const char *name, int depth);

/* Empties the folder and closes it. Returns an errno. */
static int empty_folder(int fd, int depth)
{
    DIR *dir = fdopendir(fd);
    int error = dir ? 0 : errno;
    const char *name;
    if (!dir)
        close(fd);
    while (dir && !error && (name = next_name(dir, &error)))
        error = remove_at(dirfd(dir), name, depth);
    if (dir)
        closedir(dir);
    return error;
}

/* Every folder is opened relative to its parent, without following links, so
 * that a link put in its place meanwhile does no harm. Returns an errno. */
static int remove_at(int parent, const char *name, int depth)
{
    int fd = openat(
            parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int error = fd < 0 ? errno : 0;
    int flags = fd < 0 ? 0 : AT_REMOVEDIR;
    progress_completed(); /* removing a file of gigabytes takes a while */
    if (error == ENOTDIR || error == ELOOP)
        error = 0;
    else if (fd >= 0 && depth == REMOVE_DEPTH) {
        close(fd);
        error = ENAMETOOLONG;
    } else if (fd >= 0)
        error = empty_folder(fd, depth + 1);
    if (!error && unlinkat(parent, name, flags) != 0)
        error = errno;
    return error == ENOENT ? 0 : error; /* removed by another at this moment */
}

enum zd_status fs_remove_tree(const char *path)
{
    char folder[PATH_MAX], name[PATH_MAX];
    int fd = open(
            dirname(copy_path(path, folder)), O_PATH | O_DIRECTORY | O_CLOEXEC);
    int error =
            fd < 0 ? errno : remove_at(fd, basename(copy_path(path, name)), 0);
    if (fd >= 0)
        close(fd);
    if (!error || error == ENOENT)
        return ZD_OK;
    return ZD_FAIL(
            ZD_ERR_IO, "E0709", "cannot remove %s: %s", path, strerror(error));
}

enum zd_status fs_free_bytes(const char *path, uint64_t *bytes_out)
{
    struct statvfs info;
    if (statvfs(path, &info) != 0)
        return fail_look(path, errno);
    *bytes_out = (uint64_t)info.f_bavail * info.f_frsize;
    return ZD_OK;
}

void fs_join(char *out, size_t out_bytes, const char *dir, const char *name)
{
    size_t length = strlen(dir);
    const char *between = length && dir[length - 1] == '/' ? "" : "/";
    int written = snprintf(out, out_bytes, "%s%s%s", dir, between, name);
    assert(written >= 0 && (size_t)written < out_bytes);
    (void)written;
}

struct fs_path fs_in(const char *dir, const char *name)
{
    struct fs_path path;
    fs_join(path.text, sizeof path.text, dir, name);
    return path;
}
