/* options.h - [zero] of the job file. Counts are in elements. */
#ifndef ZD_ZERO_OPTIONS_H
#define ZD_ZERO_OPTIONS_H

#include "base/status.h"

#include <stdint.h>

struct zero_options {
    int stage;                     /* 0 | 1 | 2 | 3 */
    bool overlap_comm;             /* start collectives early, wait late */
    int64_t reduce_bucket_size;    /* gradients that wait for one another before
                                      they are reduced, at stages 2 and 3 in
                                      fp32 work buffers; 0 = auto: each unit
                                      goes when it is complete */
    int64_t allgather_bucket_size; /* parameters under way in the gather after
                                   the update (stages 1, 2), one segment at
                                   least; 0 = auto: what comm allows */
    int64_t prefetch_bucket_size; /* stage 3: parameters gathered ahead of their
                                  use, at most; 0 = auto: the next unit */
    int64_t param_persistence_threshold; /* stage 3: tensors with fewer elements
                                   stay gathered; 0 = none. Projections
                                   that one product may read go together */
    int64_t max_live_parameters; /* stage 3: gathered at a time, at most, not
                                   counting persistent tensors; 0 = auto: what
                                   compute, prefetch and reuse need */
    int64_t max_reuse_distance;  /* stage 3: there are slots to keep a unit that
                                    is used again within this many elements;
                                    0 = auto: none but those of prefetch */
    int64_t sub_group_size;      /* elements of one optimizer tile, in whole
                                    pieces of 256; 0 = all */
    bool round_robin_gradients;  /* each rank sends first to its right neighbor
                                    instead of all to rank 0 */
};

struct zero_options zero_options_default(void);

#endif
