/* child.h - a number from a child process of its own.
 *
 * A child of a process that has initialized CUDA cannot use it
 * (cudaErrorInitializationError), so whoever forks asks for no GPU before: the
 * child does, and says CHILD_NO_GPU where there is none. */
#pragma once

#include "base/device/device.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILD_NO_GPU UINT64_MAX

/* What `work` returns for `argument`, with ZD_STANDIN_ORDER set to `order`. */
static inline uint64_t child_with_gpu(
        uint64_t (*work)(const void *argument), const void *argument,
        const char *order)
{
    uint64_t result = 0;
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        setenv("ZD_STANDIN_ORDER", order, 1);
        result = device_gpu_count(NULL) > 0 ? work(argument) : CHILD_NO_GPU;
        _exit(write(ends[1], &result, sizeof result) != sizeof result);
    }
    close(ends[1]);
    cr_assert_eq(
            read(ends[0], &result, sizeof result), sizeof result,
            "the child has ended without an answer");
    close(ends[0]);
    cr_assert_eq(waitpid(child, NULL, 0), child);
    return result;
}
