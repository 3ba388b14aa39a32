/* device_nvml.c - whose memory of a GPU it is. CUDA tells what is in use there,
 * by everybody; the driver's NVML tells processes apart. It is opened when that
 * is asked for the first time, and a run that has its GPU for itself never
 * asks: it takes a while to start.
 *
 * In a container of its own process numbers NVML of some
 * drivers gives those of the host: then this process is not found. */
#include "base/device/gpu_cuda.h"
#include "base/library.h"

#include <dlfcn.h>
#include <unistd.h>

enum { NVML_SUCCESS = 0, NO_ATTACH = 2, PROCESSES = 64 };

struct process { /* nvmlProcessInfo_t of version 2 */
    unsigned pid;
    unsigned long long bytes; /* all ones: not told */
    unsigned gpu_instance, compute_instance;
};

struct nvml {
    int (*init)(unsigned flags);
    int (*find)(const char *uuid, void **device_out);
    int (*list)(void *device, unsigned *count, struct process *out);
    bool is_open;
};

static struct nvml nvml;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_nvml(void)
{
    static const char *const names[] = {"libnvidia-ml.so.1", NULL};
    char why[256];
    void *library = library_open(names, why, sizeof why);
    if (!library)
        return;
    *(void **)&nvml.init = dlsym(library, "nvmlInitWithFlags");
    *(void **)&nvml.find = dlsym(library, "nvmlDeviceGetHandleByUUID");
    *(void **)&nvml.list =
            dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3");
    nvml.is_open = nvml.init && nvml.find && nvml.list &&
                   nvml.init(NO_ATTACH) == NVML_SUCCESS;
}

uint64_t gpu_process_bytes(const struct device_facts *facts)
{
    struct process all[PROCESSES];
    unsigned count = PROCESSES;
    void *device;
    pthread_once(&once, open_nvml);
    if (!nvml.is_open || nvml.find(facts->uuid, &device) != NVML_SUCCESS ||
        nvml.list(device, &count, all) != NVML_SUCCESS)
        return 0;
    for (unsigned i = 0; i < count; i++)
        if (all[i].pid == (unsigned)getpid() && all[i].bytes != ~0ull)
            return all[i].bytes;
    return 0;
}
