/* rank_report.h - the reports of all ranks, gathered for train_observer.ranks.
 * Internal to train.
 *
 * Every rank counts for itself (rank_meter). When rank 0's clock says so, a bit
 * in the exchange that begins a step (SIGNALS_RANKS) makes all ranks gather
 * their reports after it, as a control message, which is not part of a step's
 * wire bytes. */
#pragma once

#include "train/report/observer.h"

struct trainer;

enum { METER_STEPS = 16 };
struct rank_meter {
    double phase_seconds[PHASES]; /* since this process began */
    double last_seconds[METER_STEPS];
    int64_t steps; /* computed by this process */
    double asked;  /* clock of the last gathering; rank 0 */
};

void rank_meter_step(
        struct rank_meter *meter, const struct train_step_report *report);
/* Records a phase between steps that began at `began` and has just ended. */
void rank_meter_add(
        struct trainer *trainer, enum train_phase phase, double began);
/* Mean of the last METER_STEPS steps; 0: none yet. */
double rank_meter_step_seconds(const struct rank_meter *meter);

/* Rank 0: the observer wants reports, and two seconds have passed. */
bool rank_report_is_due(const struct trainer *trainer);
/* Collective; reports to rank 0's observer. */
enum zd_status rank_report_gather(struct trainer *trainer);
/* The same at any time, if the observer wants reports: before the first step
 * and after the last. Collective. */
enum zd_status rank_report_ask(struct trainer *trainer);

/* Stragglers: ranks for which the others wait in every step.
 *
 *   busy     seconds of a rank's steps in which it did not wait for others
 *   slowness its busy seconds of the last 50 steps, over the median of all
 *            ranks (of an even number the lower of the two in the middle)
 *
 * A rank above 1.5, and at least a millisecond per step slower, is named once
 * in the log and as the event `straggler`; its current value is in its report.
 */
enum { STRAGGLER_STEPS = 50 };

struct stragglers {
    bool has_begun;
    int steps; /* of this window */
    double busy, waited_before;
    double slowness; /* this rank's; 0: unknown */
    bool *is_named;  /* (size) rank 0 */
};

/* Call when a step begins. */
void stragglers_begin(struct trainer *trainer);
/* Call when it is done. Collective every STRAGGLER_STEPS steps. */
enum zd_status stragglers_step(struct trainer *trainer, double seconds);
void stragglers_fini(struct stragglers *stragglers);

/* Median as above. sorted: (size) scratch. */
double stragglers_median(const double *busy, int size, double *sorted);
bool stragglers_is_one(double busy, double median);
