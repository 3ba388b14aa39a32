/* host_device.h - ZD_HOST_DEVICE before an inline function that kernels of CUDA
 * call too. */
#ifndef ZD_BASE_NUMBER_HOST_DEVICE_H
#define ZD_BASE_NUMBER_HOST_DEVICE_H

#ifdef __CUDACC__
#define ZD_HOST_DEVICE __host__ __device__
#else
#define ZD_HOST_DEVICE
#endif

#endif
