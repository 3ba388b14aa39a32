#include "train/trainer/starts.h"

#include "base/file/fs.h"
#include "base/file/json.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define STARTS_FILE ".zerod.starts"
enum { SAME_MAX = 3, FILE_MAX = 1 << 20, PREFIX_MAX = 512 };

struct starts {
    struct comm *comm;
    int file; /* opened to append; -1: it cannot be */
    char path[PATH_MAX];
    char prefix[PREFIX_MAX]; /* of each line of this start */
    int64_t reached;         /* step of the last line; -1: there is none */
    int64_t step;
    bool is_running;
};

/* --- faults ----------------------------------------------------------------
 */

#define FAULTS 5
static const int faults[FAULTS] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
static struct sigaction before[FAULTS];
/* All that the handler touches; ranks may be threads of one process, of which
 * the first is told of. */
static atomic_int fault_file = -1;
static atomic_llong fault_step;
static char fault_prefix[PREFIX_MAX]; /* written before fault_file is */
static pthread_mutex_t faults_lock = PTHREAD_MUTEX_INITIALIZER; /* not there */
static bool are_watched;

static size_t put_text(char *out, size_t at, const char *text)
{
    while (*text)
        out[at++] = *text++;
    return at;
}

static size_t put_number(char *out, size_t at, long long number)
{
    char digits[24];
    int count = 0;
    if (number < 0)
        out[at++] = '-';
    do {
        digits[count++] = (char)('0' + llabs(number % 10));
        number /= 10;
    } while (number);
    while (count)
        out[at++] = digits[--count];
    return at;
}

/* The line, and then whoever handled it before. */
static void on_fault(int number, siginfo_t *info, void *context)
{
    char line[PREFIX_MAX + 128];
    int file = atomic_exchange(&fault_file, -1);
    if (file >= 0) {
        size_t bytes = put_text(line, 0, fault_prefix);
        bytes = put_text(line, bytes, "\"step\": ");
        bytes = put_number(line, bytes, atomic_load(&fault_step));
        bytes = put_text(line, bytes, ", \"how\": \"signal ");
        bytes = put_number(line, bytes, number);
        bytes = put_text(line, bytes, "\"}\n");
        if (write(file, line, bytes) < 0)
            bytes = 0; /* there is nobody left to tell */
    }
    for (int i = 0; i < FAULTS; i++)
        if (faults[i] == number)
            sigaction(number, &before[i], NULL);
    /* a fault happens again on return; what somebody sent does not */
    if (info->si_code <= 0)
        raise(number);
    (void)context;
}

static void watch_faults(const struct starts *starts)
{
    struct sigaction action = {
            .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    if (starts->file < 0)
        return;
    pthread_mutex_lock(&faults_lock);
    if (!are_watched) {
        are_watched = true;
        strcpy(fault_prefix, starts->prefix);
        atomic_store(&fault_step, starts->step);
        sigemptyset(&action.sa_mask);
        for (int i = 0; i < FAULTS; i++)
            sigaction(faults[i], &action, &before[i]);
        atomic_store(&fault_file, starts->file);
    }
    pthread_mutex_unlock(&faults_lock);
}

static void watch_no_more(const struct starts *starts)
{
    int mine = starts->file;
    pthread_mutex_lock(&faults_lock);
    if (mine >= 0 && atomic_compare_exchange_strong(&fault_file, &mine, -1)) {
        for (int i = 0; i < FAULTS; i++)
            sigaction(faults[i], &before[i], NULL);
        are_watched = false;
    }
    pthread_mutex_unlock(&faults_lock);
}

/* --- what earlier starts left ----------------------------------------------
 */

struct past {
    const char *from, *job; /* of this start */
    json_t *last;           /* its line; NULL: none that counts */
    int same;               /* starts in a row that ended like it */
};

static bool same_text(const json_t *a, const json_t *b, const char *key)
{
    const char *x = json_string_value(json_object_get(a, key));
    const char *y = json_string_value(json_object_get(b, key));
    return x && y && strcmp(x, y) == 0;
}

static bool same_step(const json_t *a, const json_t *b)
{
    return json_integer_value(json_object_get(a, "step")) ==
           json_integer_value(json_object_get(b, "step"));
}

static bool is_ours(const struct past *past, const json_t *line)
{
    const char *from = json_string_value(json_object_get(line, "from"));
    const char *job = json_string_value(json_object_get(line, "job"));
    return from && job && strcmp(from, past->from) == 0 &&
           strcmp(job, past->job) == 0;
}

/* Several ranks may tell of one start: the first line is its ending, whoever
 * knows the cause. */
static void take_line(struct past *past, json_t *line)
{
    if (!is_ours(past, line)) {
        json_decref(past->last);
        past->last = NULL;
        past->same = 0;
        return;
    }
    if (past->last && same_text(past->last, line, "start")) {
        json_object_update_missing(past->last, line);
        return;
    }
    bool is_same = past->last && same_text(past->last, line, "how") &&
                   same_step(past->last, line);
    past->same = is_same ? past->same + 1 : 1;
    json_decref(past->last);
    past->last = json_incref(line);
}

static enum zd_status read_past(const char *path, struct past *past)
{
    bool is_there;
    char *text, *rest, *line;
    ZD_TRY(fs_look(path, &is_there));
    if (!is_there)
        return ZD_OK;
    ZD_TRY(fs_read_file(path, FILE_MAX, &text, NULL));
    rest = text;
    while ((line = strsep(&rest, "\n"))) {
        json_t *object = json_of_line(line, strlen(line));
        if (object) /* else a torn one */
            take_line(past, object);
        json_decref(object);
    }
    free(text);
    return ZD_OK;
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
        const struct starts *starts, const struct past *past, const char *name)
{
    const char *how = json_string_value(json_object_get(past->last, "how"));
    const char *what = json_string_value(json_object_get(past->last, "what"));
    if (!what)
        what = words_of(how);
    ZD_FAIL(ZD_ERR_NUMERICS, "E0815",
            "the last %d starts from %s ended the same way after step %lld: "
            "%s%s%.400s%s",
            past->same, name[0] ? name : "the beginning",
            (long long)json_integer_value(json_object_get(past->last, "step")),
            how, what[0] ? " (" : "", what, what[0] ? ")" : "");
    if (name[0])
        zd_fail_help(
                "another start would end like them: mend the cause; "
                "--resume %s tries once more",
                name);
    else
        zd_fail_help(
                "another start would end like them: mend the cause; "
                "--resume never tries once more, and so does a start without "
                "%s",
                starts->path);
    return ZD_ERR_NUMERICS;
}

/* Rank 0: refuses, or forgets what is of another checkpoint or job. */
static enum zd_status look_back(
        struct starts *starts, const char *from, const char *job,
        const char *name)
{
    struct past past = {.from = from, .job = job};
    enum zd_status status = read_past(starts->path, &past);
    if (status != ZD_OK) {
        zd_log_warning(
                "how earlier starts ended is not known: %s",
                zd_error_get()->what);
        zd_error_clear();
        return ZD_OK;
    }
    if (past.same >= SAME_MAX)
        status = refuse(starts, &past, name);
    else if (past.last)
        starts->reached =
                json_integer_value(json_object_get(past.last, "step"));
    else
        unlink(starts->path);
    json_decref(past.last);
    return status;
}

/* --- this start ------------------------------------------------------------
 */

static void open_file(struct starts *starts)
{
    starts->file = open(
            starts->path,
            O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
            0640);
    if (starts->file < 0)
        zd_log_warning(
                "cannot open %s: %s; how this run ends is not told to the next",
                starts->path, strerror(errno));
}

enum zd_status starts_begin(
        struct comm *comm, const struct train_job *job, const char *from,
        const char *name, struct starts **starts_out)
{
    struct timespec now;
    enum zd_status status = ZD_OK;
    const char *digest = job->digest ? job->digest : "";
    struct { /* rank 0's */
        int64_t seconds, nanoseconds;
        char from[64];
    } first = {0};
    *starts_out = NULL;
    if (job->run.resume == RESUME_PATH || job->run.resume == RESUME_NEVER)
        return ZD_OK;
    struct starts *starts = calloc(1, sizeof *starts);
    if (!starts)
        status = ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    clock_gettime(CLOCK_REALTIME, &now);
    first.seconds = now.tv_sec;
    first.nanoseconds = now.tv_nsec;
    snprintf(first.from, sizeof first.from, "%s", from);
    if (starts) {
        *starts = (struct starts){.comm = comm, .file = -1, .reached = -1};
        fs_join(starts->path, sizeof starts->path, job->job.output_dir,
                STARTS_FILE);
        if (comm_rank(comm) == 0)
            status = look_back(starts, from, digest, name);
    }
    status = comm_agree(comm, status);
    if (status == ZD_OK)
        status = comm_broadcast(comm, &first, sizeof first, 0);
    if (status != ZD_OK) {
        free(starts);
        return status;
    }
    snprintf(
            starts->prefix, sizeof starts->prefix,
            "{\"start\": \"%lld.%09lld\", \"from\": \"%.60s\", \"job\": "
            "\"%.60s\", \"rank\": %d, ",
            (long long)first.seconds, (long long)first.nanoseconds, first.from,
            digest, comm_rank(comm));
    open_file(starts);
    watch_faults(starts);
    *starts_out = starts;
    return ZD_OK;
}

void starts_running(struct starts *starts)
{
    if (starts)
        starts->is_running = true;
}

void starts_step(struct starts *starts, int64_t step)
{
    if (!starts)
        return;
    starts->step = step;
    if (atomic_load(&fault_file) == starts->file)
        atomic_store(&fault_step, step);
    if (starts->reached < 0 || step <= starts->reached)
        return;
    starts->reached = -1;
    if (starts->file >= 0 && ftruncate(starts->file, 0) != 0)
        zd_log_debug("cannot empty %s: %s", starts->path, strerror(errno));
}

static bool counts(const struct starts *starts, enum zd_status status)
{
    int code = zd_exit_code(status);
    if (!starts->is_running)
        return code == 70 || code == 79;
    return code != 0 && code != 69 && code != 74 && code != 75;
}

/* The rank that knows the cause tells it; rank 0 that there was one. */
static void tell_ending(const struct starts *starts, enum zd_status status)
{
    const struct zd_error *error = zd_error_get();
    bool knows = error->status == status && error->code[0];
    char how[40], *text;
    if (starts->file < 0 || (!knows && comm_rank(starts->comm) != 0))
        return;
    snprintf(how, sizeof how, "exit %d", zd_exit_code(status));
    json_t *rest = json_pack(
            "{s:I, s:s, s:s*, s:s*}", "step", (json_int_t)starts->step, "how",
            how, "code", knows ? error->code : NULL, "what",
            knows ? error->what : NULL);
    text = rest ? json_dumps(rest, 0) : NULL;
    json_decref(rest);
    if (text && dprintf(starts->file, "%s%s\n", starts->prefix, text + 1) < 0)
        zd_log_debug("cannot write %s: %s", starts->path, strerror(errno));
    free(text);
}

/* A start that setup refuses leaves no trace. */
static bool is_idle(const struct starts *starts)
{
    struct stat info;
    return !starts->is_running && starts->file >= 0 &&
           fstat(starts->file, &info) == 0 && info.st_size == 0;
}

void starts_end(struct starts *starts, enum zd_status status)
{
    if (!starts)
        return;
    watch_no_more(starts);
    if (counts(starts, status))
        tell_ending(starts, status);
    bool is_done = status == ZD_OK || is_idle(starts);
    if (starts->file >= 0)
        close(starts->file);
    if (is_done && comm_rank(starts->comm) == 0)
        unlink(starts->path);
    free(starts);
}
