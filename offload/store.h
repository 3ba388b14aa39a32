/* store.h - where chunks live: in memory, or in a file behind a ring of
 * buffers. Private to offload.
 *
 * A chunk is a part of one extent (offload/cut.h), a multiple of 256 but at a
 * extent's end. The workers go through lists of chunks: */
#pragma once

#include "offload/offload.h"
#include "optim/lanes.h"

struct chunk {
    int extent, segment;
    size_t begin, count; /* elements of the extent */
};

/* Arrays of one chunk; a worker owns them from acquire to release. */
struct chunk_memory {
    void *master;
    struct optim_lanes lanes;
    void *slot; /* the gradient: the slot, with `accumulates` the accumulator */
    void *param; /* the new parameter: over the gradient, or where parameters
                    have an array of their own */
};

/* What of a chunk is wanted, or has changed. CHUNK_SLOT is what a file has when
 * params are on NVMe: gradient, then parameter; with `accumulates` only the
 * parameter (accumulators stay in memory). Other slots are always at hand. */
enum chunk_parts {
    CHUNK_MASTER = 1,
    CHUNK_M = 2, /* with its scales */
    CHUNK_V = 4,
    CHUNK_STATES = CHUNK_MASTER | CHUNK_M | CHUNK_V,
    CHUNK_SLOT = 8
};

struct store_list { /* consecutive chunks that the workers are about to use */
    int first, count;
    unsigned reads, writes; /* chunk_parts */
};

struct store_request {
    const struct offload_request *request;
    const struct chunk *chunks;
    int chunk_count;
    const size_t *segment_offsets; /* elements before each segment's slots */
    const struct arena *arena;
    const struct offload_place *place;
};
/* The span of each part. */
struct part_span {
    const char *name;
    enum arena_memory memory;
    enum span_kind kind;
};
extern const struct part_span part_spans[OFFLOAD_PARTS];
/* Slot and param of a chunk as far as they are the arena's, else NULL. */
void chunk_slots(
        const struct store_request *request, const struct chunk *chunk,
        struct chunk_memory *memory);
/* A copy of a chunk's gradient, or parameter, or of those of neighbors. */
struct chunk_copy {
    size_t at;  /* bytes of the segment's array on the device */
    char *host; /* NULL: in a file */
    size_t bytes;
};
/* How many of `count` chunks of a segment go in one copy, of at most so many
 * bytes unless it is the first alone. */
int chunks_join(
        const struct store_request *request, const struct chunk *chunks,
        int count, bool of_params, size_t most, struct chunk_copy *copy_out);

/* store_file.c: states in a file, slots too when params are on NVMe;
 * else slots are the arena's. */
struct store_file;
enum zd_status store_file_create(
        const struct store_request *request, struct store_file **file_out);
void store_file_destroy(struct store_file *file); /* NULL is accepted */
/* Chunks of `list` will be acquired, each once, by workers that take them in
 * this order: read ahead.
 * Before the next list every one of them has been released. What an earlier
 * list wrote is read as it was written; what this one writes and does not read
 * is written whole. */
enum zd_status store_file_begin(
        struct store_file *file, const struct store_list *list);
/* From any worker; blocks until the chunk, of the list, is in memory. */
enum zd_status store_file_acquire(
        struct store_file *file, int chunk, struct chunk_memory *memory_out);
/* What the list writes is written later. */
enum zd_status store_file_release(struct store_file *file, int chunk);
/* Until all that was written can be read again. */
enum zd_status store_file_finish(struct store_file *file);
/* Adds what was done since the last call to the disk_ fields. */
void store_file_report(struct store_file *file, struct offload_report *report);
void store_file_describe(
        const struct store_file *file, struct offload_facts *facts);
/* Bytes of the ring and the file, for offload_measure. The ring has two records
 * for each worker and two more (options->threads; auto: as if 4). */
void store_file_measure(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count, size_t *ring_bytes_out, size_t *file_bytes_out);
/* The disk's part of offload_check: folder, permission, space. */
enum zd_status store_file_check(
        const struct offload_options *options, uint64_t file_bytes,
        int local_size);

/* The chunks of the extents (offload/cut.h), in order; the caller's. */
struct chunk *chunks_cut(const struct offload_request *request, int *count_out);
enum dtype offload_master_type(const struct optim_options *options);
enum dtype offload_grad_type(
        const struct offload_request *request); /* of slots */
/* Whether the file holds a chunk's slot and param. */
bool offload_grads_in_file(const struct offload_request *request);
bool offload_params_in_file(const struct offload_request *request);
