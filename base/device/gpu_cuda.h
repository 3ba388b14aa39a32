/* gpu_cuda.h - the GPU of a rank, as the files of base see it that drive it. */
#ifndef ZD_BASE_DEVICE_GPU_CUDA_H
#define ZD_BASE_DEVICE_GPU_CUDA_H

#include "base/device/device_cuda.h"
#include "base/device/device_table.h"

#include <cuda.h>
#include <pthread.h>

/* Pieces of page-locked memory that device_write passes through, so that
 * neither side waits for the other. */
enum {
    STAGING_SLOTS = 4,
    STAGING_BYTES = DEVICE_STAGING_BYTES / STAGING_SLOTS
};
struct gpu_staging {
    pthread_mutex_t lock;
    char *slots;  /* STAGING_SLOTS of STAGING_BYTES; NULL: none yet */
    bool is_lent; /* slots are someone else's */
    cudaEvent_t sent[STAGING_SLOTS];
    int next;
};

/* device_virtual_cuda.c: the driver's functions, NULL where it has none. */
struct gpu_virtual {
    __typeof__(&cuMemAddressReserve) reserve;
    __typeof__(&cuMemAddressFree) unreserve;
    __typeof__(&cuMemCreate) create;
    __typeof__(&cuMemRelease) release;
    __typeof__(&cuMemMap) map;
    __typeof__(&cuMemUnmap) unmap;
    __typeof__(&cuMemSetAccess) set_access;
    __typeof__(&cuMemGetAllocationGranularity) granularity;
    size_t grain; /* 0: cudaMalloc it is */
    pthread_mutex_t lock;
    struct gpu_block *blocks; /* owned */
};

struct gpu {
    struct device head;
    struct stream *compute;
    struct gpu_staging staging;
    struct gpu_virtual virtual;
};

/* The GPU of the calling thread, which has one. */
struct gpu *gpu_current(void);
/* Any thread may come: makes the GPU its own for CUDA. */
void gpu_enter(const struct gpu *gpu);

/* Facts that need no context. */
enum zd_status gpu_read_facts(int index, struct device_facts *facts_out);
/* The record of a refusal to open a GPU, with a fix. */
enum zd_status gpu_refused(
        const struct device_facts *facts, cudaError_t error, const char *call);

/* device_nvml.c: bytes of the GPU that this process has, as the driver tells
 * processes apart; 0: it does not. */
uint64_t gpu_process_bytes(const struct device_facts *facts);

void gpu_virtual_init(struct gpu *gpu);
void gpu_virtual_fini(struct gpu *gpu);
/* cudaErrorMemoryAllocation, or cudaErrorNotSupported: not this way. */
cudaError_t gpu_virtual_take(struct gpu *gpu, size_t bytes, void **base_out);
/* False: the block is not of gpu_virtual_take (or the driver refuses). */
bool gpu_virtual_give(struct gpu *gpu, void *base);

extern const struct stream_table stream_table_cuda;
extern const struct device_table device_table_cuda;

/* device_memory_cuda.c, for the table. */
enum zd_status gpu_take(size_t bytes, void **device_out);
void gpu_give(void *device, size_t bytes);
enum zd_status gpu_take_pinned(size_t bytes, void **host_out);
void gpu_give_pinned(void *host, size_t bytes);
enum zd_status gpu_clear(void *device, size_t bytes);
enum zd_status gpu_move(void *to, const void *from, size_t bytes);
enum zd_status gpu_read(void *host, const void *device, size_t bytes);
enum zd_status gpu_write(void *device, const void *host, size_t bytes);
enum zd_status gpu_lend_staging(void *pinned);
enum zd_status gpu_staging_init(struct gpu_staging *staging);
void gpu_staging_fini(struct gpu_staging *staging);

#endif
