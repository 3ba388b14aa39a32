/*
 * calls.c - the calls by which a program touches files, for LD_PRELOAD:
 * refused, and written down.
 *
 *   ZEROD_TEST_REFUSE=CALL:PART:ERRNO[:N]
 *                           CALL (open, opendir, readdir, stat, pread, write,
 *                           fsync, flock, rename, mkdir, remove, recvfrom;
 *                           finalize of MPI) fails with ERRNO (a number) where
 * the path has PART in it; N: only the Nth such call. 0: it never returns; -11:
 * it is a fault; other numbers below 0 are signals
 *   ZEROD_TEST_DELAY=CALL:PART:MS:TIMES,..
 *                           the first so many such calls take so much longer
 *   ZEROD_TEST_RANK=N       refused, or slow, is this rank of Open MPI alone
 *   ZEROD_TEST_WHOM=parent  a signal goes to the process that started this one;
 *                           "all": to that and all that it has started
 *   ZEROD_TEST_HIT=FILE     a line for each call that was refused: its name,
 *                           "main" or "other" for the thread, and the path,
 *                           parted by tabs
 *   ZEROD_TEST_TRACE=FILE:PART   for each call that changed what lies below a
 *                           path with PART in it, its name, path, other path,
 *                           offset and how many bytes follow the line: what a
 *                           crash may leave (tests/support/crash_states.py)
 *   ZEROD_TEST_SLOW=TIMES   after what OpenMP computes the rank does nothing,
 *                           for so many times as long as has passed since it
 *                           last did nothing: slower however loaded the
 *                           machine is
 *   ZEROD_TEST_ROWS=1       what OpenMP computes waits until the thread
 *                           zerod-rows has written all rows
 *   ZEROD_TEST_NO_EXCHANGE  two folders cannot change places, as on NFS
 *
 * A process that gets SIGRTMIN computes without end from its next parallel
 * region on. It does not loop while it waits for data, as comm.timeout does
 * not apply there.
 *
 * What it looks like to a program whose machine has no descriptors left, whose
 * disk fails, or whose folders belong to somebody else, also for root.
 */
#undef _FILE_OFFSET_BITS /* both kinds of names are defined below */
#undef _FORTIFY_SOURCE   /* whose headers define some of them */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* The libc's own function of the same name. */
#define REAL(name)                                                             \
    static __typeof__(&name) real;                                             \
    if (!real)                                                                 \
    real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static void absolute(const char *path, char out[PATH_MAX])
{
    char here[PATH_MAX];
    if (path[0] == '/' || !getcwd(here, sizeof here))
        snprintf(out, PATH_MAX, "%s", path);
    else
        snprintf(out, PATH_MAX, "%.2000s/%.2000s", here, path);
}

static void path_of(int fd, char out[PATH_MAX])
{
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t bytes = readlink(link, out, PATH_MAX - 1);
    out[bytes < 0 ? 0 : bytes] = '\0';
}

/* The part that a path must have in it to be traced; NULL: there is no trace.
 */
static const char *trace_part(int *file_out)
{
    static int file = -2;
    const char *rule = getenv("ZEROD_TEST_TRACE");
    const char *colon = rule ? strrchr(rule, ':') : NULL;
    if (file == -2 && colon) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%.*s", (int)(colon - rule), rule);
        file = (int)syscall(
                SYS_openat, AT_FDCWD, path,
                O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    }
    *file_out = file;
    return file >= 0 && colon ? colon + 1 : NULL;
}

/* One write, so that the lines of several processes do not mix; it is there
 * before the call returns, and so before what follows from it. */
static void trace(
        const char *call, const char *path, const char *other, long long at,
        const void *data, size_t bytes)
{
    char line[3 * PATH_MAX], first[PATH_MAX], second[PATH_MAX] = "";
    int file, saved = errno;
    const char *part = trace_part(&file);
    if (!part)
        return;
    absolute(path, first);
    if (other)
        absolute(other, second);
    if (!strstr(first, part))
        return;
    int length = snprintf(
            line, sizeof line, "%s\t%s\t%s\t%lld\t%zu\n", call, first, second,
            at, data ? bytes : 0);
    struct iovec parts[] = {
            {line, (size_t)length},
            {(void *)(uintptr_t)data, data ? bytes : 0}};
    if (syscall(SYS_writev, file, parts, data ? 2 : 1) < 0)
        abort();
    errno = saved;
}

static void note(const char *call, const char *path, const char *other)
{
    trace(call, path, other, 0, NULL, 0);
}

static void trace_fd(
        const char *call, int fd, long long at, const void *data, size_t bytes)
{
    char path[PATH_MAX];
    int saved = errno, file;
    if (trace_part(&file)) {
        path_of(fd, path);
        trace(call, path, NULL, at, data, bytes);
    }
    errno = saved;
}

static atomic_bool is_looping;

static void loop(int signal_number)
{
    (void)signal_number;
    atomic_store(&is_looping, true);
}

__attribute__((constructor)) static void begin(void)
{
    struct sigaction action = {.sa_handler = loop};
    sigaction(SIGRTMIN, &action, NULL);
}

/* Is this the rank that is meant? */
static bool is_rank(void)
{
    const char *wanted = getenv("ZEROD_TEST_RANK");
    const char *own = getenv("OMPI_COMM_WORLD_RANK");
    return !wanted || strcmp(wanted, own ? own : "0") == 0;
}

static void note_hit(const char *call, const char *path)
{
    char line[PATH_MAX + 64];
    bool is_main = syscall(SYS_gettid) == getpid();
    const char *file = getenv("ZEROD_TEST_HIT");
    if (!file)
        return;
    int bytes = snprintf(
            line, sizeof line, "%s\t%s\t%.4000s\n", call,
            is_main ? "main" : "other", path);
    int fd = (int)syscall(
            SYS_openat, AT_FDCWD, file,
            O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    syscall(SYS_write, fd, line, (size_t)bytes);
    syscall(SYS_close, fd);
}

static void end_siblings(int which)
{
    char path[64], list[4096];
    int parent = getppid();
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", parent, parent);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    long bytes = syscall(SYS_read, fd, list, sizeof list - 1);
    syscall(SYS_close, fd);
    list[bytes > 0 ? bytes : 0] = '\0';
    kill(parent, which);
    for (char *at = list, *end; strtol(at, &end, 10) > 0; at = end)
        if (strtol(at, NULL, 10) != getpid())
            kill((pid_t)strtol(at, NULL, 10), which);
}

static void send_signal(int which)
{
    volatile int *volatile nowhere = NULL;
    const char *whom = getenv("ZEROD_TEST_WHOM");
    if (whom && strcmp(whom, "parent") == 0) {
        kill(getppid(), which);
        return;
    }
    if (whom)
        end_siblings(which);
    if (which == SIGSEGV)
        *nowhere = 0;
    if (which == SIGABRT)
        abort();
    kill(getpid(), which);
}

/* What a rule of ZEROD_TEST_DELAY asks for, as often as it does. */
static void delay(const char *call, const char *path)
{
    enum { RULES = 8 };
    static atomic_int seen[RULES];
    const char *rule = getenv("ZEROD_TEST_DELAY");
    char name[16], part[256];
    int ms, times;
    for (int i = 0; rule && i < RULES; i++) {
        if (sscanf(rule, "%15[^:]:%255[^:]:%d:%d", name, part, &ms, &times) ==
                    4 &&
            strcmp(name, call) == 0 && strstr(path, part) && is_rank() &&
            atomic_fetch_add(&seen[i], 1) < times) {
            note_hit(call, path);
            poll(NULL, 0, ms);
        }
        rule = strchr(rule, ',');
        rule = rule ? rule + 1 : NULL;
    }
}

static bool refused(const char *call, const char *path)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static int seen;
    char name[16], part[256];
    int error, only = 0;
    const char *rule = getenv("ZEROD_TEST_REFUSE");
    delay(call, path);
    if (!rule ||
        sscanf(rule, "%15[^:]:%255[^:]:%d:%d", name, part, &error, &only) < 3)
        return false;
    if (strcmp(name, call) != 0 || !strstr(path, part) || !is_rank())
        return false;
    pthread_mutex_lock(&mutex);
    bool is_it = ++seen == only || only == 0;
    pthread_mutex_unlock(&mutex);
    if (!is_it)
        return false;
    note_hit(call, path);
    while (error == 0)
        pause();
    if (error < 0)
        send_signal(-error);
    errno = error;
    return error > 0;
}

static bool refused_fd(const char *call, int fd)
{
    char path[PATH_MAX];
    int saved = errno;
    path_of(fd, path);
    errno = saved;
    return refused(call, path);
}

static int opened(int fd, const char *path, int flags)
{
    if (fd >= 0 && (flags & O_CREAT))
        note("create", path, NULL);
    if (fd >= 0 && (flags & O_TRUNC))
        trace("truncate", path, NULL, 0, NULL, 0);
    return fd;
}

#define OPEN(name)                                                             \
    int name(const char *path, int flags, ...)                                 \
    {                                                                          \
        REAL(name);                                                            \
        va_list more;                                                          \
        va_start(more, flags);                                                 \
        mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;              \
        va_end(more);                                                          \
        if (refused("open", path))                                             \
            return -1;                                                         \
        return opened(real(path, flags, mode), path, flags);                   \
    }
OPEN(open)
OPEN(open64)

#define STAT(name, type)                                                       \
    int name(const char *path, struct type *about)                             \
    {                                                                          \
        REAL(name);                                                            \
        return refused("stat", path) ? -1 : real(path, about);                 \
    }
STAT(stat, stat)
STAT(lstat, stat)
STAT(stat64, stat64)
STAT(lstat64, stat64)

DIR *opendir(const char *path)
{
    REAL(opendir);
    return refused("opendir", path) ? NULL : real(path);
}

struct dirent *readdir(DIR *dir)
{
    REAL(readdir);
    return refused_fd("readdir", dirfd(dir)) ? NULL : real(dir);
}
struct dirent64 *readdir64(DIR *dir)
{
    REAL(readdir64);
    return refused_fd("readdir", dirfd(dir)) ? NULL : real(dir);
}

#define PREAD(name, offset_type)                                               \
    ssize_t name(int fd, void *data, size_t bytes, offset_type at)             \
    {                                                                          \
        REAL(name);                                                            \
        return refused_fd("pread", fd) ? -1 : real(fd, data, bytes, at);       \
    }
PREAD(pread, off_t)
PREAD(pread64, off64_t)

ssize_t recvfrom(
        int fd, void *data, size_t bytes, int flags, struct sockaddr *from,
        socklen_t *from_bytes)
{
    REAL(recvfrom);
    return refused_fd("recvfrom", fd)
                   ? -1
                   : real(fd, data, bytes, flags, from, from_bytes);
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    REAL(write);
    ssize_t done = refused_fd("write", fd) ? -1 : real(fd, data, bytes);
    if (done > 0)
        trace_fd(
                "write", fd, (long long)lseek(fd, 0, SEEK_CUR) - done, data,
                (size_t)done);
    return done;
}

#define PWRITE(name, offset_type)                                              \
    ssize_t name(int fd, const void *data, size_t bytes, offset_type at)       \
    {                                                                          \
        REAL(name);                                                            \
        ssize_t done =                                                         \
                refused_fd("write", fd) ? -1 : real(fd, data, bytes, at);      \
        if (done > 0)                                                          \
            trace_fd("write", fd, at, data, (size_t)done);                     \
        return done;                                                           \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define SYNC(name)                                                             \
    int name(int fd)                                                           \
    {                                                                          \
        REAL(name);                                                            \
        int result = refused_fd("fsync", fd) ? -1 : real(fd);                  \
        if (result == 0)                                                       \
            trace_fd("sync", fd, 0, NULL, 0);                                  \
        return result;                                                         \
    }
SYNC(fsync)
SYNC(fdatasync)

#define TRUNCATE(name, offset_type)                                            \
    int name(int fd, offset_type bytes)                                        \
    {                                                                          \
        REAL(name);                                                            \
        int result = real(fd, bytes);                                          \
        if (result == 0)                                                       \
            trace_fd("truncate", fd, bytes, NULL, 0);                          \
        return result;                                                         \
    }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

#define ALLOCATE(name, offset_type)                                            \
    int name(int fd, int mode, offset_type at, offset_type bytes)              \
    {                                                                          \
        REAL(name);                                                            \
        int result = real(fd, mode, at, bytes);                                \
        if (result == 0 && mode == 0)                                          \
            trace_fd("allocate", fd, at + bytes, NULL, 0);                     \
        return result;                                                         \
    }
ALLOCATE(fallocate, off_t)
ALLOCATE(fallocate64, off64_t)

int flock(int fd, int how)
{
    REAL(flock);
    return refused_fd("flock", fd) ? -1 : real(fd, how);
}

int mkdir(const char *path, mode_t mode)
{
    REAL(mkdir);
    int result = refused("mkdir", path) ? -1 : real(path, mode);
    if (result == 0)
        note("mkdir", path, NULL);
    return result;
}

int rename(const char *from, const char *to)
{
    REAL(rename);
    int result = refused("rename", to) ? -1 : real(from, to);
    if (result == 0)
        note("rename", from, to);
    return result;
}

int renameat2(int at, const char *from, int to_at, const char *to, unsigned how)
{
    REAL(renameat2);
    if ((how & RENAME_EXCHANGE) && getenv("ZEROD_TEST_NO_EXCHANGE")) {
        errno = EINVAL;
        return -1;
    }
    int result = refused("rename", to) ? -1 : real(at, from, to_at, to, how);
    if (result == 0)
        note(how & RENAME_EXCHANGE ? "exchange" : "rename", from, to);
    return result;
}

#define REMOVE(name)                                                           \
    int name(const char *path)                                                 \
    {                                                                          \
        REAL(name);                                                            \
        int result = refused("remove", path) ? -1 : real(path);                \
        if (result == 0)                                                       \
            note("remove", path, NULL);                                        \
        return result;                                                         \
    }
REMOVE(remove)
REMOVE(unlink)
REMOVE(rmdir)

int unlinkat(int at, const char *name, int how)
{
    REAL(unlinkat);
    char link[64], path[2 * PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", at);
    ssize_t length = name[0] == '/' || at == AT_FDCWD
                             ? -1
                             : readlink(link, path, PATH_MAX - 1);
    if (length < 0)
        length = snprintf(path, sizeof path, "%s", name);
    else
        length += snprintf(
                path + length, sizeof path - (size_t)length, "/%s", name);
    int result = refused("remove", path) ? -1 : real(at, name, how);
    if (result == 0)
        note("remove", path, NULL);
    return result;
}

/* Refused once it is done: all others have come to it, and may have left. */
int MPI_Finalize(void);
int MPI_Finalize(void)
{
    REAL(MPI_Finalize);
    int result = real();
    return refused("finalize", "MPI") ? 1 : result;
}

static long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* One for each file of rows; no job of a test has more. */
enum { ROWS_THREADS = 16 };

/* The threads' ids; how many there are. */
static int rows_threads(int ids[ROWS_THREADS])
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *task;
    while (tasks && count < ROWS_THREADS && (task = readdir(tasks))) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
        FILE *comm = fopen(path, "r");
        if (!comm)
            continue;
        if (fgets(name, sizeof name, comm) && !strcmp(name, "zerod-rows\n"))
            ids[count++] = atoi(task->d_name);
        fclose(comm);
    }
    if (tasks)
        closedir(tasks);
    return count;
}

/* Wait until the threads that write rows sleep: a row that was added before
 * this call has been written. A woken thread is runnable at once, however long
 * it waits for a CPU. */
static void wait_for_rows(void)
{
    int ids[ROWS_THREADS];
    int count = rows_threads(ids);
    for (int i = 0; i < count; i++) {
        char path[64], state = 'R';
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", ids[i]);
        while (state != 'S') {
            FILE *stat = fopen(path, "r");
            if (!stat)
                break;
            if (fscanf(stat, "%*d (%*[^)]) %c", &state) != 1)
                state = 'S'; /* the thread has ended */
            fclose(stat);
            sched_yield();
        }
    }
}

enum { LONGEST_REST_NS = 500000000 };
void GOMP_parallel(void (*fn)(void *), void *, unsigned, unsigned);
void GOMP_parallel(
        void (*fn)(void *), void *data, unsigned threads, unsigned flags)
{
    REAL(GOMP_parallel);
    const char *times = getenv("ZEROD_TEST_SLOW");
    if (getenv("ZEROD_TEST_ROWS") && is_rank())
        wait_for_rows();
    while (atomic_load(&is_looping))
        ;
    real(fn, data, threads, flags);
    if (!times || !is_rank())
        return;
    static _Thread_local long long rested_ns; /* until then */
    long long passed = rested_ns ? now_ns() - rested_ns : 0;
    long long rest = (long long)(atof(times) * (double)passed);
    if (rest > LONGEST_REST_NS) /* what passed was the start, or a save */
        rest = LONGEST_REST_NS;
    struct timespec nap = {rest / 1000000000, rest % 1000000000};
    nanosleep(&nap, NULL);
    rested_ns = now_ns();
}
