/* sum_cuda.h - additions in the GPU's memory. Only where ZD_HAVE_CUDA. */
#ifndef ZD_COMM_SUM_CUDA_H
#define ZD_COMM_SUM_CUDA_H

#include "base/stream.h"

/* to[i] += from[i] */
enum zd_status comm_add_cuda(
        struct stream *stream, float *to, const float *from, size_t count);

#endif
