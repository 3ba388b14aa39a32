/* gpu_case.h - what tests of a GPU have in common: one is opened and the
 * thread's; without one the test is skipped. */
#pragma once

#include "base/device/device_memory.h"

#include <criterion/criterion.h>

static inline struct device *gpu_case_open(void)
{
    struct device *device;
    if (device_gpu_count(NULL) == 0)
        cr_skip_test("no GPU");
    cr_assert_eq(
            device_open(DEVICE_CUDA, 0, 1, &device), ZD_OK, "%s",
            zd_error_get()->what);
    device_use(device);
    return device;
}
