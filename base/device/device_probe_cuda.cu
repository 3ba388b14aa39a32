/* device_probe_cuda.cu - whether this program has code for a GPU. */
#include "base/device/device_cuda.h"

/* Compiled for the architectures of all others; does nothing and is never
 * launched. */
static __global__ void probe(void)
{
}

extern "C" cudaError_t device_probe(void)
{
    struct cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, (const void *)probe);
}
