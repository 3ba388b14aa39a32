#include "kernels/cuda/cuda_workspace.h"

/* A device has one thread that runs operations on it (its rank's), so what they
 * borrow is the thread's. */
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
