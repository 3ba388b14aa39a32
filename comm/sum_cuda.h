/* sum_cuda.h - sums of ranks' contributions in the GPU's memory: the twin of
 * sum_parts, bit for bit. Only where ZD_HAVE_CUDA. */
#ifndef ZD_COMM_SUM_CUDA_H
#define ZD_COMM_SUM_CUDA_H

#include "base/dtype.h"
#include "base/stream.h"

/* to[i] += from[i] */
enum zd_status comm_add_cuda(
        struct stream *stream, float *to, const float *from, size_t count);

/* to[i] = [to[i] +] sum over p of parts[p * stride + i], as sum_parts adds. */
enum zd_status comm_sum_cuda(
        struct stream *stream, void *to, enum dtype type, bool accumulate,
        const void *parts, size_t stride, int part_count, int node_size,
        size_t count);

#endif
