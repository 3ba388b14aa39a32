/* workspace.c - what operations on a GPU borrow, one after the other. */
#include "kernels/cuda/cuda_workspace.h"
#include "kernels/cuda_table.h"
#include "kernels/matmul/matmul_cuda.h"

static size_t greater(size_t a, size_t b)
{
    return a > b ? a : b;
}

size_t norm_cuda_workspace_bytes(int C)
{
    return (size_t)NORM_GRID * 2 * (size_t)C * sizeof(float);
}

/* With one piece of the rows there may be more columns than tiles. */
static size_t reduce_rows_cuda_workspace_bytes(int columns)
{
    size_t sums = (size_t)REDUCE_TILES * REDUCE_TILE_COLUMNS;
    return greater(sums, (size_t)columns) * sizeof(float);
}

size_t embedding_cuda_workspace_bytes(int N, int C)
{
    size_t pieces = ((size_t)N + EMBEDDING_PIECE - 1) / EMBEDDING_PIECE;
    return pieces * EMBEDDING_SUMS * (size_t)C * sizeof(float);
}

size_t matmul_cuda_workspace_bytes(enum dtype dtype)
{
    return PRODUCT_BORROW_BYTES + LIBRARY_WORKSPACE_BYTES;
}

size_t kernels_workspace_bytes(const struct kernels_request *request)
{
    if (request->backend == DEVICE_CPU)
        return 0;
    size_t bytes = matmul_cuda_workspace_bytes(request->dtype);
    bytes = greater(bytes, norm_cuda_workspace_bytes(request->C));
    bytes = greater(bytes, reduce_rows_cuda_workspace_bytes(request->columns));
    return greater(
            bytes, embedding_cuda_workspace_bytes(request->N, request->C));
}

/* A device has one thread that runs operations on it (its rank's), so what they
 * borrow is the thread's. */
static _Thread_local struct {
    void *memory;
    size_t bytes;
} workspace;

void kernels_set_workspace(void *device, size_t bytes)
{
    workspace.memory = device;
    workspace.bytes = bytes;
}

void *cuda_workspace(size_t bytes)
{
    return bytes <= workspace.bytes ? workspace.memory : NULL;
}

size_t cuda_workspace_size(void)
{
    return workspace.bytes;
}
