/* options.h - [zero] of the job file. Counts are in elements. */
#pragma once

#include "base/status.h"

#include <stdint.h>

struct zero_options {
    int stage;                    /* 0 | 1 | 2 | 3 */
    bool overlap_comm;            /* start collectives early, wait late */
    int64_t prefetch_bucket_size; /* stage 3: parameters gathered ahead of their
                                  use, at most; 0 = auto: the next unit */
};

struct zero_options zero_options_default(void);
