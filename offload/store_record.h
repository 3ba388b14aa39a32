/* store_record.h - the layout of a chunk as one record: in memory, in the file,
 * in undo's copy and in a snapshot.
 *
 *   | master |..| m | its scales |..| v | its scales |..| slot |..|
 *
 * Its parts (chunk_parts, in the order of their bits) begin at multiples of
 * `align` (RECORD_ALIGN; AIO_ALIGN in the file and its buffers), one after the
 * other: each can be read alone, and neighbors in one transfer. All have room
 * for whole qblocks. Records are in the order of chunks. The slot is part of it
 * only if params are on NVMe. Private to offload. */
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
/* Sets the pointers to the parts of a record at `data`. */
void record_memory(
        const struct offload_request *request, const struct chunk *chunk,
        size_t align, char *data, struct chunk_memory *memory);
/* Bytes of all records; `offsets` (may be NULL): where each begins. */
uint64_t records_place(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count, size_t align, uint64_t *offsets);
/* Copy a chunk's masters, and with `moments` its states and scales. */
void chunk_copy(
        const struct offload_request *request, const struct chunk *chunk,
        const struct chunk_memory *to, const struct chunk_memory *from,
        bool moments, copy_fn *copy);
/* Bytes of the largest record. */
size_t record_largest(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count, size_t align);
/* Buffers in the ring. */
int record_ring_count(const struct offload_request *request, int chunk_count);
