/* stragglers.h - ranks for which the others wait in every step. Internal to
 * train.
 *
 *   busy     seconds of a rank's steps in which it did not wait for others
 *   slowness its busy seconds of the last 50 steps, over the median of all
 *            ranks (of an even number the lower of the two in the middle)
 *
 * One above 1.5, by a millisecond a step at least, is named once in the log and
 * as the event `straggler`; what it is now is in the rank's report. */
#pragma once

#include "base/status.h"

#include <stdbool.h>

struct trainer;

enum { STRAGGLER_STEPS = 50 };

struct stragglers {
    bool has_begun;
    int steps; /* of this window */
    double busy, waited_before;
    double slowness; /* this rank's; 0: not known yet */
    bool *is_named;  /* (size) rank 0 */
};

/* A step begins. */
void stragglers_begin(struct trainer *trainer);
/* It was made. Collective every STRAGGLER_STEPS steps. */
enum zd_status stragglers_step(struct trainer *trainer, double seconds);
void stragglers_fini(struct stragglers *stragglers);

/* Median as above. sorted: (size) scratch. */
double stragglers_median(const double *busy, int size, double *sorted);
bool stragglers_is_one(double busy, double median);
