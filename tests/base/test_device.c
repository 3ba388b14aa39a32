#include "base/device.h"

#include <criterion/criterion.h>

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
