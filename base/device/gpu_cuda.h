/* gpu_cuda.h - a rank's GPU; for the files of base that drive it. */
#pragma once

#include "base/device/device_cuda.h"
#include "base/device/device_table.h"

#include <pthread.h>

/* Staging of device_write: several slots, so that the host fills one while the
 * GPU reads another. */
enum {
    STAGING_SLOTS = 4,
    STAGING_BYTES = DEVICE_STAGING_BYTES / STAGING_SLOTS
};
struct gpu_staging {
    pthread_mutex_t lock;
    char *slots;  /* STAGING_SLOTS of STAGING_BYTES; NULL: none yet */
    bool is_lent; /* the slots belong to the caller of device_lend_staging */
    cudaEvent_t sent[STAGING_SLOTS];
    int next;
};

struct gpu {
    struct device head;
    struct stream *compute;
    struct gpu_staging staging;
};

/* The GPU of the calling thread, which has one. */
struct gpu *gpu_current(void);
/* Makes it CUDA's current GPU in the calling thread, any thread. */
void gpu_enter(const struct gpu *gpu);

/* Facts that need no context. */
enum zd_status gpu_read_facts(int index, struct device_facts *facts_out);
/* Records why a GPU could not be opened, with a fix. */
enum zd_status gpu_refused(
        const struct device_facts *facts, cudaError_t error, const char *call);

extern const struct stream_table stream_table_cuda;
extern const struct device_table device_table_cuda;
