/* How fast chunks come from the NVMe tier and go back: through the store with
 * one to eight threads, beside a plain loop of pread and pwrite over a file of
 * the same length (as dd with iflag=direct does), taken in turns.
 *
 *     bench_aio FOLDER [MiB [rounds]]
 *
 * Each figure is the median over the rounds. "both" reads a record and writes
 * it back; its MB/s count both ways. Workers only acquire and release. */
#include "offload/aio.h"
#include "bench/timing.h"
#include "offload/store.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORKERS = 2, BLOCK = 1 << 20, ROUNDS_MAX = 31, WAYS = 4, KINDS = 3 };

static const char *const way_names[WAYS] = {
        "plain loop", "1 thread", "4 threads", "8 threads"};
static const char *const kind_names[KINDS] = {"read", "write", "both"};
/* chunk_parts of each kind */
static const unsigned kind_reads[KINDS] = {CHUNK_STATES, 0, CHUNK_STATES};
static const unsigned kind_writes[KINDS] = {0, CHUNK_STATES, CHUNK_STATES};

static void require(enum zd_status status)
{
    if (status == ZD_OK)
        return;
    zd_error_print(stderr, zd_error_get());
    exit(zd_exit_code(status));
}

/* --- the store ------------------------------------------------------------ */

struct bench {
    struct offload_options options;
    struct optim_options optim;
    struct offload_extent extent;
    size_t segment_count, segment_offset, ring_bytes, file_bytes;
    struct offload_request request;
    struct offload_place place;
    struct chunk *chunks;
    int chunk_count;
    struct arena_plan plan;
    struct arena arena;
    struct store_file *store;
    atomic_int next;
};

static void bench_init(
        struct bench *bench, const char *folder, size_t bytes, int threads)
{
    memset(bench, 0, sizeof *bench);
    bench->optim = optim_options_default();
    bench->extent.count = bytes / 6 / OPTIM_QBLOCK * OPTIM_QBLOCK;
    bench->extent.layout.lane[OPTIM_M] = OPTIM_8BIT;
    bench->extent.layout.lane[OPTIM_V] = OPTIM_8BIT;
    bench->segment_count = bench->extent.count;
    bench->options = offload_options_default();
    bench->options.optimizer = OFFLOAD_NVME;
    bench->options.threads = WORKERS;
    bench->options.nvme_path = folder;
    bench->options.aio.block_bytes = BLOCK;
    bench->options.aio.queue_depth = threads;
    bench->request = (struct offload_request){
            .options = &bench->options,
            .optim = &bench->optim,
            .dtype = DTYPE_BF16,
            .segment_counts = &bench->segment_count,
            .segment_count = 1,
            .extents = &bench->extent,
            .extent_count = 1,
    };
    bench->place.file_name = "zerod-bench.offload";
    bench->chunk_count = chunks_cut(&bench->request, NULL);
    bench->chunks = calloc((size_t)bench->chunk_count, sizeof *bench->chunks);
    chunks_cut(&bench->request, bench->chunks);
    require(store_file_measure(
            &bench->request, bench->chunks, bench->chunk_count,
            &bench->ring_bytes, &bench->file_bytes));
    arena_plan_init(&bench->plan);
    require(arena_plan_add(
            &bench->plan, "offload.ring", ARENA_PINNED, SPAN_BUFFERS,
            bench->ring_bytes));
    require(arena_plan_add(
            &bench->plan, "offload.slots", ARENA_PINNED, SPAN_GRADS,
            bench->extent.count * 2)); /* never touched */
    require(arena_take(&bench->arena, &bench->plan));
    struct store_request request = {
            .request = &bench->request,
            .chunks = bench->chunks,
            .chunk_count = bench->chunk_count,
            .segment_offsets = &bench->segment_offset,
            .arena = &bench->arena,
            .place = &bench->place,
    };
    require(store_file_create(&request, &bench->store));
}

static void bench_fini(struct bench *bench)
{
    store_file_destroy(bench->store);
    arena_release(&bench->arena);
    arena_plan_fini(&bench->plan);
    free(bench->chunks);
}

static void *work(void *arg)
{
    struct bench *bench = arg;
    struct chunk_memory memory;
    for (;;) {
        int at = atomic_fetch_add(&bench->next, 1);
        if (at >= bench->chunk_count)
            return NULL;
        require(store_file_acquire(bench->store, at, &memory));
        require(store_file_release(bench->store, at));
    }
}

static void go_through(struct bench *bench, int kind)
{
    pthread_t threads[WORKERS];
    struct store_list list = {
            .count = bench->chunk_count,
            .reads = kind_reads[kind],
            .writes = kind_writes[kind]};
    atomic_store(&bench->next, 0);
    require(store_file_begin(bench->store, &list));
    for (int i = 0; i < WORKERS; i++)
        if (pthread_create(&threads[i], NULL, work, bench) != 0)
            abort();
    for (int i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    require(store_file_finish(bench->store));
}

/* --- the plain loop ------------------------------------------------------- */

static void loop_through(
        const struct aio_file *file, size_t bytes, char *data, int kind)
{
    for (size_t at = 0; at + BLOCK <= bytes; at += BLOCK) {
        if (kind_reads[kind] &&
            pread(file->fd, data, BLOCK, (off_t)at) != BLOCK)
            abort();
        if (kind_writes[kind] &&
            pwrite(file->fd, data, BLOCK, (off_t)at) != BLOCK)
            abort();
    }
}

/* --- both in turns -------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double seconds_of(
        struct bench *benches, const struct aio_file *file, char *data, int way,
        int kind)
{
    double start = clock_seconds();
    if (way == 0)
        loop_through(file, benches[1].file_bytes, data, kind);
    else
        go_through(&benches[way], kind);
    return clock_seconds() - start;
}

static void print_kind(
        double seconds[WAYS][ROUNDS_MAX], int rounds, size_t bytes, int kind)
{
    double plain = 0;
    printf("%-6s", kind_names[kind]);
    for (int way = 0; way < WAYS; way++) {
        qsort(seconds[way], (size_t)rounds, sizeof(double), compare);
        double moved = (double)bytes * (kind == 2 ? 2 : 1) / 1e6;
        double rate = moved / seconds[way][rounds / 2];
        if (way == 0)
            plain = rate;
        printf("  %-10s %6.0f MB/s %5.2fx", way_names[way], rate, rate / plain);
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    static const int threads[WAYS] = {0, 1, 4, 8};
    static double seconds[WAYS][ROUNDS_MAX];
    struct bench benches[WAYS];
    struct aio_file file;
    void *data = NULL;
    if (argc < 2) {
        fprintf(stderr, "bench_aio FOLDER [MiB [rounds]]\n");
        return 64;
    }
    size_t bytes = (size_t)(argc > 2 ? atoi(argv[2]) : 768) << 20;
    int rounds = argc > 3 ? atoi(argv[3]) : 5;
    if (rounds < 1 || rounds > ROUNDS_MAX ||
        posix_memalign(&data, AIO_ALIGN, BLOCK) != 0)
        return 64;
    memset(data, 1, BLOCK);
    for (int way = 1; way < WAYS; way++)
        bench_init(&benches[way], argv[1], bytes, threads[way]);
    require(aio_file_create(
            &file, argv[1], "zerod-bench.plain", benches[1].file_bytes, true));
    printf("%.0f MB in records of %.1f MB, %s, transfers of 1 MiB, %d "
           "workers, median of %d\n",
           (double)benches[1].file_bytes / 1e6,
           (double)benches[1].ring_bytes / 6 / 1e6,
           file.is_direct ? "O_DIRECT" : "through the page cache", WORKERS,
           rounds);
    for (int way = 0; way < WAYS; way++) /* the first write lays out the file */
        seconds_of(benches, &file, data, way, 1);
    for (int kind = 0; kind < KINDS; kind++) {
        for (int round = 0; round < rounds; round++)
            for (int way = 0; way < WAYS; way++)
                seconds[way][round] =
                        seconds_of(benches, &file, data, way, kind);
        print_kind(seconds, rounds, benches[1].file_bytes, kind);
    }
    for (int way = 1; way < WAYS; way++)
        bench_fini(&benches[way]);
    aio_file_close(&file);
    free(data);
    return 0;
}
