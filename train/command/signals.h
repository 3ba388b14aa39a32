/* signals.h - signals to a run. Handlers only set flags; the exchange at the
 * beginning of a step sums the flags of all ranks, so that every rank acts at
 * the same step boundary. Internal to train. */
#pragma once

#include "train/job/options.h"

/* Bit-fields of one int64 that may be summed over up to 2^14 ranks. */
#define SIGNALS_SAVE      ((int64_t)1)       /* save and continue */
#define SIGNALS_SAVE_EXIT ((int64_t)1 << 15) /* save and end with 75 */
#define SIGNALS_EXIT      ((int64_t)1 << 30) /* end with 75 */
/* Rank 0 alone raises these: single bits of the same sum. */
#define SIGNALS_TIME_SAVE ((int64_t)1 << 45) /* save_every has passed */
#define SIGNALS_RANKS     ((int64_t)1 << 46) /* gather the ranks' reports */
#define SIGNALS_DEADLINE  ((int64_t)1 << 47) /* why SIGNALS_SAVE_EXIT is set */

/* A rank still writes a checkpoint in the background. */
#define SIGNALS_SAVING ((int64_t)1 << 48)

/* Does a summed word hold the field that begins at `bit`? */
static inline bool signals_has(int64_t sum, int64_t bit)
{
    if (bit >= SIGNALS_TIME_SAVE && bit < SIGNALS_SAVING)
        return (sum & bit) != 0;
    return (sum / bit) % ((int64_t)1 << 15) != 0;
}

/* Install handlers for USR1, USR2, TERM, INT as the job says. They run in their
 * own thread; the calling thread, and threads that it starts later, have these
 * signals blocked. Earlier signals are not lost. */
void signals_install(const struct run_options *options);
/* Flags raised since the last call, once each. A TERM or INT that leaves too
 * little time for a save of `save_seconds` (mpirun kills its ranks a second
 * after it tells them) asks for an exit without one. */
int64_t signals_take(double save_seconds);
/* A save was requested and cannot finish in time. */
bool signals_cut_short(void);
