/* crash_guard.h - stops restarting a job that fails the same way each time.
 * Internal to train.
 *
 * OUTPUT_DIR/.zerod.starts has a line of JSON for each ending that counts:
 *
 *     {"start": .., "from": .., "job": .., "step": 7, "how": "signal 11", ..}
 *
 * An ending counts if another start would probably end the same way: fault
 * signals (SEGV, BUS, FPE, ILL, ABRT), and errors other than 69, 74 and 75.
 * Errors during setup cost nothing and are fixed by people, so only 70 and 79
 * count. KILL and TERM leave no line.
 *
 * After three consecutive equal endings, from the same checkpoint, with the
 * same job and after the same step, the fourth start is refused. A run that
 * gets past that step clears the file. */
#pragma once

#include "comm/comm.h"
#include "train/job/options.h"

struct crash_guard;

/* Collective. On rank 0 `from` is the digest of the checkpoint's manifest ("":
 * none) and `name` its name for messages. ZD_ERR_NUMERICS (79): the run is
 * refused. *guard_out is NULL if run.resume names a checkpoint or is "never":
 * then a person is watching. */
enum zd_status crash_guard_begin(
        struct comm *comm, const struct train_job *job, const char *from,
        const char *name, struct crash_guard **guard_out);
/* All of these take NULL. */
void crash_guard_running(struct crash_guard *guard); /* setup is over */
void crash_guard_step(struct crash_guard *guard, int64_t step);
/* Records how this start ends, and frees the guard. */
void crash_guard_end(struct crash_guard *guard, enum zd_status status);
