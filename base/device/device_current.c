/* device_current.c - the device of a thread. */
#include "base/device/device_table.h"

static _Thread_local struct device *current;

const struct device_table *device_table(void)
{
    return current ? current->table : &device_table_cpu;
}

void device_use(struct device *device)
{
    current = device;
    if (device)
        device->table->use(device);
}

struct device *device_current(void)
{
    return current;
}

enum device_backend device_backend(void)
{
    return current ? current->facts.backend : DEVICE_CPU;
}

struct device_facts device_facts(void)
{
    if (current)
        return current->facts;
    return (struct device_facts){
            .backend = DEVICE_CPU,
            .name = "cpu",
            .index = -1,
            .numa_node = -1,
            .total_bytes = device_system_memory(),
            .free_bytes = device_available_memory()};
}

uint64_t device_grain_bytes(void)
{
    return current ? DEVICE_GRAIN : 0;
}

enum stream_mode device_stream_mode(
        const struct device_options *options, bool offloads)
{
    if (device_backend() == DEVICE_CUDA)
        return STREAM_CUDA;
    bool has_threads = options->streams == DEVICE_STREAMS_AUTO
                               ? offloads
                               : options->streams == DEVICE_STREAMS_THREADS;
    return has_threads ? STREAM_THREAD : STREAM_INLINE;
}
