/* store.h - where chunks live: in memory, or in a file behind a ring of buffers.
 * Private to offload.
 *
 * A chunk is a part of one run (at most chunk_elements, a multiple of 256 but
 * at a run's end). The workers go through lists of chunks: */
#ifndef ZD_OFFLOAD_STORE_H
#define ZD_OFFLOAD_STORE_H

#include "offload/offload.h"

struct chunk {
    int run, segment;
    size_t begin, count; /* elements of the run */
};

/* Arrays of one chunk; a worker owns them from acquire to release. */
struct chunk_memory {
    void *master;
    void *state[OPTIM_LANES];
    float *scale[OPTIM_LANES];
    void *slot; /* the slot's elements; with `accumulates` the accumulator */
};

/* What of a chunk is wanted, or has changed. */
enum chunk_parts { CHUNK_STATES = 1 /* master, m, v */, CHUNK_SLOT = 2 };

struct store_list { /* a sequence of chunks that the workers are about to use */
    const int *chunks;
    int count;
    unsigned reads, writes; /* chunk_parts */
};

struct store; /* each tier has its own */
struct store_ops {
    /* Chunks of `list` will be acquired in about this order: read ahead. Before
     * the next list every one of them has been released. */
    enum zd_status (*begin)(struct store *store, const struct store_list *list);
    /* From any worker; blocks until position `at` of the list is in memory. */
    enum zd_status (*acquire)(
            struct store *store, int at, struct chunk_memory *memory_out);
    /* What the list writes is written behind. */
    enum zd_status (*release)(struct store *store, int at);
    /* Until all that was written can be read again. */
    enum zd_status (*finish)(struct store *store);
    void (*destroy)(struct store *store);
};
struct store {
    const struct store_ops *ops;
};

struct store_request {
    const struct offload_request *request;
    const struct chunk *chunks;
    int chunk_count;
    const struct arena *arena;
    const struct offload_place *place;
};
/* store_memory.c: pointers into the arena's spans. */
enum zd_status store_memory_create(
        const struct store_request *request, struct store **store_out);
/* store_file.c: states in a file, slots too when params are on NVMe; else slots
 * are the arena's. */
enum zd_status store_file_create(
        const struct store_request *request, struct store **store_out);
/* Bytes of the ring and the file, for offload_measure. */
enum zd_status store_file_measure(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count, size_t *ring_bytes_out, size_t *file_bytes_out);

/* Cut the runs into chunks of at most options->chunk_bytes of master weights
 * (0: 4 MiB), in order; with chunks NULL only counts. */
int chunks_cut(const struct offload_request *request, struct chunk *chunks);

#endif
