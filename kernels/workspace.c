/* workspace.c - what operations on a GPU borrow, one after the other. */
#include "kernels/cuda/cuda_workspace.h"

#include "base/number/sizes.h"
#include "kernels/kernels.h"
#include "kernels/matmul/matmul_cuda.h"

size_t kernels_workspace_bytes(const struct kernels_request *request)
{
    if (request->backend == DEVICE_CPU)
        return 0;
    size_t bytes = MATMUL_WORKSPACE_BYTES;
    bytes = size_max(bytes, norm_cuda_workspace_bytes(request->C));
    bytes = size_max(bytes, reduce_rows_cuda_workspace_bytes(request->columns));
    return size_max(
            bytes, embedding_cuda_workspace_bytes(request->N, request->C));
}

void kernels_set_workspace(void *device, size_t bytes)
{
    cuda_workspace_set(device, bytes);
}
