/* commands.h - what rank 0's control asks for, done by all ranks at one step
 * boundary.
 *
 *   rank 0       next() -> the word of the exchange that begins a step
 *   all ranks    the command is broadcast, done before the step computes, told
 *                with done(); then the exchange is made again, so that several
 *                commands may follow each other
 *
 * The batches of the step that waits stay loaded. A command that fails is told
 * as failed and the run goes on as it would have. Internal to train. */
#pragma once

#include "train/trainer/trainer.h"

/* Rank 0: is there a command? It is taken and kept until trainer_command. */
bool commands_wait(struct trainer *trainer);
/* Collective; the command that waits at rank 0. A status is one that ends the
 * run. */
enum zd_status trainer_command(struct trainer *trainer);
/* The run ends: what was taken and not done is told so. */
void commands_refuse(struct trainer *trainer);

/* Collective: tells where the trace of a profile is, if one is made. */
enum zd_status profile_end(struct trainer *trainer);
