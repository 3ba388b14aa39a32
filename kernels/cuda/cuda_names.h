/* cuda_names.h - the CUDA twins by their names: the header of a family X
 * declares them, X_cuda.cu has one function for each operation and type, and
 * kernels_cuda.c fills its tables with them. */
#ifndef ZD_KERNELS_CUDA_CUDA_NAMES_H
#define ZD_KERNELS_CUDA_CUDA_NAMES_H

/* The names of the operations of one type. */
#define CUDA_NAME(op, type) op##_cuda_##type
#define CUDA_DECLARE(op)                                                       \
    op##_fn CUDA_NAME(op, fp32);                                               \
    op##_fn CUDA_NAME(op, bf16);                                               \
    op##_fn CUDA_NAME(op, fp16)

#endif
