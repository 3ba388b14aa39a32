/* sum_cuda.h - additions in the GPU's memory. Only where ZD_HAVE_CUDA. */
#pragma once

#include "base/device/stream.h"
#include "base/number/dtype.h"

/* to[i] += from[i] */
enum zd_status comm_add_cuda(
        struct stream *stream, float *to, const float *from, size_t count);

/* `parts` arrays in order, `stride` elements apart, except this rank's own,
 * number `place`. */
struct sum_cuda {
    void *to; /* may be `own` */
    const void *own, *others;
    size_t stride, count; /* elements */
    int parts, place;
    enum dtype type;
    bool accumulate; /* fp32 only */
};
/* to[i] = part 0 [i] + part 1 [i] + .. [+ to[i]], in that order, in fp32,
 * rounded once: the bits of sum_parts. */
enum zd_status comm_sum_cuda(
        struct stream *stream, const struct sum_cuda *request);
