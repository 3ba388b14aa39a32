#include "train/trainer/crash_guard.h"

#include "base/file/fs.h"
#include "base/file/json.h"
#include "base/log.h"
#include "base/must.h"
#include "train/report/file_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define STARTS_FILE ".zerod.starts"
enum { SAME_MAX = 3, PREFIX_MAX = 512 };

struct crash_guard {
    struct comm *comm;
    int file; /* opened for appending; -1: not possible */
    char path[PATH_MAX];
    char prefix[PREFIX_MAX]; /* of this start's lines */
    int64_t reached;         /* step of the last line; -1: none */
    int64_t step;
    bool is_running;
};

/* --- faults --------------------------------------------------------------- */

#define FAULTS 5
static const int faults[FAULTS] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
static struct sigaction before[FAULTS];
/* All state that the handler touches. If ranks are threads of one process, only
 * the first is recorded. */
static atomic_int fault_file = -1;
static char fault_lines[2][PREFIX_MAX + 64]; /* line up to the signal's
                                                number */
static char *_Atomic fault_line;             /* the current step's line */

static void set_fault_line(const struct crash_guard *guard)
{
    char *line = fault_lines[atomic_load(&fault_line) == fault_lines[0]];
    snprintf(
            line, sizeof fault_lines[0], "%s\"step\": %lld, \"how\": \"signal ",
            guard->prefix, (long long)guard->step);
    atomic_store(&fault_line, line);
}

/* Writes the line, then calls the previous handler. */
static void on_fault(int number, siginfo_t *info, void *context)
{
    char end[] = {
            (char)('0' + number / 10), (char)('0' + number % 10), '"', '}',
            '\n'};
    char *line = atomic_load(&fault_line);
    int file = atomic_exchange(&fault_file, -1), skip = number < 10;
    struct iovec parts[] = {
            {line, line ? strlen(line) : 0},
            {end + skip, sizeof end - (size_t)skip}};
    if (file >= 0 && writev(file, parts, 2) < 0)
        file = -1; /* ignore a failed write */
    for (int i = 0; i < FAULTS; i++)
        if (faults[i] == number)
            sigaction(number, &before[i], NULL);
    /* a fault repeats on return, but a signal from kill must be raised again */
    if (info->si_code <= 0)
        raise(number);
    (void)context;
}

static void watch_faults(const struct crash_guard *guard)
{
    struct sigaction action = {
            .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    int none = -1;
    if (guard->file < 0 ||
        !atomic_compare_exchange_strong(&fault_file, &none, guard->file))
        return;
    set_fault_line(guard);
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < FAULTS; i++)
        sigaction(faults[i], &action, &before[i]);
}

static void watch_no_more(const struct crash_guard *guard)
{
    if (guard->file < 0 || atomic_load(&fault_file) != guard->file)
        return;
    for (int i = 0; i < FAULTS; i++)
        sigaction(faults[i], &before[i], NULL);
    atomic_store(&fault_file, -1);
}

/* --- what earlier starts left --------------------------------------------- */

struct past {
    const char *from, *job; /* this start's */
    json_t *last;           /* the last counting line; NULL: none */
    int same;               /* consecutive starts that ended the same way */
};

static bool is_text(const json_t *line, const char *key, const char *text)
{
    const char *own = json_string_at(line, key);
    return own && text && strcmp(own, text) == 0;
}

/* Several ranks may write lines for one start: the first line is its ending. */
static bool take_line(void *ctx, const char *text, const json_t *row)
{
    struct past *past = ctx;
    const json_t *last = past->last;
    json_t *line = (json_t *)(uintptr_t)row;
    if (!line) /* torn */
        return true;
    if (!is_text(line, "from", past->from) ||
        !is_text(line, "job", past->job)) {
        json_decref(past->last);
        past->last = NULL;
        past->same = 0;
        return true;
    }
    if (is_text(last, "start", json_string_at(line, "start"))) {
        json_object_update_missing(past->last, line);
        return true;
    }
    bool is_same =
            is_text(last, "how", json_string_at(line, "how")) &&
            json_integer_at(last, "step") == json_integer_at(line, "step");
    past->same = is_same ? past->same + 1 : 1;
    json_decref(past->last);
    past->last = json_incref(line);
    return true;
}

static const char *words_of(const char *how)
{
    int number;
    if (sscanf(how, "signal %d", &number) != 1)
        return "";
    const char *words = strsignal(number);
    return words ? words : "";
}

static enum zd_status refuse(
        const struct crash_guard *guard, const struct past *past,
        const char *name)
{
    const char *how = json_string_at(past->last, "how");
    const char *what = json_string_at(past->last, "what");
    if (!what)
        what = words_of(how);
    ZD_FAIL(ZD_ERR_NUMERICS, "E0815",
            "the last %d starts from %s ended the same way after step %lld: "
            "%s%s%.400s%s",
            past->same, name[0] ? name : "the beginning",
            (long long)json_integer_at(past->last, "step"), how,
            what[0] ? " (" : "", what, what[0] ? ")" : "");
    return zd_fail_help(
            "another start would end like them: mend the cause; --resume %s "
            "tries once more%s%s",
            name[0] ? name : "never",
            name[0] ? "" : ", and so does a start without ",
            name[0] ? "" : guard->path);
}

/* Rank 0: refuses the start, or drops lines of another checkpoint or job. */
static enum zd_status look_back(
        struct crash_guard *guard, const char *from, const char *job,
        const char *name)
{
    size_t kept;
    struct past past = {.from = from, .job = job};
    enum zd_status status = file_rows(guard->path, take_line, &past, &kept);
    if (status != ZD_OK) {
        zd_log_warning(
                "how earlier starts ended is not known: %s",
                zd_error_get()->what);
        zd_error_clear();
        return ZD_OK;
    }
    if (past.same >= SAME_MAX)
        status = refuse(guard, &past, name);
    else if (past.last)
        guard->reached = json_integer_at(past.last, "step");
    else
        unlink(guard->path);
    json_decref(past.last);
    return status;
}

/* --- this start ----------------------------------------------------------- */

static void open_file(struct crash_guard *guard)
{
    guard->file = open(
            guard->path,
            O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
            0640);
    if (guard->file < 0)
        zd_log_warning(
                "cannot open %s: %s; how this run ends is not told to the next",
                guard->path, strerror(errno));
}

enum zd_status crash_guard_begin(
        struct comm *comm, const struct train_job *job, const char *from,
        const char *name, struct crash_guard **guard_out)
{
    struct timespec now;
    const char *digest = job->digest ? job->digest : "";
    *guard_out = NULL;
    if (job->run.resume == RESUME_PATH || job->run.resume == RESUME_NEVER)
        return ZD_OK;
    struct crash_guard *guard = zd_array(1, sizeof *guard);
    *guard = (struct crash_guard){.comm = comm, .file = -1, .reached = -1};
    fs_join(guard->path, sizeof guard->path, job->job.output_dir, STARTS_FILE);
    clock_gettime(CLOCK_REALTIME, &now);
    ZD_PRINT(/* from rank 0 */
             guard->prefix,
             "{\"start\": \"%lld.%09ld\", \"from\": \"%.60s\", \"job\": "
             "\"%.60s\", \"rank\": ",
             (long long)now.tv_sec, now.tv_nsec, from, digest);
    enum zd_status status =
            COMM_FIRST(comm, look_back(guard, from, digest, name));
    ZD_THEN(status,
            comm_broadcast(comm, guard->prefix, sizeof guard->prefix, 0));
    if (status != ZD_OK) {
        free(guard);
        return status;
    }
    size_t used = strlen(guard->prefix);
    snprintf(
            guard->prefix + used, sizeof guard->prefix - used, "%d, ",
            comm_rank(comm));
    open_file(guard);
    watch_faults(guard);
    *guard_out = guard;
    return ZD_OK;
}

void crash_guard_running(struct crash_guard *guard)
{
    if (guard)
        guard->is_running = true;
}

void crash_guard_step(struct crash_guard *guard, int64_t step)
{
    if (!guard)
        return;
    guard->step = step;
    if (atomic_load(&fault_file) == guard->file)
        set_fault_line(guard);
    if (guard->reached < 0 || step <= guard->reached)
        return;
    guard->reached = -1;
    if (guard->file >= 0 && ftruncate(guard->file, 0) != 0)
        zd_log_debug("cannot empty %s: %s", guard->path, strerror(errno));
}

static bool counts(const struct crash_guard *guard, enum zd_status status)
{
    int code = zd_exit_code(status);
    if (!guard->is_running)
        return code == 70 || code == 79;
    return code != 0 && code != 69 && code != 74 && code != 75;
}

/* The rank that knows the cause records it; rank 0 records that there was a
 * failure. */
static void tell_ending(const struct crash_guard *guard, enum zd_status status)
{
    const struct zd_error *error = zd_error_get();
    bool knows = error->status == status && error->code[0];
    char how[40];
    if (guard->file < 0 || (!knows && comm_rank(guard->comm) != 0))
        return;
    ZD_PRINT(how, "exit %d", zd_exit_code(status));
    json_auto_t *rest = json_pack(
            "{s:I, s:s, s:s*, s:s*}", "step", (json_int_t)guard->step, "how",
            how, "code", knows ? error->code : NULL, "what",
            knows ? error->what : NULL);
    ZD_FREED char *text = rest ? json_dumps(rest, 0) : NULL;
    if (text && dprintf(guard->file, "%s%s\n", guard->prefix, text + 1) < 0)
        zd_log_debug("cannot write %s: %s", guard->path, strerror(errno));
}

/* A start that setup refuses leaves no file. */
static bool is_idle(const struct crash_guard *guard)
{
    struct stat info;
    return !guard->is_running && guard->file >= 0 &&
           fstat(guard->file, &info) == 0 && info.st_size == 0;
}

void crash_guard_end(struct crash_guard *guard, enum zd_status status)
{
    if (!guard)
        return;
    watch_no_more(guard);
    if (counts(guard, status))
        tell_ending(guard, status);
    bool is_done = status == ZD_OK || is_idle(guard);
    if (guard->file >= 0)
        close(guard->file);
    if (is_done && comm_rank(guard->comm) == 0)
        unlink(guard->path);
    free(guard);
}
