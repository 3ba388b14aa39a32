/* cuda_workspace.h - the workspace of operations on a GPU. All share one block
 * (kernels.h) and each starts at its beginning, because they run one after the
 * other on the compute stream. Sizes are constants here, so that a plan can use
 * them on a machine without a GPU. */
#pragma once

#include <stddef.h>

/* --- the block of the thread's current device ----------------------------- */

/* The memory is the caller's and outlives it. */
void cuda_workspace_set(void *device, size_t bytes);
/* At least `bytes`, aligned to 256; NULL if the block is smaller, which is a
 * bug: the caller asserts. */
void *cuda_workspace(size_t bytes);
size_t cuda_workspace_size(void);

/* --- sizes ---------------------------------------------------------------- */

enum {
    /* Rows of partial sums of a norm's backward: two blocks for each of 132
     * multiprocessors. Registers allow no more with wide rows, and more blocks
     * mean more partial sums. Constant, so that the order of sums is the same
     * on every GPU. */
    NORM_GRID = 264,
    NORM_LONG_PIECES = 4, /* pieces of the rows, if rows are long */

    /* Tiles of column sums: four blocks for each of 132 multiprocessors. A tile
     * is at most 32 packs of 8 columns. */
    REDUCE_TILES = 528,
    REDUCE_TILE_COLUMNS = 256,

    /* Tokens per block of embedding's backward, in the order of their ids. A
     * block writes up to two rows of partial sums, for ids that other blocks
     * share. */
    EMBEDDING_PIECE = 32,
    EMBEDDING_SUMS = 2,
};

static inline size_t norm_cuda_workspace_bytes(int C)
{
    return (size_t)NORM_GRID * 2 * (size_t)C * sizeof(float);
}

/* With a single piece of rows the columns may exceed the tiles' columns. */
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
