/* device_memory.c - dispatches to the calling thread's device. */
#include "base/device/device_table.h"

enum zd_status device_take(size_t bytes, void **device_out)
{
    return device_table()->take(bytes, device_out);
}

void device_give(void *device, size_t bytes)
{
    if (device)
        device_table()->give(device, bytes);
}

enum zd_status device_take_pinned(size_t bytes, void **host_out)
{
    return device_table()->take_pinned(bytes, host_out);
}

void device_give_pinned(void *host, size_t bytes)
{
    if (host)
        device_table()->give_pinned(host, bytes);
}

enum zd_status device_clear(void *device, size_t bytes)
{
    return bytes ? device_table()->clear(device, bytes) : ZD_OK;
}

enum zd_status device_move(void *to, const void *from, size_t bytes)
{
    return device_move_rows(
            to, from, &(struct device_rows){bytes, bytes, bytes, 1});
}

enum zd_status device_move_rows(
        void *to, const void *from, const struct device_rows *rows)
{
    return rows->bytes && rows->count ? device_table()->move(to, from, rows)
                                      : ZD_OK;
}

enum zd_status device_read(void *host, const void *device, size_t bytes)
{
    return bytes ? device_table()->read(host, device, bytes) : ZD_OK;
}

enum zd_status device_write(void *device, const void *host, size_t bytes)
{
    return bytes ? device_table()->write(device, host, bytes) : ZD_OK;
}

enum zd_status device_finish(void)
{
    return device_table()->finish();
}

enum zd_status device_check(void)
{
    return device_table()->check();
}

enum zd_status device_used_bytes(uint64_t *bytes_out)
{
    return device_table()->used_bytes(bytes_out);
}

enum zd_status device_lend_staging(void *pinned)
{
    const struct device_table *table = device_table();
    return table->lend_staging ? table->lend_staging(pinned) : ZD_OK;
}
