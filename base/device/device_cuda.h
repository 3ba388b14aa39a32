/* device_cuda.h - the GPU behind base/device/device.h, for the files that speak
 * CUDA: *_cuda.c and *_cuda.cu. Only where ZD_HAVE_CUDA. */
#pragma once

#include "base/device/device_memory.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Turn a CUDA error into ours, naming the call; resets CUDA's last error. */
enum zd_status device_cuda_check(cudaError_t error, const char *call);
/* Help text of these errors. */
void device_cuda_help(void);
#define ZD_CUDA(call) ZD_TRY(device_cuda_check((call), #call))

/* cudaSuccess when kernels of this program have code for the thread's GPU, or
 * PTX that its driver can compile. */
cudaError_t device_probe(void);

/* CUDA's stream of ours; NULL: the compute stream of the thread's device. */
cudaStream_t device_cuda_stream(struct stream *stream);

#ifdef __cplusplus
}
#endif
