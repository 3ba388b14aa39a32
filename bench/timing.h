/* timing.h - the best of several runs, in seconds: what the machine can do when
 * nobody else is on it. */
#ifndef ZD_BENCH_TIMING_H
#define ZD_BENCH_TIMING_H

#include <time.h>

static inline double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Runs `call` `repeats` times and leaves the shortest time in `best`. */
#define TIME_BEST(best, repeats, call)                                         \
    do {                                                                       \
        best = 1e30;                                                           \
        for (int run_ = 0; run_ < (repeats); run_++) {                         \
            double start_ = seconds_now();                                     \
            call;                                                              \
            double took_ = seconds_now() - start_;                             \
            best = took_ < best ? took_ : best;                                \
        }                                                                      \
    } while (0)

#endif
