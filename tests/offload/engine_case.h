/* engine_case.h - the offload engine on a few odd tensors, next to the same
 * elements in plain memory and optim_update_threads. For the unit test and for
 * the program under a thread sanitizer. */
#ifndef ZD_TESTS_OFFLOAD_ENGINE_CASE_H
#define ZD_TESTS_OFFLOAD_ENGINE_CASE_H

#include "offload/offload.h"

struct engine_variant {
    const char *label;
    enum optim_name name;
    enum optim_state_type state_type;
    double momentum;
    enum optim_master master;
};

extern const struct engine_variant engine_variants[];
extern const int engine_variant_count;

/* Where master weights and states are, and where parameters. */
enum engine_tier {
    HOST_DEVICE,
    HOST_HOST,
    NVME_DEVICE,
    NVME_HOST,
    NVME_NVME,
    ENGINE_TIERS
};
enum engine_streams { STREAMS_NULL, STREAMS_INLINE, STREAMS_THREAD };

struct engine_setting {
    const struct engine_variant *variant;
    enum dtype dtype;
    enum engine_tier tier;
    int micros; /* that come down; 0: one, added up before */
    enum offload_clipping clipping;
    int threads;
    uint64_t chunk_bytes;
    enum engine_streams streams;
};

/* "adamw_8bit bf16 .." for messages; the caller's buffer. */
void engine_setting_print(
        const struct engine_setting *setting, char *text, size_t bytes);

/* Five steps: not clipped, clipped, skipped because of an infinity, states
 * written from outside, not clipped. NULL when everything was equal to the
 * bit, else what was not. */
const char *engine_case_run(const struct engine_setting *setting);

#endif
