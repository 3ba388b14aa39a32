/* emulate_case.h - what tests of the emulator share. */
#pragma once

#include "tests/cuda/emulate.h"

#include <criterion/criterion.h>

/* Values of the device that hold 0, 1, 2 ... count - 1. */
static inline float *device_floats(int count)
{
    float *device = nullptr;
    float *host = new float[(size_t)count];
    for (int i = 0; i < count; i++)
        host[i] = (float)i;
    cr_assert_eq(cudaMalloc((void **)&device, (size_t)count * 4), cudaSuccess);
    cr_assert_eq(
            cudaMemcpy(device, host, (size_t)count * 4, cudaMemcpyHostToDevice),
            cudaSuccess);
    delete[] host;
    return device;
}
