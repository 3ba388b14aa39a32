/* cuda_workspace.h - the sizes that decide what operations on a GPU borrow: for
 * the kernels, and for a plan made where there is none. */
#ifndef ZD_KERNELS_CUDA_CUDA_WORKSPACE_H
#define ZD_KERNELS_CUDA_CUDA_WORKSPACE_H

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

#endif
