/* device_memory_cpu.c - the CPU device: memory of the process. */
#include "base/device/device_table.h"
#include "base/device/host_pages.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static enum zd_status take(size_t bytes, void **device_out)
{
    return host_pages_take(bytes, "device", device_out);
}

static void give(void *device, size_t bytes)
{
    munmap(device, bytes);
}

static enum zd_status clear(void *device, size_t bytes)
{
    memset(device, 0, bytes);
    return ZD_OK;
}

static enum zd_status move(
        void *to, const void *from, const struct device_rows *rows)
{
    for (size_t i = 0; i < rows->count; i++)
        memcpy((char *)to + i * rows->to_stride,
               (const char *)from + i * rows->from_stride, rows->bytes);
    return ZD_OK;
}

static enum zd_status copy(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return ZD_OK;
}

static enum zd_status finish(void)
{
    return ZD_OK;
}

static enum zd_status used_bytes(uint64_t *bytes_out)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    bool is_read = file && fscanf(file, "%*u %llu", &pages) == 1;
    if (file)
        fclose(file);
    if (!is_read)
        return ZD_FAIL(ZD_ERR_UNFIT, "E1200", "cannot read /proc/self/statm");
    *bytes_out = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    return ZD_OK;
}

static void use_nothing(struct device *device)
{
}

const struct device_table device_table_cpu = {
        .streams = &stream_table_cpu,
        .close = use_nothing,
        .use = use_nothing,
        .take = take,
        .give = give,
        .take_pinned = take,
        .give_pinned = give,
        .clear = clear,
        .move = move,
        .read = copy,
        .write = copy,
        .finish = finish,
        .check = finish,
        .used_bytes = used_bytes,
};
