/* gpu_case.h - what tests of a GPU have in common: one is opened and the
 * thread's; without one the test is skipped. */
#pragma once

#include "base/device/device_memory.h"
#include "tests/support/must.h"

static inline struct device *gpu_case_open(void)
{
    struct device *device;
    if (device_gpu_count(NULL) == 0)
        cr_skip_test("no GPU");
    MUST(device_open(DEVICE_CUDA, 0, 1, &device));
    device_use(device);
    return device;
}

/* One for each test of a suite: TestSuite(NAME, ON_GPU). */
static inline struct device **gpu_case(void)
{
    static struct device *device;
    return &device;
}

static inline void gpu_case_begin(void)
{
    *gpu_case() = gpu_case_open();
}

static inline void gpu_case_end(void)
{
    device_close(*gpu_case());
}

#define ON_GPU .init = gpu_case_begin, .fini = gpu_case_end
