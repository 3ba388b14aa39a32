/* cuda_names.h - the CUDA twins by their names: op_cuda[] has an operation's
 * functions by enum dtype. The header of a family declares it, the family's
 * X_cuda.cu defines it (CUDA_DEFINE of cuda.cuh), and kernels_cuda.c fills its
 * tables with it. */
#pragma once

#define CUDA_DECLARE(op) extern op##_fn *const op##_cuda[3]
