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

/* What a command comes to; filled alike on all ranks but for `result`. */
struct command_outcome {
    enum zd_status status; /* survivable: `error` has the record */
    struct zd_error error;
    json_t *result;  /* rank 0; owned, may be NULL */
    bool is_later;   /* accepted; whoever did it tells with command_tell */
    bool was_before; /* told later: of `step`, not of the one at hand */
    int64_t step;
};

/* Rank 0: is there a command? It is taken and kept until trainer_command. */
bool commands_wait(struct trainer *trainer);
/* Collective; the command that waits at rank 0. A status is one that ends the
 * run. */
enum zd_status trainer_command(struct trainer *trainer);
/* The run ends: what was taken and not done is told so. */
void commands_refuse(struct trainer *trainer);

/* Rank 0's control and events hear what became of it. Other ranks call it too.
 */
void command_tell(
        struct trainer *trainer, const struct train_command *command,
        const struct command_outcome *outcome);

/* set.c, collective: all that the command gives, or nothing. */
enum zd_status settings_set(
        struct trainer *trainer, const struct train_command *command,
        struct command_outcome *outcome);

/* profile.c: the steps from here on are traced; after the last of them, or at
 * the end of the run, it is told where the trace is. Both collective. */
enum zd_status profile_begin(
        struct trainer *trainer, const struct train_command *command,
        struct command_outcome *outcome);
enum zd_status profile_end(struct trainer *trainer);

/* checkpoint.c, collective: a save that goes on in the background, where that
 * can be; it is told when it is committed, or failed. */
enum zd_status checkpoint_begin(
        struct trainer *trainer, const struct train_command *command,
        struct command_outcome *outcome);
/* Tells what became of one that has ended. */
enum zd_status checkpoint_end(struct trainer *trainer);

/* Collective: a failure that can be survived, which one rank or more know, is
 * made known to all: its record is in `error` everywhere and cleared where it
 * was. ZD_ERR_PEER is passed on. */
enum zd_status command_settle(
        struct trainer *trainer, enum zd_status status,
        struct command_outcome *outcome);
/* A failure that all ranks know alike (they judged the same facts): call it
 * after ZD_FAIL on every rank. ZD_OK: the run goes on. */
enum zd_status command_fail(struct command_outcome *outcome);
