/* store_record.h - a chunk as the file has it.
 *
 *   | master | m | v | scales of m | scales of v |..| slot |..|
 *   |<-------------- CHUNK_STATES -------------->  |<- CHUNK_SLOT ->
 *
 * Arrays begin at multiples of 64 bytes and have room for whole qblocks. The
 * two parts begin at multiples of AIO_ALIGN, in the file and in a buffer, and
 * one follows the other: either can be moved alone, both in one go. Records lie
 * in the order of the chunks. The slot is there when params are on NVMe.
 * Private to offload. */
#ifndef ZD_OFFLOAD_STORE_RECORD_H
#define ZD_OFFLOAD_STORE_RECORD_H

#include "offload/store.h"

struct record { /* bytes from its start */
    size_t master, state[OPTIM_LANES], scale[OPTIM_LANES];
    size_t slot;  /* where the second part begins: all of the first */
    size_t bytes; /* of both */
};

struct record record_of(
        const struct offload_request *request, const struct chunk *chunk);
/* Sets the pointers of what a record at `data` has. */
void record_memory(
        const struct offload_request *request, const struct chunk *chunk,
        char *data, struct chunk_memory *memory);
/* Bytes of the largest. */
size_t record_largest(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count);
/* Buffers in the ring. */
int ring_count(const struct offload_request *request, int chunk_count);

#endif
