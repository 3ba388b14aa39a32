/* cut.h - how an extent of elements is cut into chunks: the units of the
 * workers' jobs, of records in a file, and of what zero spills to the host.
 *
 *     | most | most | most | rest |      chunk i begins at i * most
 */
#pragma once

#include "offload/options.h"
#include "optim/optim.h"

/* Elements of a chunk at most: options->chunk_bytes of fp32 master weights (0:
 * 4 MiB), rounded down to a multiple of 256, at least 256. */
static inline size_t cut_most(const struct offload_options *options)
{
    uint64_t bytes = options->chunk_bytes ? options->chunk_bytes : 4 << 20;
    size_t count = (size_t)bytes / sizeof(float);
    count -= count % OPTIM_QBLOCK;
    return count ? count : OPTIM_QBLOCK;
}

/* Chunks of `total` elements. */
static inline size_t cut_count(size_t total, size_t most)
{
    return (total + most - 1) / most;
}

struct cut {
    size_t begin, count; /* elements of the extent */
};

/* Chunk `i`. */
static inline struct cut cut_at(size_t total, size_t most, size_t i)
{
    size_t begin = i * most;
    size_t left = total - begin;
    return (struct cut){begin, left < most ? left : most};
}
