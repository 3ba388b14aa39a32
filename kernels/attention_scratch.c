#include "kernels/cuda_table.h"

/* delta, and what begins behind it begins at a whole line. */
size_t attention_cuda_scratch_bytes(
        const struct attention_shape *shape, enum dtype dtype)
{
    size_t rows = (size_t)shape->B * (size_t)shape->H * (size_t)shape->T;
    return (rows * sizeof(float) + 255) / 256 * 256;
}
