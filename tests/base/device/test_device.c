#include "base/device/device.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static void forget_threads(void)
{
    unsetenv("OMP_NUM_THREADS");
    unsetenv("OMP_THREAD_LIMIT");
}

TestSuite(device, .init = forget_threads);

Test(device, threads_follow_the_mask)
{
    struct device_options options = device_options_default();
    /* one rank has the whole mask */
    cr_expect_eq(device_threads(&options, 8, 8, 1), 8);
    /* a mask shared by all ranks of the host is divided */
    cr_expect_eq(device_threads(&options, 8, 8, 4), 2);
    cr_expect_eq(device_threads(&options, 2, 2, 8), 1);
    /* a rank bound by the launcher keeps what it was given */
    cr_expect_eq(device_threads(&options, 1, 8, 4), 1);
    cr_expect_eq(device_threads(&options, 2, 8, 4), 2);
    options.cpu_threads = 3;
    cr_expect_eq(device_threads(&options, 8, 8, 4), 3);
    setenv("OMP_THREAD_LIMIT", "2", 1);
    cr_expect_eq(device_threads(&options, 8, 8, 4), 2);
}

Test(device, threads_follow_OMP_NUM_THREADS_where_the_job_is_silent)
{
    struct device_options options = device_options_default();
    static const struct {
        const char *text;
        int threads;
    } rows[] = {
            {"3", 3},
            {"6,2", 6},
            {"", 8},
            {"0", 8},
            {"-1", 8},
            {"2x", 8},
            {"99999999999999999999", 8}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        setenv("OMP_NUM_THREADS", rows[i].text, 1);
        cr_expect_eq(
                device_threads(&options, 8, 8, 1), rows[i].threads, "%s",
                rows[i].text);
    }
    setenv("OMP_NUM_THREADS", "3", 1);
    options.cpu_threads = 5;
    cr_expect_eq(device_threads(&options, 8, 8, 1), 5);
}

Test(device, knows_the_machine)
{
    cr_expect_geq(device_affinity_cpus(), 1);
    cr_expect_leq(device_affinity_cpus(), device_online_cpus());
    cr_expect_gt(device_system_memory(), 1 << 20);
}

Test(device, streams_are_threads_when_something_is_offloaded)
{
    struct device_options options = device_options_default();
    cr_expect_eq(device_stream_mode(&options, false), STREAM_INLINE);
    cr_expect_eq(device_stream_mode(&options, true), STREAM_THREAD);
    options.streams = DEVICE_STREAMS_INLINE;
    cr_expect_eq(device_stream_mode(&options, true), STREAM_INLINE);
    options.streams = DEVICE_STREAMS_THREADS;
    cr_expect_eq(device_stream_mode(&options, false), STREAM_THREAD);
}

Test(device, lists_of_gpus)
{
    const char *good[] = {"auto", "0", "3,1", "0,0,7"};
    const char *bad[] = {"",   "all", "0,",  ",0",   "0 1",
                         "-1", "1.5", "0;1", "0, 1", "99999999999999999999"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        cr_expect(device_gpus_are_valid(good[i]), "%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_expect_not(device_gpus_are_valid(bad[i]), "%s", bad[i]);
    struct device_options options = {.gpus = "3,1,3,0"};
    cr_expect_eq(device_places(&options), 3);
    options.gpus = "auto";
    cr_expect_eq(device_places(&options), device_gpu_count(NULL));
}

Test(device, without_a_gpu_auto_takes_the_cpu_and_says_why)
{
    const char *why;
    struct device *device;
    struct device_options options = device_options_default();
    int place;
    if (device_gpu_count(&why) > 0)
        cr_skip_test("there is a GPU");
    cr_assert(why && why[0]);
    cr_expect_eq(device_resolve(DEVICE_AUTO), DEVICE_CPU);
    cr_expect_eq(device_open(DEVICE_CPU, 0, 1, &device), ZD_OK);
    cr_expect_null(device);
    cr_expect_eq(device_open(DEVICE_CUDA, 0, 1, &device), ZD_ERR_UNFIT);
    cr_expect_str_eq(zd_error_get()->code, "E1201");
    cr_expect(strstr(zd_error_get()->what, why));
    options.gpus = "7";
    cr_expect_eq(device_place(&options, 3, &place), ZD_OK);
    cr_expect_eq(place, 3);
    cr_expect_eq(device_backend(), DEVICE_CPU);
}
