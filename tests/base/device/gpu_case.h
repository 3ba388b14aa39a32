/* gpu_case.h - what tests of a GPU have in common: one is opened and the
 * thread's; without one the test is skipped. */
#ifndef ZD_TESTS_BASE_DEVICE_GPU_CASE_H
#define ZD_TESTS_BASE_DEVICE_GPU_CASE_H

#include "base/device/device_memory.h"

#include <criterion/criterion.h>
#include <pthread.h>

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

/* What a stream stops at until the test lets it go on. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;
};
#define GATE                                                                   \
    {                                                                          \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false             \
    }

static inline void gate_pass(void *ctx, int64_t arg)
{
    struct gate *gate = (struct gate *)ctx;
    (void)arg;
    pthread_mutex_lock(&gate->lock);
    while (!gate->open)
        pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

static inline void gate_open(struct gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    gate->open = true;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

#endif
