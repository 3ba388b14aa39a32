#include "train/trainer/output_dir.h"

#include "base/file/fs.h"
#include "base/log.h"
#include "base/must.h"
#include "train/checkpoint/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOCK_FILE ".zerod.lock"

/* Retries, because zerodctl briefly takes a shared lock to see if it is held.
 */
static bool lock_soon(int fd)
{
    const struct timespec moment = {.tv_nsec = 10000000};
    for (int tries = 0; tries < 5; tries++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return true;
        nanosleep(&moment, NULL);
    }
    return false;
}

static enum zd_status take_lock(struct output_dir *dir)
{
    char holder[128] = "";
    const struct fs_path path = fs_in(dir->path, LOCK_FILE);
    int fd = open(path.text, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (fd < 0)
        return ZD_FAIL(
                fs_create_status(errno), "E0733", "cannot create %s: %s",
                path.text, strerror(errno));
    if (!lock_soon(fd)) {
        ssize_t n = pread(fd, holder, sizeof holder - 1, 0);
        if (n > 0)
            holder[strcspn(holder, "\n")] = '\0';
        close(fd);
        ZD_FAIL(ZD_ERR_CREATE, "E0734", "%s is in use by another job (%s)",
                dir->path, n > 0 ? holder : "unknown");
        return zd_fail_help(
                "wait for it, or give this job another job.output_dir");
    }
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    int n = ZD_PRINT(holder, "pid %ld on %s\n", (long)getpid(), host);
    if (ftruncate(fd, 0) != 0 || pwrite(fd, holder, (size_t)n, 0) != n)
        zd_log_debug("cannot write %s: %s", path.text, strerror(errno));
    dir->lock = fd;
    return ZD_OK;
}

/* Files to append rows to must be regular files, checked before anything is
 * written here: a FIFO would wait for a reader, and a link may come from
 * another member of the folder's group. */
static enum zd_status check_rows(const struct output_dir *dir)
{
    static const char *const names[] = {"metrics.jsonl", "events.jsonl"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct stat info;
        const struct fs_path path = fs_in(dir->path, names[i]);
        if (lstat(path.text, &info) == 0 && !S_ISREG(info.st_mode))
            return ZD_FAIL(
                    ZD_ERR_CREATE, "E0731",
                    "%s is %s, and rows of the run belong there", path.text,
                    S_ISDIR(info.st_mode)    ? "a folder"
                    : S_ISFIFO(info.st_mode) ? "a FIFO"
                    : S_ISLNK(info.st_mode)  ? "a link"
                                             : "no file");
    }
    return ZD_OK;
}

/* Creates the folder with the mode; an existing one keeps its own. */
static enum zd_status make(const char *path, mode_t mode)
{
    bool is_there = fs_exists(path);
    if (fs_make_dirs(path) != ZD_OK)
        return zd_fail_help("job.output_dir names a folder that can be made; "
                            "its default is out/NAME");
    /* set the requested mode in spite of the umask */
    if (!is_there && chmod(path, mode) != 0)
        return ZD_FAIL(
                ZD_ERR_CREATE, "E0708", "cannot set the mode of %s: %s", path,
                strerror(errno));
    return ZD_OK;
}

static enum zd_status prepare(struct output_dir *dir)
{
    ZD_TRY(make(dir->path, dir->mode));
    ZD_TRY(fs_sync_name(dir->path)); /* also if a killed run has created it */
    ZD_TRY(take_lock(dir));
    ZD_TRY(check_rows(dir));
    return checkpoint_sweep(dir->path);
}

/* Rank 0 writes a file with a number unique to this start; a rank that cannot
 * read it back uses another disk. */
static enum zd_status check_shared(struct comm *comm, struct output_dir *dir)
{
    char expected[80];
    ZD_FREED char *found = NULL;
    const struct fs_path path = fs_in(dir->path, ".zerod.probe");
    enum zd_status status = ZD_OK;
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    ZD_PRINT(
            expected, "%ld at %lld.%09ld", (long)getpid(),
            (long long)now.tv_sec, now.tv_nsec);
    ZD_TRY(comm_broadcast(comm, expected, sizeof expected, 0));
    ZD_TRY(COMM_FIRST(
            comm, fs_write_file(path.text, expected, strlen(expected))));
    if (comm_rank(comm) != 0) {
        size_t bytes;
        status = fs_read_file(path.text, sizeof expected, &found, &bytes);
        if (status != ZD_ERR_MEMORY &&
            (status != ZD_OK || strcmp(found, expected) != 0)) {
            zd_error_clear();
            status = ZD_FAIL(
                    ZD_ERR_CREATE, "E0735",
                    "output_dir %s on host %s is not the folder that rank 0 "
                    "(host of the first rank) writes to",
                    dir->path, comm_host(comm));
            zd_fail_help("put job.output_dir on a file system that all hosts "
                         "share");
        }
    }
    status = comm_agree(comm, status);
    if (comm_rank(comm) == 0)
        unlink(path.text);
    return status;
}

enum zd_status output_dir_open(
        struct comm *comm, const char *path, mode_t mode,
        struct output_dir *dir)
{
    *dir = (struct output_dir){.path = path, .mode = mode, .lock = -1};
    enum zd_status status = COMM_FIRST(comm, prepare(dir));
    if (status == ZD_OK && comm_size(comm) > 1)
        status = check_shared(comm, dir);
    if (status != ZD_OK)
        output_dir_close(dir);
    return status;
}

void output_dir_close(struct output_dir *dir)
{
    if (dir->lock >= 0)
        close(dir->lock);
    dir->lock = -1;
}
