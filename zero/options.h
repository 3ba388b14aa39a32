/* options.h - [zero] of the job file. Counts are in elements. */
#ifndef ZD_ZERO_OPTIONS_H
#define ZD_ZERO_OPTIONS_H

#include "base/status.h"

#include <stdint.h>

struct zero_options {
    int stage;                    /* 0 | 1 | 2 | 3 */
    bool overlap_comm;            /* start collectives early, wait late */
    int64_t prefetch_bucket_size; /* stage 3: parameters gathered ahead of their
                                  use, at most; 0 = auto: the next unit */
    int64_t param_persistence_threshold; /* stage 3: tensors with fewer elements
                                   stay gathered; 0 = none. Projections
                                   that one product may read go together */
    int64_t max_live_parameters; /* stage 3: gathered at a time, at most, not
                                   counting persistent tensors; 0 = auto: what
                                   compute and prefetch need */
    bool round_robin_gradients;  /* each rank sends first to its right neighbor
                                    instead of all to rank 0 */
};

struct zero_options zero_options_default(void);

#endif
