/* device_memory.h - memory of the thread's current device, from the host.
 *
 * On a GPU the host must not touch device memory but through these calls; on
 * the CPU they are mmap, memcpy and memset. All but the allocations are ordered
 * on the compute stream: they see the results of kernels that were queued
 * before, and kernels that are queued later see what they wrote. Errors:
 * ZD_ERR_MEMORY when an allocation is refused, otherwise ZD_ERR_DEVICE. */
#pragma once

#include "base/device/device.h"

/* One zeroed block, aligned to at least a page. For arenas. */
enum zd_status device_take(size_t bytes, void **device_out);
void device_give(void *device, size_t bytes);

/* Zeroed host memory, rounded up to whole pages only. For a GPU it is
 * page-locked and, where the system allows it, on the GPU's NUMA node, so that
 * copies are asynchronous and run at full speed. */
enum zd_status device_take_pinned(size_t bytes, void **host_out);
void device_give_pinned(void *host, size_t bytes);

/* Lend device_write its staging: DEVICE_STAGING_BYTES of page-locked memory
 * that the caller's plan counts. NULL takes it back, after all writes have
 * arrived. Without it the first device_write allocates its own. The CPU needs
 * none. */
enum { DEVICE_STAGING_BYTES = 4 << 20 };
enum zd_status device_lend_staging(void *pinned);

enum zd_status device_clear(void *device, size_t bytes);
/* Copy within the device; the ranges do not overlap. */
enum zd_status device_move(void *to, const void *from, size_t bytes);
/* The same for `count` rows; strides are in bytes. */
struct device_rows {
    size_t to_stride, from_stride, bytes, count;
};
enum zd_status device_move_rows(
        void *to, const void *from, const struct device_rows *rows);
/* Waits until the values are there. */
enum zd_status device_read(void *host, const void *device, size_t bytes);
/* `host` may be reused when it returns. */
enum zd_status device_write(void *device, const void *host, size_t bytes);

/* Waits for all that was queued on the compute stream. */
enum zd_status device_finish(void);
/* The first failure of an asynchronous operation since the device was opened,
 * if it is known yet; a GPU that has failed once keeps failing. Does not wait.
 * Called once per step. */
enum zd_status device_check(void);
/* Bytes of the device that all processes use now, as the driver says; on the
 * CPU the resident bytes of this process. */
enum zd_status device_used_bytes(uint64_t *bytes_out);
