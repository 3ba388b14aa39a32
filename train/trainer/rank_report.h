/* rank_report.h - the reports of all ranks, gathered for train_observer.ranks.
 * Internal to train.
 *
 * Every rank counts for itself (rank_meter). When rank 0's clock says so, a bit
 * of the exchange that begins a step (SIGNALS_RANKS) has all ranks gather their
 * reports behind it; that is a control message, no part of a step's wire bytes.
 */
#pragma once

#include "train/report/observer.h"

struct trainer;

enum { METER_STEPS = 16 };
struct rank_meter {
    double phase_seconds[PHASES]; /* since this process began */
    double last_seconds[METER_STEPS];
    int64_t steps; /* made here */
    double asked;  /* clock when the ranks were asked last; rank 0 */
};

void rank_meter_step(
        struct rank_meter *meter, const struct train_step_report *report);
/* A phase between steps has just ended, which began at that clock. */
void rank_meter_add(
        struct trainer *trainer, enum train_phase phase, double began);
/* Mean of the last METER_STEPS steps; 0: none yet. */
double rank_meter_step_seconds(const struct rank_meter *meter);

/* Rank 0: the observer wants to know, and two seconds have passed. */
bool rank_report_is_due(const struct trainer *trainer);
/* Collective; tells rank 0's observer. */
enum zd_status rank_report_gather(struct trainer *trainer);
/* The same whatever the clock says, if the observer wants to know: before the
 * first step and after the last. Collective. */
enum zd_status rank_report_ask(struct trainer *trainer);

/* Ranks for which the others wait in every step.
 *
 *   busy     seconds of a rank's steps in which it did not wait for others
 *   slowness its busy seconds of the last 50 steps, over the median of all
 *            ranks (of an even number the lower of the two in the middle)
 *
 * One above 1.5, by a millisecond a step at least, is named once in the log and
 * as the event `straggler`; what it is now is in the rank's report. */
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
