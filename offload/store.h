/* store.h - where chunks are stored: in memory, or in a file with a ring of
 * buffers. Private to offload.
 *
 * A chunk is a part of one extent (offload/cut.h), a multiple of 256 except at
 * the extent's end. */
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
    void *param; /* the new parameter: over the gradient, or in the parameters'
                    own array */
};

/* Parts of a chunk that are read, or written. CHUNK_SLOT is in a file if params
 * are on NVMe: gradient, then parameter; with `accumulates` only the parameter
 * (accumulators stay in memory). Otherwise slots are always in memory. */
enum chunk_parts {
    CHUNK_MASTER = 1,
    CHUNK_M = 2, /* with its scales */
    CHUNK_V = 4,
    CHUNK_STATES = CHUNK_MASTER | CHUNK_M | CHUNK_V,
    CHUNK_SLOT = 8
};

struct store_list { /* consecutive chunks that workers will use, in order */
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
/* Slot and param of a chunk if they are in the arena, else NULL. */
void chunk_slots(
        const struct store_request *request, const struct chunk *chunk,
        struct chunk_memory *memory);
/* A copy of the gradient or parameter of a chunk, or of several neighbors. */
struct chunk_copy {
    size_t at;  /* bytes of the segment's array on the device */
    char *host; /* NULL: in a file */
    size_t bytes;
};
/* How many of `count` chunks of a segment go in one copy: at least the first,
 * together at most so many bytes. */
int chunks_join(
        const struct store_request *request, const struct chunk *chunks,
        int count, bool of_params, size_t most, struct chunk_copy *copy_out);

/* store_file.c: states in a file, slots too when params are on NVMe;
 * else slots are the arena's. */
struct store_file;
enum zd_status store_file_create(
        const struct store_request *request, struct store_file **file_out);
void store_file_destroy(struct store_file *file); /* NULL is accepted */
/* Begins a list: workers will acquire each of its chunks once, in this order,
 * so they are read ahead. All must be released before the next list. Reads see
 * what earlier lists wrote; parts that this list writes without reading must be
 * written completely. */
enum zd_status store_file_begin(
        struct store_file *file, const struct store_list *list);
/* From any worker; blocks until a chunk of the list is in memory. */
enum zd_status store_file_acquire(
        struct store_file *file, int chunk, struct chunk_memory *memory_out);
/* Changed parts are written to the file later. */
enum zd_status store_file_release(struct store_file *file, int chunk);
/* Waits until all writes are in the file. */
enum zd_status store_file_finish(struct store_file *file);
/* Adds the counts since the last call to the disk_ fields. */
void store_file_report(struct store_file *file, struct offload_report *report);
void store_file_describe(
        const struct store_file *file, struct offload_facts *facts);
/* Bytes of the ring and the file, for offload_measure. The ring has two records
 * per worker and two more (options->threads; auto: as for 4). */
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
