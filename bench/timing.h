/* timing.h - the best of several runs, in seconds: what the machine can do when
 * nobody else is on it. */
#pragma once

#include "base/clock.h"

/* Runs `before` and then `call` `repeats` times, and stores the shortest time
 * that `call` took in `best`. */
#define TIME_BEST_AFTER(best, repeats, before, call)                           \
    do {                                                                       \
        best = 1e30;                                                           \
        for (int run_ = 0; run_ < (repeats); run_++) {                         \
            before;                                                            \
            double start_ = clock_seconds();                                   \
            call;                                                              \
            double took_ = clock_seconds() - start_;                           \
            best = took_ < best ? took_ : best;                                \
        }                                                                      \
    } while (0)
#define TIME_BEST(best, repeats, call)                                         \
    TIME_BEST_AFTER(best, repeats, (void)0, call)
