/* host_device.h - ZD_HOST_DEVICE before an inline function that kernels of CUDA
 * call too. */
#pragma once

#ifdef __CUDACC__
#define ZD_HOST_DEVICE __host__ __device__
#else
#define ZD_HOST_DEVICE
#endif
