/* device_memory.h - memory of the thread's current device, from the host.
 *
 * On a GPU the host must not touch device memory but through these calls; on
 * the CPU they are mmap, memcpy and memset. All but the allocations take their
 * turn on the compute stream: what kernels queued before has been done to what
 * they read, and kernels queued later see what they wrote. Errors:
 * ZD_ERR_MEMORY when an allocation is refused, ZD_ERR_DEVICE else. */
#pragma once

#include "base/device/device.h"

/* One block, aligned to a page at least, of zeros. For arenas. */
enum zd_status device_take(size_t bytes, void **device_out);
void device_give(void *device, size_t bytes);

/* Memory of the host, of zeros, in whole pages and no more than that; on a GPU
 * near it (on its NUMA node where the system goes along) and page-locked, so
 * that copies run beside the host and at full speed. */
enum zd_status device_take_pinned(size_t bytes, void **host_out);
void device_give_pinned(void *host, size_t bytes);

/* Page-locked memory that device_write passes through, DEVICE_STAGING_BYTES of
 * it: a caller's that has counted it; NULL: no longer, once all that was
 * written is there. Without it device_write takes some of its own the first
 * time. The CPU needs none. */
enum { DEVICE_STAGING_BYTES = 4 << 20 };
enum zd_status device_lend_staging(void *pinned);

enum zd_status device_clear(void *device, size_t bytes);
/* Copy within the device; the ranges do not overlap. */
enum zd_status device_move(void *to, const void *from, size_t bytes);
/* The same of `count` rows that begin a stride apart, in bytes. */
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
 * if it is known by now; a GPU that has failed once fails ever after. Waits for
 * nothing. Once per step. */
enum zd_status device_check(void);
/* Bytes that the whole device has in use now, by everybody, as the driver says;
 * on the CPU what this process has resident. */
enum zd_status device_used_bytes(uint64_t *bytes_out);
