/* workspace.c - the workspace that operations on a GPU share. */
#include "kernels/cuda/cuda_workspace.h"

#include "base/number/sizes.h"
#include "kernels/kernels.h"
#include "kernels/matmul/matmul_cuda.h"

size_t kernels_workspace_bytes(int N, int C, int columns)
{
    size_t bytes = MATMUL_WORKSPACE_BYTES;
    bytes = size_max(bytes, norm_cuda_workspace_bytes(C));
    bytes = size_max(bytes, reduce_rows_cuda_workspace_bytes(columns));
    return size_max(bytes, embedding_cuda_workspace_bytes(N, C));
}

void kernels_set_workspace(void *device, size_t bytes)
{
    cuda_workspace_set(device, bytes);
}
