#include "kernels/cuda/cuda_workspace.h"

#include "base/number/sizes.h"
#include "kernels/kernels.h"
#include "kernels/matmul/matmul_cuda.h"

/* A device has one thread that runs operations on it (its rank's), so what they
 * borrow, one after the other, is the thread's. */
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
