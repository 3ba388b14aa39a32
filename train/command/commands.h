/* commands.h - executes the commands of rank 0's control on all ranks at one
 * step boundary.
 *
 *   rank 0       next() -> the word of the exchange that begins a step
 *   all ranks    the command is broadcast, executed before the step computes,
 * and answered with done(); then the exchange is repeated, so that several
 * commands may follow each other
 *
 * The batches of the waiting step stay loaded. A failed command is answered
 * with its error, and the run continues unchanged. Internal to train. */
#pragma once

#include "train/trainer/trainer.h"

/* Rank 0: is there a command? If so it is taken, and executed by
 * trainer_command. */
bool commands_wait(struct trainer *trainer);
/* Collective: executes the command that waits at rank 0. A failure ends the
 * run. */
enum zd_status trainer_command(struct trainer *trainer);
/* At the end of a run: refuses a command that was taken but not executed. */
void commands_refuse(struct trainer *trainer);

/* Collective: tells where the trace of a profile is, if one is made. */
enum zd_status profile_end(struct trainer *trainer);
