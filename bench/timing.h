/* timing.h - the shortest of several runs, in seconds: least affected by other
 * load. */
#pragma once

#include "base/clock.h"

/* Runs `call` `repeats` times and stores the shortest time in `best`. */
#define TIME_BEST(best, repeats, call)                                         \
    do {                                                                       \
        best = 1e30;                                                           \
        for (int run_ = 0; run_ < (repeats); run_++) {                         \
            double start_ = clock_seconds();                                   \
            call;                                                              \
            double took_ = clock_seconds() - start_;                           \
            best = took_ < best ? took_ : best;                                \
        }                                                                      \
    } while (0)
