/* store_record.h - a chunk as one piece of memory: as memory and file have it,
 * as it can be undone from, and as a snapshot copies it.
 *
 *   | master |..| m | its scales |..| v | its scales |..| slot |..|
 *
 * Its parts (chunk_parts, in the order of their bits) begin at multiples of
 * `align` (RECORD_ALIGN; of the file and its buffers AIO_ALIGN), and one
 * follows the other: each can be moved alone, neighbors in one go. All have
 * room for whole qblocks. Records lie in the order of the chunks. The slot is
 * there when params are on NVMe. Private to offload. */
#pragma once

#include "offload/store.h"

enum { RECORD_PARTS = 4, RECORD_ALIGN = ARENA_ALIGN };

struct record {                    /* bytes from its start */
    size_t part[RECORD_PARTS + 1]; /* where each begins; last: its end */
    struct optim_record lanes;     /* m and v, from part[1] */
};

struct record record_of(
        const struct offload_request *request, const struct chunk *chunk,
        size_t align);
size_t record_bytes(
        const struct offload_request *request, const struct chunk *chunk,
        size_t align);
/* Sets the pointers of what a record at `data` has. */
void record_memory(
        const struct offload_request *request, const struct chunk *chunk,
        size_t align, char *data, struct chunk_memory *memory);
/* Bytes of all, one after the other; where each begins (NULL: not wanted). */
uint64_t records_place(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count, size_t align, uint64_t *offsets);
/* Copy a chunk's masters, and with `moments` its states and scales. */
void chunk_copy(
        const struct offload_request *request, const struct chunk *chunk,
        const struct chunk_memory *to, const struct chunk_memory *from,
        bool moments, copy_fn *copy);
/* Bytes of the largest. */
size_t record_largest(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count, size_t align);
/* Buffers in the ring. */
int record_ring_count(const struct offload_request *request, int chunk_count);
