/* cuda_workspace.h - what operations on a GPU borrow while they run: it lies at
 * the beginning of one block (kernels.h), because operations follow each other
 * on the compute stream. The sizes are for the kernels, and for a plan made
 * where there is no GPU. */
#pragma once

#include <stddef.h>

/* --- the block of the thread's current device ----------------------------- */

/* The memory is the caller's and outlives it. */
void cuda_workspace_set(void *device, size_t bytes);
/* At least `bytes`, aligned to 256; NULL where less was handed over, which is
 * our own mistake: the caller asserts. */
void *cuda_workspace(size_t bytes);
size_t cuda_workspace_size(void);

/* --- sizes ---------------------------------------------------------------- */

enum {
    /* Rows of partial sums of a norm's backward: two blocks to each of 132
     * multiprocessors. Registers allow no more for wide rows, and more would
     * leave more partial sums. Fixed, so that the order of the sums is the same
     * on every GPU. */
    NORM_GRID = 264,
    NORM_LONG_PIECES = 4, /* of the rows, where rows are long */

    /* Tiles of the sums of columns: the same GPU four times over. A tile is at
     * most 32 packs of 8 columns. */
    REDUCE_TILES = 528,
    REDUCE_TILE_COLUMNS = 256,

    /* Tokens that a block of embedding's backward takes in the order of their
     * ids. It leaves up to two rows of sums of ids that go on elsewhere. */
    EMBEDDING_PIECE = 32,
    EMBEDDING_SUMS = 2,
};

static inline size_t norm_cuda_workspace_bytes(int C)
{
    return (size_t)NORM_GRID * 2 * (size_t)C * sizeof(float);
}

/* With one piece of the rows there may be more columns than tiles. */
static inline size_t reduce_rows_cuda_workspace_bytes(int columns)
{
    size_t sums = (size_t)REDUCE_TILES * REDUCE_TILE_COLUMNS;
    return (sums > (size_t)columns ? sums : (size_t)columns) * sizeof(float);
}

static inline size_t embedding_cuda_workspace_bytes(int N, int C)
{
    size_t pieces = ((size_t)N + EMBEDDING_PIECE - 1) / EMBEDDING_PIECE;
    return pieces * EMBEDDING_SUMS * (size_t)C * sizeof(float);
}
