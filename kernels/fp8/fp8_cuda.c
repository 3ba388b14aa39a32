/* fp8_cuda.c - in the place of the CUDA twins, which are not written yet. */
#include "kernels/fp8/fp8.h"

static enum zd_status unavailable(void)
{
    return ZD_FAIL(ZD_ERR_UNFIT, "E1220", "FP8 is not available on a GPU");
}

static enum zd_status amax_unavailable(
        struct stream *stream, float *amax, const void *x, enum dtype type,
        int rows, int columns, int stride, bool merge)
{
    return unavailable();
}

static enum zd_status cast_unavailable(
        struct stream *stream, const struct fp8_cast *cast)
{
    return unavailable();
}

fp8_amax_fn *const fp8_amax_cuda[3] = {
        amax_unavailable, amax_unavailable, amax_unavailable};
fp8_cast_fn *const fp8_cast_cuda[3] = {
        cast_unavailable, cast_unavailable, cast_unavailable};
