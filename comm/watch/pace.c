#include "comm/watch/pace.h"

#include <stdlib.h>
#include <string.h>

static const double LEAST = 10, TIMES = 5, GOOD = 3, START_TIMES = 10;
enum { START_STEPS = 2 };

void pace_add(struct pace *pace, double seconds)
{
    pace->seconds[pace->steps++ % PACE_STEPS] = seconds;
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* The longest step of at most GOOD times the median; 0: none. */
static double longest_good(const struct pace *pace)
{
    double sorted[PACE_STEPS];
    int count = pace->steps < PACE_STEPS ? (int)pace->steps : PACE_STEPS;
    if (count == 0)
        return 0;
    memcpy(sorted, pace->seconds, sizeof sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, compare);
    double most = GOOD * sorted[(count - 1) / 2];
    while (count > 1 && sorted[count - 1] > most)
        count--;
    return sorted[count - 1];
}

double pace_limit(const struct pace *pace)
{
    double limit = TIMES * longest_good(pace);
    if (limit < LEAST)
        limit = LEAST;
    if (pace->steps >= START_STEPS)
        return limit;
    return START_TIMES * (limit > pace->predicted ? limit : pace->predicted);
}
