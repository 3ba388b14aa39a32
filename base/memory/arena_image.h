/* arena_image.h - what one memory of an arena holds, in a file or in memory of
 * the host; its pages back at the system meanwhile, its addresses kept.
 *
 *     arena_image_scan    which blocks are not zero (nothing is written)
 *     arena_image_write   those blocks, one behind the other, into a new file
 *     arena_give_back     the pages go; the mapping reads as zeros
 *     arena_image_read    the blocks come back from the file, and are the same
 *                         bytes: their digest says so
 *
 *     arena_image_hold, arena_image_put_back    the same with the host's memory
 *                         in the file's place, for a device that has its own
 *
 * Left out are blocks of zeros and spans of SPAN_ACTIVATIONS, whose contents
 * are of no use once the pass that made them is over. The trainer's thread
 * alone may touch the memory between scan and read.
 *
 * Of a GPU the blocks pass through page-locked memory of the host. */
#ifndef ZD_BASE_MEMORY_ARENA_IMAGE_H
#define ZD_BASE_MEMORY_ARENA_IMAGE_H

#include "base/file/hash.h"
#include "base/memory/arena.h"

enum { ARENA_IMAGE_BLOCK = 64 * 1024 };

struct arena_image {
    enum arena_memory memory;
    size_t block_count;
    uint64_t *kept; /* bit of each block: is in the file; owned */
    uint64_t bytes; /* of the file */
    char digest[HASH_HEX];
    char *held; /* what would be in the file; NULL: it is there; owned */
};

/* Nothing of `image` is owned before; ZD_ERR_MEMORY. */
enum zd_status arena_image_scan(
        const struct arena *arena, enum arena_memory memory,
        struct arena_image *image_out);
void arena_image_fini(struct arena_image *image);
/* `path` must not exist. It is on the disk, and out of the page cache as far as
 * the system goes along, when this returns; on failure it is gone. */
enum zd_status arena_image_write(
        const struct arena *arena, struct arena_image *image, const char *path);
/* Takes the memory again first. ZD_ERR_DATA when the file is not what was
 * written, ZD_ERR_IO and others when it cannot be read; what the memory holds
 * is undefined then. */
enum zd_status arena_image_read(
        const struct arena *arena, const struct arena_image *image,
        const char *path);

/* ZD_ERR_MEMORY when the system has no such memory; others of the device. */
enum zd_status arena_image_hold(
        const struct arena *arena, struct arena_image *image);
/* Takes the memory again first; what is held stays until arena_image_fini. */
enum zd_status arena_image_put_back(
        const struct arena *arena, const struct arena_image *image);

#endif
