/* snapshot_threads - a reader and updates at once (offload/snapshot.h): what is
 * read is what was, with room for all copies, for some and for none, whoever is
 * late.
 *
 * A plain program that prints TAP, for the sanitizers too. */
#include "base/number/rng.h"
#include "offload/snapshot.h"
#include "tests/support/tap.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { EXTENTS = 2, WORKERS = 3, ROUNDS = 3, LARGE = 1 << 18 };
#ifdef __SANITIZE_THREAD__ /* it sees a race that does no harm, too */
enum { SEEDS = 2 };
#else
enum { SEEDS = 6 };
#endif

struct trial {
    struct offload_options options;
    struct optim_options optim;
    struct offload_extent extents[EXTENTS];
    struct offload_request request;
    struct chunk *chunks;
    struct chunk_memory *live;
    int chunk_count;
    struct snapshot *snapshot;
    char *memory;
    uint64_t seed;
    int read_until;   /* parts; the reader gives up there */
    _Atomic int next; /* the update's next chunk, of all rounds */
    _Atomic int wrong;
};

static void *must(void *memory)
{
    if (!memory)
        abort();
    return memory;
}

static void be_late(const struct trial *t, uint64_t who, uint64_t at)
{
    float u = rng_uniform(t->seed, who, at);
    struct timespec time = {.tv_nsec = (long)(100000 * u)};
    if (u > 0.7F)
        nanosleep(&time, NULL);
}

static size_t bytes_of(const struct trial *t, int chunk, int part)
{
    size_t count = t->chunks[chunk].count;
    const struct optim_layout *layout =
            &t->extents[t->chunks[chunk].extent].layout;
    if (part == 0)
        return count * sizeof(float);
    enum optim_format format = layout->lane[(part - 1) / 2];
    return part % 2 ? optim_lane_bytes(format, count)
                    : optim_scale_count(format, count) * sizeof(float);
}

static char *at(const struct chunk_memory *memory, int part)
{
    if (part == 0)
        return memory->master;
    return part % 2 ? (char *)memory->lanes.state[part / 2]
                    : (char *)memory->lanes.scale[part / 2 - 1];
}

static void fill(const struct trial *t, int chunk, int round)
{
    for (int part = 0; part < 5; part++)
        for (size_t i = 0; i < bytes_of(t, chunk, part); i++)
            at(&t->live[chunk], part)[i] =
                    (char)(i * 7 + (size_t)(13 * chunk + 31 * part) +
                           (size_t)(101 * round) + t->seed);
}

static bool is_old(
        const struct trial *t, int chunk, int part, const char *values,
        size_t skip, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (values[i] !=
            (char)((skip + i) * 7 + (size_t)(13 * chunk + 31 * part) + t->seed))
            return false;
    return true;
}

/* A part in two reads where it is long enough. */
static void read_part(struct trial *t, int chunk, int part, char *out)
{
    size_t count = t->chunks[chunk].count, bytes = bytes_of(t, chunk, part);
    size_t half = count > 512 ? 256 : count;
    bool scales = part > 0 && part % 2 == 0;
    for (size_t done = 0; bytes && done < count;) {
        size_t n = done ? count - done : half;
        size_t skip = bytes_of(t, chunk, part) * done / count;
        size_t end = done + n == count ? bytes : bytes * half / count;
        if (scales) {
            skip = done / 256 * sizeof(float);
            end = done + n == count ? bytes : half / 256 * sizeof(float);
        }
        const struct chunk_memory *then =
                snapshot_read_begin(t->snapshot, chunk, &t->live[chunk]);
        memcpy(out, at(then, part) + skip, end - skip);
        snapshot_read_end(t->snapshot, chunk, n, 1);
        t->wrong += !is_old(t, chunk, part, out, skip, end - skip);
        done += n;
        be_late(t, 9, (uint64_t)(chunk * 5 + part));
    }
}

/* As a file has them: first one array of all chunks, then the next. */
static void *run_reader(void *ctx)
{
    struct trial *t = ctx;
    char *out = must(malloc(LARGE));
    for (int i = 0; i < 5 * t->chunk_count && i < t->read_until; i++)
        read_part(t, i % t->chunk_count, i / t->chunk_count, out);
    snapshot_end(t->snapshot);
    free(out);
    return NULL;
}

static void *run_worker(void *ctx)
{
    struct trial *t = ctx;
    int i;
    while ((i = atomic_fetch_add(&t->next, 1)) < t->chunk_count) {
        be_late(t, 5, (uint64_t)i);
        for (int round = 1; round <= ROUNDS; round++) {
            snapshot_before_write(t->snapshot, i, &t->live[i]);
            fill(t, i, round);
        }
    }
    return NULL;
}

static void make(struct trial *t)
{
    t->options = offload_options_default();
    t->options.chunk_bytes = 1 << 18;
    t->optim = optim_options_default();
    t->extents[0] = (struct offload_extent){
            .count = 200000, .layout = {{OPTIM_FP32, OPTIM_FP32}}};
    t->extents[1] = (struct offload_extent){
            .count = 150000, .layout = {{OPTIM_8BIT, OPTIM_8BIT}}};
    t->request = (struct offload_request){
            .options = &t->options,
            .optim = &t->optim,
            .extents = t->extents,
            .extent_count = EXTENTS};
    t->chunk_count = chunks_cut(&t->request, NULL);
    t->chunks = must(calloc((size_t)t->chunk_count, sizeof *t->chunks));
    t->live = must(calloc((size_t)t->chunk_count, sizeof *t->live));
    chunks_cut(&t->request, t->chunks);
    for (int c = 0; c < t->chunk_count; c++) {
        t->live[c].master = must(malloc(bytes_of(t, c, 0)));
        for (int lane = 0; lane < OPTIM_LANES; lane++) {
            t->live[c].lanes.state[lane] =
                    must(malloc(bytes_of(t, c, 1 + 2 * lane) + 1));
            t->live[c].lanes.scale[lane] =
                    must(malloc(bytes_of(t, c, 2 + 2 * lane) + 1));
        }
    }
}

static void unmake(struct trial *t)
{
    for (int c = 0; c < t->chunk_count; c++) {
        free(t->live[c].master);
        for (int lane = 0; lane < OPTIM_LANES; lane++) {
            free(t->live[c].lanes.state[lane]);
            free(t->live[c].lanes.scale[lane]);
        }
    }
    free(t->chunks);
    free(t->live);
}

/* One snapshot, and updates that race with its reader. */
static void race(struct trial *t)
{
    pthread_t reader, workers[WORKERS];
    t->next = 0;
    for (int c = 0; c < t->chunk_count; c++)
        fill(t, c, 0);
    snapshot_begin(t->snapshot, true);
    for (int c = 0; c < t->chunk_count; c++)
        snapshot_want(t->snapshot, c, t->chunks[c].count);
    snapshot_open(t->snapshot);
    pthread_create(&reader, NULL, run_reader, t);
    for (int w = 0; w < WORKERS; w++)
        pthread_create(&workers[w], NULL, run_worker, t);
    pthread_join(reader, NULL);
    for (int w = 0; w < WORKERS; w++)
        pthread_join(workers[w], NULL);
}

/* `eighths` of the room that a copy of everything takes. */
static void try(int number, size_t eighths, bool gives_up)
{
    struct trial t = {.read_until = gives_up ? 7 : 1 << 20};
    make(&t);
    size_t all = snapshot_bytes(&t.request, t.chunks, t.chunk_count);
    size_t bytes = all * eighths / 8;
    t.memory = must(malloc(bytes + 1));
    t.snapshot = snapshot_create(
            &t.request, t.chunks, t.chunk_count, t.memory, bytes);
    for (int seed = 1; seed <= SEEDS; seed++) {
        t.seed = (uint64_t)(100 * number + seed);
        race(&t);
    }
    tap_ok(!t.wrong, "room for %zu eighths%s", eighths,
           gives_up ? ", a reader that gives up" : "");
    if (t.wrong)
        printf("# %d reads were not what was\n", t.wrong);
    snapshot_destroy(t.snapshot);
    free(t.memory);
    unmake(&t);
}

int main(void)
{
    try(1, 8, false);
    try(2, 3, false);
    try(3, 0, false);
    try(4, 0, true);
    try(5, 3, true);
    return tap_done();
}
