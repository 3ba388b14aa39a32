#include "tests/support/job_threads.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "daemon/job/job.h"

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SETS_MAX = 32, WORLD_MAX = 16, LINES_MAX = 1 << 20 };

struct rank_thread {
    pthread_t thread;
    const struct train_job *job;
    struct comm *comm;
    const struct train_observer *observer;
    enum zd_status status;
    struct zd_error error;
};

static void *run_rank(void *arg)
{
    struct rank_thread *rank = arg;
    rank->status = train_run(rank->job, rank->comm, rank->observer);
    rank->error = *zd_error_get();
    if (rank->status == ZD_OK)
        comm_destroy(rank->comm);
    else if (rank->error.status != ZD_OK && rank->error.status != ZD_ERR_PEER)
        comm_local_abort(rank->comm);
    return NULL;
}

static enum zd_status run_ranks(
        const struct train_job *job, int world,
        const struct train_observer *first)
{
    static const struct train_observer silent;
    struct comm *comms[WORLD_MAX];
    struct rank_thread ranks[WORLD_MAX];
    enum zd_status status = ZD_OK;

    ZD_TRY(comm_local_create(world, &job->comm, comms));
    for (int r = 0; r < world; r++) {
        ranks[r] = (struct rank_thread){
                .job = job,
                .comm = comms[r],
                .observer = r == 0 && first ? first : &silent};
        pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]);
    }
    for (int r = 0; r < world; r++)
        pthread_join(ranks[r].thread, NULL);
    for (int r = 0; r < world; r++) {
        if (status == ZD_OK)
            status = ranks[r].status;
        if (ranks[r].error.status != ZD_OK && zd_error_get()->status == ZD_OK) {
            zd_error_set(&ranks[r].error);
            status = ranks[r].error.status;
        }
    }
    return status;
}

enum zd_status job_threads_run(
        const char *path, const char *const *sets, int world, const char *dir)
{
    return job_threads_run_observed(path, sets, world, dir, NULL);
}

enum zd_status job_threads_run_observed(
        const char *path, const char *const *sets, int world, const char *dir,
        const struct train_observer *observer)
{
    char texts[5][PATH_MAX + 64];
    struct job_override overrides[SETS_MAX];
    struct job *job;
    int count = 0;
    bool force = false;
    enum zd_status status;

    zd_error_clear();
    ZD_PRINT(texts[0], "job.output_dir=%s/out", dir);
    ZD_PRINT(texts[1], "data.cache_dir=%s/cache", dir);
    ZD_PRINT(texts[2], "log.rank_logs=none");
    ZD_PRINT(texts[3], "device.cpu_threads=1");
    ZD_PRINT(texts[4], "device.backend=cpu");
    for (int i = 0; i < 5; i++)
        overrides[count++] = (struct job_override){NULL, texts[i], "--set"};
    for (; sets && *sets; sets++)
        if (strcmp(*sets, "--force") == 0)
            force = true;
        else
            overrides[count++] = (struct job_override){NULL, *sets, "--set"};
    struct job_request request = {
            .path = path,
            .overrides = overrides,
            .override_count = count,
            .force = force,
            .world = world};
    status = job_load(&request, &job);
    if (status == ZD_OK)
        status = run_ranks(job_options(job), world, observer);
    else
        problems_print(job_problems(job), stderr);
    job_free(job);
    return status;
}

__attribute__((format(printf, 5, 0))) static bool runs(
        const char *path, const char *dir, int world,
        const struct train_observer *observer, const char *format, va_list args)
{
    char text[4 * PATH_MAX], *rest = text, *word;
    const char *sets[SETS_MAX] = {NULL};
    int count = 0;
    vsnprintf(text, sizeof text, format, args);
    while ((word = strsep(&rest, " ")))
        if (word[0])
            sets[count++] = word;
    return job_threads_run_observed(path, sets, world, dir, observer) == ZD_OK;
}

bool job_runs(
        const char *path, const char *dir, int world, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    bool ran = runs(path, dir, world, NULL, format, args);
    va_end(args);
    return ran;
}

bool job_runs_observed(
        const char *path, const char *dir, int world,
        const struct train_observer *observer, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    bool ran = runs(path, dir, world, observer, format, args);
    va_end(args);
    return ran;
}

/* "a.b.c" inside a row. */
static const json_t *find(const json_t *row, const char *key)
{
    char first[64];
    const char *dot = strchr(key, '.');
    if (!dot)
        return json_object_get(row, key);
    ZD_PRINT(first, "%.*s", (int)(dot - key), key);
    return find(json_object_get(row, first), dot + 1);
}

int job_threads_column(const char *dir, const char *key, double **values_out)
{
    char path[PATH_MAX], line[4096];
    int count = 0;
    double *values = calloc(LINES_MAX, sizeof *values);
    ZD_PRINT(path, "%s/out/metrics.jsonl", dir);
    FILE *file = fopen(path, "r");
    while (file && count < LINES_MAX && fgets(line, sizeof line, file)) {
        json_auto_t *row = json_loads(line, 0, NULL);
        const json_t *value = find(row, key);
        if (value)
            values[count++] =
                    json_is_number(value) ? json_number_value(value) : NAN;
    }
    if (file)
        fclose(file);
    *values_out = values;
    return count;
}

int rows_of(const char *dir, const char *key)
{
    ZD_FREED double *values = NULL;
    return job_threads_column(dir, key, &values);
}

bool same_column(const char *a, const char *b, const char *key, int rows)
{
    double *x, *y;
    int x_count = job_threads_column(a, key, &x);
    int y_count = job_threads_column(b, key, &y);
    bool same = x_count > 0 && x_count == y_count &&
                (rows == 0 || x_count == rows) &&
                memcmp(x, y, (size_t)x_count * sizeof *x) == 0;
    free(x);
    free(y);
    return same;
}

bool same_training(const char *a, const char *b, int rows)
{
    return same_column(a, b, "loss", rows) &&
           same_column(a, b, "grad_norm", rows);
}

double column_difference(const char *a, const char *b, const char *key)
{
    double *x, *y, worst = 0;
    int count = job_threads_column(a, key, &x);
    if (job_threads_column(b, key, &y) != count || !count)
        worst = INFINITY;
    for (int i = 0; i < count && worst < INFINITY; i++) {
        if (isnan(x[i]) && isnan(y[i]))
            continue;
        double d = fabs(x[i] - y[i]) / fabs(x[i]);
        worst = !(d <= worst) ? (isnan(d) ? INFINITY : d) : worst;
    }
    free(x);
    free(y);
    return worst;
}

static double value_of(const char *dir, const char *key, bool is_last)
{
    ZD_FREED double *values = NULL;
    int count = job_threads_column(dir, key, &values);
    double value = count ? values[is_last ? count - 1 : 0] : NAN;
    return value;
}

double first_of_column(const char *dir, const char *key)
{
    return value_of(dir, key, false);
}

double last_of_column(const char *dir, const char *key)
{
    return value_of(dir, key, true);
}

json_t *job_manifest(const char *dir, int step)
{
    char path[PATH_MAX];
    json_t *manifest = NULL;
    ZD_PRINT(path, "%s/out/checkpoint-%06d/manifest.json", dir, step);
    return json_parse_file(path, 1 << 24, &manifest) == ZD_OK ? manifest : NULL;
}

bool same_file(const char *a, const char *b)
{
    char *x = NULL, *y = NULL;
    size_t x_bytes = 0, y_bytes = 0;
    bool ok = fs_read_file(a, 1 << 28, &x, &x_bytes) == ZD_OK &&
              fs_read_file(b, 1 << 28, &y, &y_bytes) == ZD_OK &&
              x_bytes == y_bytes && memcmp(x, y, x_bytes) == 0;
    zd_error_clear();
    free(x);
    free(y);
    return ok;
}

bool same_output(const char *a, const char *b, const char *name)
{
    char first[PATH_MAX], second[PATH_MAX];
    ZD_PRINT(first, "%s/out/%s", a, name);
    ZD_PRINT(second, "%s/out/%s", b, name);
    return same_file(first, second);
}

bool same_model(const char *a, const char *b)
{
    return same_output(a, b, "hf/model.safetensors");
}

static char root[] = "/tmp/zerod-job-XXXXXX";
static pid_t root_owner;

static void remove_root(void)
{
    if (getpid() == root_owner)
        fs_remove_tree(root);
}

const char *job_threads_dir(void)
{
    static char dirs[1024][64];
    static int count;
    if (!root_owner) {
        if (!mkdtemp(root))
            abort();
        root_owner = getpid();
        atexit(remove_root);
        struct zd_log_options quiet = {.level = ZD_LOG_ERROR, .rank = 0};
        zd_log_configure(&quiet);
    }
    char *dir = dirs[count % 1024];
    snprintf(dir, sizeof dirs[0], "%s/%d", root, count++);
    fs_make_dirs(dir);
    return dir;
}
