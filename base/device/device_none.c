/* device_none.c - a program built without CUDA has no GPUs. */
#include "base/device/device_table.h"

int device_gpus(const char **why_out)
{
    *why_out = "this zerod was built without CUDA";
    return 0;
}

const char *device_gpus_help(void)
{
    return "build zerod with -Dcuda=enabled (docs/gpu.md)";
}

enum zd_status device_open_gpu(
        int local_rank, int local_size, struct device **device_out)
{
    return ZD_ERR_UNFIT;
}

int device_list(struct device_facts *out, int most)
{
    return 0;
}
