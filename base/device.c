#include "base/device.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct device_options device_options_default(void)
{
    return (struct device_options){.backend = DEVICE_AUTO};
}

/* A number in a one-line file; 0 when there is none ("max"). */
static uint64_t read_number(const char *path)
{
    unsigned long long value = 0;
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    if (fscanf(file, "%llu", &value) != 1)
        value = 0;
    fclose(file);
    return value;
}

uint64_t device_system_memory(void)
{
    uint64_t bytes =
            (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    static const char *const limits[] = {
            "/sys/fs/cgroup/memory.max",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    };
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        uint64_t limit = read_number(limits[i]);
        if (limit && limit < bytes)
            bytes = limit;
    }
    return bytes;
}

int device_affinity_cpus(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return device_online_cpus();
    return CPU_COUNT(&set);
}

int device_online_cpus(void)
{
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? (int)count : 1;
}

int device_threads(
        const struct device_options *options, int mask_cpus, int online_cpus,
        int local_size)
{
    if (options->cpu_threads > 0)
        return options->cpu_threads;
    /* A mask smaller than the machine's share of a rank was set for this rank
     * alone (mpirun's binding); a full one is shared by the host's ranks. */
    int threads = mask_cpus;
    if (local_size > 1 && mask_cpus * local_size > online_cpus)
        threads = mask_cpus / local_size;
    return threads > 0 ? threads : 1;
}

enum stream_mode device_stream_mode(
        const struct device_options *options, bool offloads)
{
    switch (options->streams) {
    case DEVICE_STREAMS_INLINE:
        return STREAM_INLINE;
    case DEVICE_STREAMS_THREADS:
        return STREAM_THREAD;
    case DEVICE_STREAMS_AUTO:
        break;
    }
    return offloads ? STREAM_THREAD : STREAM_INLINE;
}
