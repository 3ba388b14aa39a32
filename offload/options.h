/* options.h - [offload] and [aio] of the job file. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum offload_tier { OFFLOAD_NONE, OFFLOAD_CPU, OFFLOAD_NVME };
/* When the update of a chunk may begin. WAIT: when the norm is known. UNDO:
 * when its gradient has arrived, as if nothing were clipped; if the step is
 * then clipped, the old values are restored from a copy and the update is
 * repeated. */
enum offload_clipping { OFFLOAD_CLIP_WAIT, OFFLOAD_CLIP_UNDO };
/* undo_memory: as much as the host has left. */
#define OFFLOAD_UNDO_AUTO UINT64_MAX
/* Where the gradients of several micro-batches are summed. */
enum offload_accumulate {
    OFFLOAD_ACCUMULATE_AUTO, /* on the device if it fits, else on the host */
    OFFLOAD_ACCUMULATE_DEVICE,
    OFFLOAD_ACCUMULATE_HOST
};

struct aio_options {      /* [aio], DeepSpeed's names */
    uint64_t block_bytes; /* block_size: of one transfer */
    int queue_depth;      /* transfers under way, one per thread */
};

struct offload_options {           /* [offload] */
    enum offload_tier optimizer;   /* master weights and states */
    enum offload_tier params;      /* 16-bit parameters */
    enum offload_tier activations; /* NONE | CPU */
    int threads;                   /* workers per rank; 0 = auto */
    uint64_t chunk_bytes;          /* master weights of one chunk; 0 = auto */
    const char *nvme_path;         /* a folder, or NULL */
    enum offload_clipping clipping;
    uint64_t undo_memory; /* bytes for old values of whole segments; the other
                             segments wait for the norm */
    double device_update; /* share of the update that the device makes, of
                             chunks copied to it; < 0: auto (the planner
                             decides; 0 without it) */
    enum offload_accumulate accumulate;
    struct aio_options aio;
};

struct offload_options offload_options_default(void);
