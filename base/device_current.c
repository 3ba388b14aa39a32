/* device_current.c - the device of a thread. */
#include "base/device.h"

int device_gpu_count(const char **why_out)
{
    if (why_out)
        *why_out = "this zerod was built without CUDA";
    return 0;
}

enum device_backend device_resolve(enum device_backend backend)
{
    if (backend != DEVICE_AUTO)
        return backend;
    return device_gpu_count(NULL) > 0 ? DEVICE_CUDA : DEVICE_CPU;
}

enum zd_status device_open(
        enum device_backend backend, int local_rank, int local_size,
        struct device **device_out)
{
    const char *why;
    *device_out = NULL;
    if (backend == DEVICE_CPU)
        return ZD_OK;
    device_gpu_count(&why);
    ZD_FAIL(ZD_ERR_UNFIT, "E1201", "device.backend = \"cuda\": %s", why);
    zd_fail_help("device.backend = \"cpu\"");
    return ZD_ERR_UNFIT;
}

void device_close(struct device *device)
{
}

void device_use(struct device *device)
{
}

struct device *device_current(void)
{
    return NULL;
}

enum device_backend device_backend(void)
{
    return DEVICE_CPU;
}

struct device_facts device_facts(void)
{
    return (struct device_facts){
            .backend = DEVICE_CPU,
            .name = "cpu",
            .index = -1,
            .numa_node = -1,
            .total_bytes = device_system_memory(),
            .free_bytes = device_available_memory()};
}
