#include "kernels/cuda/cuda_workspace.h"

/* Only one thread, its rank's, runs operations on a device, so the workspace is
 * per thread. */
static _Thread_local struct {
    void *memory;
    size_t bytes;
} workspace;

void cuda_workspace_set(void *device, size_t bytes)
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
