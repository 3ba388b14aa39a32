/* emulate.h - CUDA C++ for the compiler of the CPU. */
#ifndef ZD_TESTS_CUDA_EMULATE_H
#define ZD_TESTS_CUDA_EMULATE_H

#include <cuda_runtime_api.h>

#undef __global__
#undef __device__
#undef __host__
#define __global__
#define __device__
#define __host__

#endif
