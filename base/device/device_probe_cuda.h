/* device_probe_cuda.h - whether this program has code for a GPU. */
#pragma once

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* cudaSuccess when kernels of this program have code for the thread's GPU, or
 * PTX that its driver can compile. */
cudaError_t device_probe(void);

#ifdef __cplusplus
}
#endif
