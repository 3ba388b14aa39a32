/* device.cpp - devices, what they say of themselves, errors. */
#include "tests/cuda/stand_in/internal.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace standin
{
bool is_busy(void);
int driver_version(void);

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
    cudaError_t error = start_error();
    if (error)
        return error;
    if (in_host_function()) {
        report("a host function of a stream calls the GPU");
        return cudaErrorNotPermitted;
    }
    if (is_busy())
        return cudaErrorDevicesUnavailable;
    used[current].store(true, std::memory_order_relaxed);
    return sticky(current);
}
} // namespace standin

using namespace standin;

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
    cudaError_t error = start_error();
    if (error)
        return keep(error);
    *count_out = settings().gpus;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int index)
{
    cudaError_t error = start_error();
    if (error)
        return keep(error);
    if (index < 0 || index >= settings().gpus)
        return keep(cudaErrorInvalidDevice);
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
    if (index < 0 || index >= settings().gpus)
        return keep(cudaErrorInvalidDevice);
    return keep(begin());
}

/* The same in every process: those that share a GPU can tell. */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int index)
{
    cudaError_t error = start_error();
    if (error)
        return keep(error);
    if (index < 0 || index >= settings().gpus)
        return keep(cudaErrorInvalidDevice);
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
    cudaError_t error = start_error();
    if (error)
        return keep(error);
    if (index < 0 || index >= settings().gpus)
        return keep(cudaErrorInvalidDevice);
    switch (attribute) {
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value_out = (int)settings().shared_bytes;
        return cudaSuccess;
    default:
        report("attribute %d of a device is not known here", (int)attribute);
        return keep(cudaErrorInvalidValue);
    }
}

cudaError_t cudaDeviceGetPCIBusId(char *out, int bytes, int index)
{
    if (index < 0 || index >= settings().gpus)
        return keep(cudaErrorInvalidDevice);
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

cudaError_t cudaDeviceCanAccessPeer(int *can_out, int device, int peer)
{
    *can_out = 0;
    return keep(start_error());
}

cudaError_t cudaDeviceSynchronize(void)
{
    cudaError_t error = begin();
    if (error)
        return keep(error);
    counters().host_waits++;
    finish_device(current);
    return keep(sticky(current));
}

cudaError_t cudaDriverGetVersion(int *version_out)
{
    settings();
    *version_out = driver_version();
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

#define ERRORS(X)                                                              \
    X(cudaSuccess, "no error")                                                 \
    X(cudaErrorInvalidValue, "invalid argument")                               \
    X(cudaErrorMemoryAllocation, "out of memory")                              \
    X(cudaErrorInitializationError, "initialization error")                    \
    X(cudaErrorInvalidConfiguration, "invalid configuration argument")         \
    X(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy")    \
    X(cudaErrorInsufficientDriver,                                             \
      "CUDA driver version is insufficient for CUDA runtime version")          \
    X(cudaErrorDevicesUnavailable,                                             \
      "CUDA-capable device(s) is/are busy or unavailable")                     \
    X(cudaErrorNoDevice, "no CUDA-capable device is detected")                 \
    X(cudaErrorInvalidDevice, "invalid device ordinal")                        \
    X(cudaErrorNoKernelImageForDevice,                                         \
      "no kernel image is available for execution on the device")              \
    X(cudaErrorInvalidResourceHandle, "invalid resource handle")               \
    X(cudaErrorNotReady, "device not ready")                                   \
    X(cudaErrorIllegalAddress, "an illegal memory access was encountered")     \
    X(cudaErrorLaunchOutOfResources,                                           \
      "too many resources requested for launch")                               \
    X(cudaErrorHostMemoryAlreadyRegistered,                                    \
      "part or all of the requested memory range is already mapped")           \
    X(cudaErrorHostMemoryNotRegistered,                                        \
      "pointer does not correspond to a registered memory region")             \
    X(cudaErrorLaunchFailure, "unspecified launch failure")                    \
    X(cudaErrorNotPermitted, "operation not permitted")                        \
    X(cudaErrorNotSupported, "operation not supported")                        \
    X(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered")        \
    X(cudaErrorUnknown, "unknown error")

const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
#define NAME(code, text)                                                       \
    case code:                                                                 \
        return #code;
        ERRORS(NAME)
#undef NAME
    default:
        return "an error that the stand-in has no name for";
    }
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
#define TEXT(code, text)                                                       \
    case code:                                                                 \
        return text;
        ERRORS(TEXT)
#undef TEXT
    default:
        return "an error that the stand-in has no text for";
    }
}
