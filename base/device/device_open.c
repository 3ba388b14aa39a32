/* device_open.c - opens a device and makes it a thread's current one. */
#include "base/device/device_table.h"

int device_gpu_count(const char **why_out)
{
    const char *why = NULL;
    int count = device_gpus(&why);
    if (why_out)
        *why_out = why;
    return count > 0 ? count : 0;
}

static enum device_backend assumed = DEVICE_AUTO;

void device_assume(enum device_backend backend)
{
    assumed = backend;
}

enum device_backend device_resolve(enum device_backend backend)
{
    const char *why;
    if (backend == DEVICE_AUTO)
        backend = assumed;
    if (backend != DEVICE_AUTO)
        return backend;
    return device_gpus(&why) != 0 ? DEVICE_CUDA : DEVICE_CPU;
}

enum zd_status device_open(
        enum device_backend backend, int local_rank, int local_size,
        struct device **device_out)
{
    const char *why;
    *device_out = NULL;
    if (backend == DEVICE_CPU)
        return ZD_OK;
    if (device_gpu_count(&why) > 0)
        return device_open_gpu(local_rank, local_size, device_out);
    ZD_FAIL(ZD_ERR_UNFIT, "E1201", "no GPU can be used: %s", why);
    return zd_fail_help("%s; or device.backend = \"cpu\"", device_gpus_help());
}

/* No context is larger: beyond it the figure includes others' memory. */
#define CONTEXT_MAX ((uint64_t)1 << 30)

enum zd_status device_share(struct device *device, int sharers)
{
    struct device *before = device_current();
    uint64_t used = 0;
    if (!device)
        return ZD_OK;
    struct device_facts *facts = &device->facts;
    uint64_t total = facts->total_bytes;
    device_use(device);
    enum zd_status status = device->table->used_bytes(&used);
    bool is_alone = sharers == 1 && used <= CONTEXT_MAX;
    if (status == ZD_OK)
        facts->context_bytes = is_alone ? used : 0;
    device_use(before);
    facts->sharers = sharers;
    facts->free_bytes = (total > used ? total - used : 0) / (uint64_t)sharers;
    return status;
}

void device_forget_node(struct device *device)
{
    if (device)
        device->facts.numa_node = -1;
}

void device_close(struct device *device)
{
    if (!device)
        return;
    if (device_current() == device)
        device_use(NULL);
    device->table->close(device);
}
