/* emulate_case.h - what tests of the emulator share. */
#pragma once

#include "tests/cuda/emulate.h"
#include "tests/cuda/gives.h"

/* Values of the device that hold 0, 1, 2 ... count - 1. */
static inline float *device_floats(int count)
{
    float *device = nullptr;
    float *host = new float[(size_t)count];
    for (int i = 0; i < count; i++)
        host[i] = (float)i;
    OK(cudaMalloc((void **)&device, (size_t)count * 4));
    OK(cudaMemcpy(device, host, (size_t)count * 4, cudaMemcpyHostToDevice));
    delete[] host;
    return device;
}
