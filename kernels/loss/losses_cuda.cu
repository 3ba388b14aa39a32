#include "kernels/cuda/cuda.cuh"

#include "base/number/exact_sum_cuda.cuh"

extern "C" {
#include "kernels/loss/losses.h"
}

/* A single block suffices for a few thousand terms. */
static __global__ void add_losses_kernel(
        struct exact_sum *sum, const float *losses, int n)
{
    struct exact_window window = exact_window_empty();
    for (int64_t i = thread_of_grid(); i < n; i += threads_of_grid())
        exact_window_add(sum, &window, (double)losses[i]);
    exact_window_flush(sum, &window);
    if (thread_of_grid() == 0)
        exact_sum_pending(sum, n);
}

extern "C" enum zd_status add_losses_cuda(
        struct stream *stream, struct exact_sum *sum, const float *losses,
        int n)
{
    enum { BLOCK = 256, MOST = 16 };
    if (n <= 0)
        return ZD_OK;
    ZD_LAUNCH(
            add_losses_kernel, grid_for(n, BLOCK, MOST), BLOCK, 0,
            device_cuda_stream(stream), sum, losses, n);
    return ZD_OK;
}
