/* test_shared_out.c - who reads and writes what: a resume verifies each shard
 * once, by one rank and several threads of it; each rank loads what it holds,
 * and writes its part of the exported model. */
#include "base/file/fs.h"
#include "base/file/hash.h"
#include "base/file/safetensors.h"
#include "base/threads.h"
#include "tests/support/job_threads.h"
#include "tests/support/wrap.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 4, FILES = 8, WAIT_MS = 20000 };

/* Of the thread; -1: of no rank. */
static _Thread_local int rank = -1;
static _Thread_local bool is_verifying;

/* Of a run. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct verified {
    char path[PATH_MAX];
    int times, rank;
} verified[FILES];
static int verified_count;
static _Atomic int within; /* threads that verify, now */
static _Atomic bool want_two, were_two;
/* bytes: of the checkpoint of step 2, of later ones, of the model */
static _Atomic size_t loaded[RANKS], taken[RANKS], exported[RANKS];

static void forget(void)
{
    memset(verified, 0, sizeof verified);
    verified_count = 0;
    atomic_store(&were_two, false);
    for (int r = 0; r < RANKS; r++)
        loaded[r] = taken[r] = exported[r] = 0;
}

/* --- whose thread it is --------------------------------------------------- */

WRAP(enum zd_status, train_run, const struct train_job *job, struct comm *comm,
     const struct train_observer *observer)
{
    rank = comm_rank(comm);
    return __real_train_run(job, comm, observer);
}

struct body {
    int rank;
    void *(*body)(void *);
    void *ctx;
};

static void *run_body(void *ctx)
{
    struct body body = *(struct body *)ctx;
    free(ctx);
    rank = body.rank;
    return body.body(body.ctx);
}

WRAP(int, thread_start, pthread_t *out, const char *name, void *(*body)(void *),
     void *ctx)
{
    struct body *mine = malloc(sizeof *mine);
    *mine = (struct body){.rank = rank, .body = body, .ctx = ctx};
    int error = __real_thread_start(out, name, run_body, mine);
    if (error)
        free(mine);
    return error;
}

/* --- what it does --------------------------------------------------------- */

static void note_verified(const char *path)
{
    int i = 0;
    pthread_mutex_lock(&lock);
    while (i < verified_count && strcmp(verified[i].path, path) != 0)
        i++;
    if (i == verified_count && i < FILES)
        strcpy(verified[verified_count++].path, path);
    if (i < FILES) {
        verified[i].times++;
        verified[i].rank = rank;
    }
    pthread_mutex_unlock(&lock);
}

/* Of a rank's threads, the first stays until there is another. */
static void meet_another(void)
{
    for (int i = 0; i < WAIT_MS && !were_two; i++) {
        if (atomic_load(&within) >= 2)
            atomic_store(&were_two, true);
        usleep(1000);
    }
}

WRAP(enum zd_status, st_digest, const char *path, char hex[HASH_HEX])
{
    note_verified(path);
    is_verifying = true;
    atomic_fetch_add(&within, 1);
    if (want_two)
        meet_another();
    enum zd_status status = __real_st_digest(path, hex);
    atomic_fetch_sub(&within, 1);
    is_verifying = false;
    return status;
}

WRAP(enum zd_status, fs_pread, int fd, const char *path, void *data,
     size_t bytes, uint64_t offset)
{
    bool is_second = strstr(path, "/checkpoint-000002/");
    if (rank >= 0 && !is_verifying && strstr(path, "/shard-"))
        atomic_fetch_add(is_second ? &loaded[rank] : &taken[rank], bytes);
    return __real_fs_pread(fd, path, data, bytes, offset);
}

WRAP(enum zd_status, fs_pwrite, int fd, const char *path, const void *data,
     size_t bytes, uint64_t offset)
{
    if (rank >= 0 && strstr(path, "/model.safetensors"))
        atomic_fetch_add(&exported[rank], bytes);
    return __real_fs_pwrite(fd, path, data, bytes, offset);
}

/* --- tests ---------------------------------------------------------------- */

static bool run(const char *dir, int world, const char *sets)
{
    forget();
    zd_error_clear();
    return job_runs(
            "tests/train/bytes.toml", dir, world,
            "zero.stage=2 checkpoint.save_steps=2 report.html=false %s", sets);
}

#define TWO_STEPS "train.max_steps=2 checkpoint.export=none"

/* Bytes of the shards of the checkpoint of step 2. */
static size_t shard_bytes(const char *dir)
{
    size_t all = 0;
    for (int r = 1; r <= RANKS; r++) {
        char path[PATH_MAX];
        int fd;
        uint64_t bytes = 0;
        ZD_PRINT(
                path, "%s/out/checkpoint-000002/shard-%05d-of-%05d.safetensors",
                dir, r, RANKS);
        if (fs_open_read(path, &fd, &bytes) == ZD_OK)
            close(fd);
        all += bytes;
    }
    return all;
}

/* Each once, and by the ranks in turn. */
static bool are_shared_out(int world)
{
    int of[RANKS] = {0};
    bool ok = verified_count == RANKS;
    for (int i = 0; i < verified_count; i++) {
        ok &= verified[i].times == 1;
        if (verified[i].rank >= 0)
            of[verified[i].rank]++;
    }
    for (int r = 0; r < world; r++)
        ok &= of[r] == RANKS / world;
    return ok;
}

/* All have about as much as the others. */
static bool are_even(_Atomic size_t *bytes, int world, size_t all)
{
    bool ok = true;
    for (int r = 0; r < world; r++)
        ok &= bytes[r] > all / (size_t)world / 2 &&
              bytes[r] < all / (size_t)world * 3 / 2;
    return ok;
}

int main(void)
{
    const char *dir = job_threads_dir();
    bool ran = run(dir, RANKS, TWO_STEPS);
    size_t all = shard_bytes(dir);
    tap_ok(ran && all > 0, "%d ranks save %zu bytes", RANKS, all);

    ran = run(dir, 2, "train.max_steps=3 checkpoint.export=hf");
    tap_ok(ran && are_shared_out(2),
           "two ranks go on: each shard is verified once, half of them by "
           "either (%d)",
           verified_count);
    tap_ok(are_even(loaded, 2, all),
           "each loads what it holds: %zu and %zu bytes", (size_t)loaded[0],
           (size_t)loaded[1]);
    size_t model = exported[0] + exported[1];
    tap_ok(model > 0 && are_even(exported, 2, model) &&
                   are_even(taken, 2, taken[0] + taken[1]),
           "each writes its part of the model, %zu and %zu bytes, out of the "
           "%zu and %zu that it reads",
           (size_t)exported[0], (size_t)exported[1], (size_t)taken[0],
           (size_t)taken[1]);

    dir = job_threads_dir();
    ran = run(dir, RANKS, TWO_STEPS);
    atomic_store(&want_two, true);
    ran = ran && run(dir, 1,
                     "train.max_steps=3 checkpoint.export=none "
                     "device.cpu_threads=2");
    tap_ok(ran && are_shared_out(1) && atomic_load(&were_two),
           "one rank verifies them all, by two threads at once");
    return tap_done();
}
