/* device_check_cuda.c - turns CUDA's errors into ours; the GPU of a thread. */
#include "base/device/gpu_cuda.h"

#include <assert.h>
#include <string.h>

void device_cuda_help(void)
{
    zd_fail_help(
            "look for an Xid in `dmesg`: it says whether the GPU itself "
            "failed; the same command again resumes from the last checkpoint");
}

enum zd_status device_cuda_check(cudaError_t error, const char *call)
{
    if (error == cudaSuccess)
        return ZD_OK;
    cudaGetLastError();
    struct device_facts facts = device_facts();
    int name = (int)strcspn(call, "(");
    if (facts.backend == DEVICE_CUDA)
        ZD_FAIL(ZD_ERR_DEVICE, "E1206", "GPU %d (%s): %.*s: %s (%s)",
                facts.index, facts.name, name, call, cudaGetErrorString(error),
                cudaGetErrorName(error));
    else
        ZD_FAIL(ZD_ERR_DEVICE, "E1206", "%.*s: %s (%s)", name, call,
                cudaGetErrorString(error), cudaGetErrorName(error));
    device_cuda_help();
    return ZD_ERR_DEVICE;
}

struct gpu *gpu_current(void)
{
    struct device *device = device_current();
    assert(device && device->facts.backend == DEVICE_CUDA);
    return (struct gpu *)device;
}

void gpu_enter(const struct gpu *gpu)
{
    if (device_current() != &gpu->head)
        cudaSetDevice(gpu->head.facts.index);
}
