#include "kernels/cuda_table.h"

#include "base/device_cuda.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>

/* --- the workspace ---------------------------------------------------------- */

/* A device is used by one thread (a rank), so the memory that this thread's
 * operations borrow is the thread's. */
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
