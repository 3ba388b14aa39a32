/* device_memory.c - the CPU device: memory of the process. */
#include "base/device_memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum zd_status device_take(size_t bytes, void **device_out)
{
    /* mmap, not malloc: exact size, page-aligned, clear, and untouched pages
     * cost nothing */
    void *base =
            mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602",
                "the system refused %zu bytes of device memory: %s", bytes,
                strerror(errno));
    madvise(base, bytes, MADV_HUGEPAGE);
    *device_out = base;
    return ZD_OK;
}

void device_give(void *device, size_t bytes)
{
    if (device)
        munmap(device, bytes);
}

enum zd_status device_pin(void *host, size_t bytes)
{
    return ZD_OK;
}

void device_unpin(void *host)
{
}

enum zd_status device_clear(void *device, size_t bytes)
{
    memset(device, 0, bytes);
    return ZD_OK;
}

enum zd_status device_move(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return ZD_OK;
}

enum zd_status device_read(void *host, const void *device, size_t bytes)
{
    memcpy(host, device, bytes);
    return ZD_OK;
}

enum zd_status device_write(void *device, const void *host, size_t bytes)
{
    memcpy(device, host, bytes);
    return ZD_OK;
}

enum zd_status device_finish(void)
{
    return ZD_OK;
}

enum zd_status device_check(void)
{
    return ZD_OK;
}

enum zd_status device_used_bytes(uint64_t *bytes_out)
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
