/* image.h - master weights and states as they lie in memory: one array for each
 * part, in it the extents one after the other. The arena's spans are one
 * image, the copy that an update can be undone from is another. Private to
 * offload. */
#ifndef ZD_OFFLOAD_IMAGE_H
#define ZD_OFFLOAD_IMAGE_H

#include "offload/store.h"

/* Where an extent begins in the parts, in bytes. */
struct extent_place {
    size_t master;
    struct optim_place lanes;
};

struct image {
    const struct offload_request *request;
    const struct extent_place *places; /* by extent, borrowed */
    char *part[OFFLOAD_PARTS];         /* MASTER .. STATES_32BIT */
};

/* Adds the bytes of masters and states to `bytes`; notes in places (by extent,
 * may be NULL) where each begins. */
void image_measure(
        const struct offload_request *request, size_t bytes[OFFLOAD_PARTS],
        struct extent_place *places);
/* Sets master and lanes of `memory`. */
void image_chunk(
        const struct image *image, const struct chunk *chunk,
        struct chunk_memory *memory);
/* Copy master, states and scales of a chunk. */
void chunk_copy(
        const struct offload_request *request, const struct chunk *chunk,
        const struct chunk_memory *to, const struct chunk_memory *from);
/* Bytes of a part of states in the image of old values. */
size_t image_undo_bytes(size_t bytes);

#endif
