/* clock.h - seconds on the monotonic clock, and of the calendar. */
#pragma once

#include <math.h>
#include <time.h>

static inline double clock_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Since 1970, to the millisecond. */
static inline double clock_wall_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + floor((double)now.tv_nsec * 1e-6) * 1e-3;
}
