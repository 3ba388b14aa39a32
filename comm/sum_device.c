/* Sums in the memory of the thread's device. */
#include "comm/comm_device.h"

#include "base/device/device.h"
#include "zd_config.h"

#if ZD_HAVE_CUDA
#include "comm/sum_cuda.h"
#endif

enum zd_status comm_device_add(
        struct stream *stream, float *to, const float *from, size_t count)
{
#if ZD_HAVE_CUDA
    if (device_backend() == DEVICE_CUDA)
        return comm_add_cuda(stream, to, from, count);
#endif
    const void *parts[] = {from};
    sum_parts(to, DTYPE_FP32, true, parts, 1, 1, count);
    return ZD_OK;
}
