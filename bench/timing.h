/* timing.h - the best of several runs, in seconds: what the machine can do when
 * nobody else is on it. */
#pragma once

#include "base/clock.h"

/* Runs `call` `repeats` times and leaves the shortest time in `best`. */
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
