/* gpu_cuda.h - the GPU of a rank, as the files of base see it that drive it. */
#pragma once

#include "base/device/device_cuda.h"
#include "base/device/device_table.h"

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

struct gpu {
    struct device head;
    struct stream *compute;
    struct gpu_staging staging;
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

extern const struct stream_table stream_table_cuda;
extern const struct device_table device_table_cuda;
