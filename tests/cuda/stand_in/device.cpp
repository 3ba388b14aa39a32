/* device.cpp - devices, what they say of themselves, errors. */
#include "tests/cuda/stand_in/internal.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace standin
{
namespace
{
const int MAX_GPUS = 64;
std::atomic<int> sticky_errors[MAX_GPUS];
std::atomic<bool> used[MAX_GPUS];
thread_local int current;
thread_local cudaError_t last;
} // namespace

cudaError_t keep(cudaError_t error)
{
    if (error)
        last = error;
    return error;
}

int device(void)
{
    return current;
}

cudaError_t sticky(int device)
{
    return (cudaError_t)sticky_errors[device].load(std::memory_order_relaxed);
}

void set_sticky(int device, cudaError_t error)
{
    sticky_errors[device].store(error, std::memory_order_relaxed);
}

cudaError_t begin(void)
{
    TRY(start_error());
    if (in_host_function()) {
        report("a host function of a stream calls the GPU");
        return cudaErrorNotPermitted;
    }
    if (lasts(BUSY))
        return cudaErrorDevicesUnavailable;
    used[current].store(true, std::memory_order_relaxed);
    return sticky(current);
}
} // namespace standin

using namespace standin;

static cudaError_t check_index(int index)
{
    return index < 0 || index >= settings().gpus ? cudaErrorInvalidDevice
                                                 : cudaSuccess;
}

void zd_standin_set_sticky(cudaError_t error, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    report("%s", text);
    int at = working_device();
    set_sticky(at < 0 ? current : at, error);
}

cudaError_t cudaGetDeviceCount(int *count_out)
{
    *count_out = 0;
    TRY(start_error());
    *count_out = settings().gpus;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int index)
{
    TRY(start_error());
    TRY(check_index(index));
    current = index;
    return keep(begin());
}

cudaError_t cudaGetDevice(int *index_out)
{
    *index_out = current;
    return keep(start_error());
}

cudaError_t cudaInitDevice(int index, unsigned flags, unsigned device_flags)
{
    TRY(check_index(index));
    return keep(begin());
}

/* The same in every process: those that share a GPU can tell. */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int index)
{
    TRY(start_error());
    TRY(check_index(index));
    memset(static_cast<void *>(out), 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "Stand-in GPU");
    memcpy(out->uuid.bytes, "zerod stand-in", 14);
    out->uuid.bytes[15] = (char)settings().visible[index];
    out->totalGlobalMem = settings().memory_bytes;
    out->major = settings().major;
    out->minor = settings().minor;
    out->multiProcessorCount = 8;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(
        int *value_out, enum cudaDeviceAttr attribute, int index)
{
    TRY(start_error());
    TRY(check_index(index));
    *value_out = (int)settings().shared_bytes;
    if (attribute == cudaDevAttrMaxSharedMemoryPerMultiprocessor)
        return cudaSuccess;
    report("attribute %d of a device is not known here", (int)attribute);
    return keep(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceGetPCIBusId(char *out, int bytes, int index)
{
    TRY(check_index(index));
    snprintf(
            out, (size_t)bytes, "0000:%02X:00.0",
            settings().visible[index] + 1);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return keep(begin());
}

cudaError_t cudaDeviceSynchronize(void)
{
    TRY(begin());
    counters().host_waits++;
    finish_device(current);
    return keep(sticky(current));
}

cudaError_t cudaDriverGetVersion(int *version_out)
{
    *version_out = lasts(NO_DRIVER)    ? 0
                   : lasts(OLD_DRIVER) ? 12000
                                       : CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version_out)
{
    *version_out = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last;
    last = cudaSuccess;
    return sticky(current) ? sticky(current) : error;
}

#define ERROR(code, text)                                                      \
    {                                                                          \
        code, #code, text                                                      \
    }
static const struct {
    cudaError_t code;
    const char *name, *text;
} errors[] = {
        ERROR(cudaSuccess, "no error"),
        ERROR(cudaErrorInvalidValue, "invalid argument"),
        ERROR(cudaErrorMemoryAllocation, "out of memory"),
        ERROR(cudaErrorInitializationError, "initialization error"),
        ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
        ERROR(cudaErrorInvalidMemcpyDirection,
              "invalid copy direction for memcpy"),
        ERROR(cudaErrorInsufficientDriver,
              "CUDA driver version is insufficient for CUDA runtime version"),
        ERROR(cudaErrorDevicesUnavailable,
              "CUDA-capable device(s) is/are busy or unavailable"),
        ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
        ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
        ERROR(cudaErrorNoKernelImageForDevice,
              "no kernel image is available for execution on the device"),
        ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
        ERROR(cudaErrorNotReady, "device not ready"),
        ERROR(cudaErrorIllegalAddress,
              "an illegal memory access was encountered"),
        ERROR(cudaErrorLaunchOutOfResources,
              "too many resources requested for launch"),
        ERROR(cudaErrorHostMemoryAlreadyRegistered,
              "part or all of the requested memory range is already mapped"),
        ERROR(cudaErrorHostMemoryNotRegistered,
              "pointer does not correspond to a registered memory region"),
        ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
        ERROR(cudaErrorNotPermitted, "operation not permitted"),
        ERROR(cudaErrorNotSupported, "operation not supported"),
        ERROR(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
        ERROR(cudaErrorUnknown, "unknown error"),
};
#undef ERROR

const char *cudaGetErrorName(cudaError_t error)
{
    for (const auto &one : errors)
        if (one.code == error)
            return one.name;
    return "an error that the stand-in has no name for";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (const auto &one : errors)
        if (one.code == error)
            return one.text;
    return "an error that the stand-in has no text for";
}
