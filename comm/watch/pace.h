/* pace.h - how long a collective may take, learned from the steps.
 *
 *   limit = max(10 s, 5 x the longest good step); until two steps are done, ten
 * times that, and at least ten predicted steps; a good step takes at most 3 x
 * the median
 *
 * The last PACE_STEPS steps count. One thread at a time. */
#pragma once

#include <stdint.h>

enum { PACE_STEPS = 64 };

struct pace {
    double predicted; /* seconds of a step; 0: not known */
    double seconds[PACE_STEPS];
    int64_t steps;
};

void pace_add(struct pace *pace, double seconds);
double pace_limit(const struct pace *pace);
