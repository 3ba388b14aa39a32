/* device_cuda_find.c - which GPUs there are, and why not. No context is made.
 */
#include "base/device/gpu_cuda.h"
#include "base/numa.h"

#include <ctype.h>
#include <stdio.h>

/* Why the runtime sees no GPU; rare causes in CUDA's own words. */
static const char *reason(cudaError_t error)
{
    static _Thread_local char why[256];
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (error == cudaErrorInsufficientDriver && driver == 0)
        return "there is no NVIDIA driver on this machine";
    if (error == cudaErrorInsufficientDriver)
        ZD_PRINT(
                why,
                "the NVIDIA driver is for CUDA %d.%d, and this program needs "
                "one for CUDA %d.%d",
                driver / 1000, driver % 1000 / 10, runtime / 1000,
                runtime % 1000 / 10);
    else if (error == cudaErrorNoDevice || error == cudaSuccess)
        return "the NVIDIA driver sees no GPU, or CUDA_VISIBLE_DEVICES hides "
               "them all";
    else
        ZD_PRINT(
                why, "the NVIDIA driver does not start: %s (%s)",
                cudaGetErrorString(error), cudaGetErrorName(error));
    return why;
}

/* There is no usable GPU at all, as opposed to a GPU whose driver fails. */
static bool is_absent(cudaError_t error)
{
    int driver = 0;
    cudaDriverGetVersion(&driver);
    return error == cudaSuccess || error == cudaErrorNoDevice ||
           (error == cudaErrorInsufficientDriver && driver == 0);
}

int device_gpus(const char **why_out)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    cudaGetLastError();
    if (error == cudaSuccess && count > 0)
        return count;
    *why_out = reason(error);
    return is_absent(error) ? 0 : -1;
}

const char *device_gpus_help(void)
{
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    return driver < runtime ? "install the NVIDIA driver, 580 or later"
                            : "`nvidia-smi` lists the GPUs of this machine";
}

/* "GPU-8-4-4-4-12" hexadecimal digits, as nvidia-smi writes it. */
static void format_uuid(const cudaUUID_t *uuid, char *out, size_t bytes)
{
    size_t used = (size_t)snprintf(out, bytes, "GPU");
    for (int i = 0; i < 16 && used + 4 < bytes; i++) {
        bool begins = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
        used += (size_t)snprintf(
                out + used, bytes - used, "%s%02x", begins ? "-" : "",
                (unsigned char)uuid->bytes[i]);
    }
}

/* Its PCI address as sysfs writes it, "0000:3b:00.0"; empty: unknown. */
static void read_pci(int index, char *out, int bytes)
{
    if (cudaDeviceGetPCIBusId(out, bytes, index) != cudaSuccess) {
        cudaGetLastError();
        *out = '\0';
    }
    for (char *c = out; *c; c++)
        *c = (char)tolower((unsigned char)*c);
}

enum zd_status gpu_read_facts(int index, struct device_facts *facts)
{
    struct cudaDeviceProp properties;
    *facts = (struct device_facts){.backend = DEVICE_CUDA, .index = index};
    ZD_CUDA(cudaGetDeviceProperties(&properties, index));
    ZD_PRINT(facts->name, "%.95s", properties.name);
    format_uuid(&properties.uuid, facts->uuid, sizeof facts->uuid);
    facts->major = properties.major;
    facts->minor = properties.minor;
    facts->multiprocessors = properties.multiProcessorCount;
    facts->total_bytes = properties.totalGlobalMem;
    read_pci(index, facts->pci, sizeof facts->pci);
    facts->numa_node = numa_node_of_pci(facts->pci);
    ZD_CUDA(cudaDriverGetVersion(&facts->driver));
    ZD_CUDA(cudaRuntimeGetVersion(&facts->runtime));
    return ZD_OK;
}

/* The program was not built for the GPU's architecture. */
static bool is_foreign(cudaError_t error)
{
    return error == cudaErrorNoKernelImageForDevice ||
           error == cudaErrorInvalidDeviceFunction ||
           error == cudaErrorInvalidKernelImage ||
           error == cudaErrorUnsupportedPtxVersion;
}

static const char *fix_of(cudaError_t error)
{
    if (is_foreign(error))
        return "build zerod for it: meson configure -Dgpu_archs=all";
    switch (error) {
    case cudaErrorDevicesUnavailable:
    case cudaErrorDeviceUninitialized:
        return "another process uses this GPU exclusively, or its compute mode "
               "prohibits programs: `nvidia-smi` shows both, `nvidia-smi -c 0` "
               "lets processes share it";
    case cudaErrorMemoryAllocation:
        return "end the processes that fill the GPU's memory; `nvidia-smi` "
               "lists them";
    case cudaErrorECCUncorrectable:
    case cudaErrorHardwareStackError:
        return "the GPU is broken or needs a reset: see `dmesg` for its Xid";
    default:
        return "`nvidia-smi` and `dmesg` say more; device.backend = \"cpu\" "
               "does without it";
    }
}

enum zd_status gpu_refused(
        const struct device_facts *facts, cudaError_t error, const char *call)
{
    cudaGetLastError();
    if (is_foreign(error))
        ZD_FAIL(ZD_ERR_UNFIT, "E1203",
                "this zerod has no code for GPU %d (%s, compute capability "
                "%d.%d): %s",
                facts->index, facts->name, facts->major, facts->minor,
                cudaGetErrorString(error));
    else
        ZD_FAIL(ZD_ERR_UNFIT, "E1202",
                "GPU %d (%s) cannot be used: %s: %s (%s)", facts->index,
                facts->name, call, cudaGetErrorString(error),
                cudaGetErrorName(error));
    return zd_fail_help("%s", fix_of(error));
}

int device_list(struct device_facts *out, int most)
{
    const char *why;
    int count = device_gpus(&why);
    for (int i = 0; i < count && i < most; i++)
        if (gpu_read_facts(i, &out[i]) != ZD_OK)
            zd_error_clear();
    return count < 0 ? 0 : count;
}
