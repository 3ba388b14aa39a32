/* commander.h - a train_control that gives commands at known steps, and keeps
 * what became of them. Rank 0's thread alone uses it while the run goes on. */
#pragma once

#include "train/train.h"

enum { COMMANDER_MAX = 64, COMMANDER_STATES = 512 };

struct commander {
    struct commander_entry {
        int64_t step; /* the boundary: steps made so far */
        struct train_command command;
        int64_t done_step; /* -1: not told yet */
        int done_count;
        struct zd_error error; /* ZD_OK: done */
        json_t *result;
    } entries[COMMANDER_MAX];
    int count, given;
    enum train_run_state states[COMMANDER_STATES];
    int64_t state_steps[COMMANDER_STATES];
    int state_count;
    struct train_end end;
    struct train_control control;
    struct train_observer observer;
};

void commander_init(struct commander *commander);
/* The same with commands: "3 learning_rate 0.004, 6 stop save", the step and a
 * setting or a command, with its value. */
void commander_ask(struct commander *commander, const char *commands);
void commander_fini(struct commander *commander);
/* The next command, at `step` or, when that is past, as soon as possible. The
 * entry may be filled further. */
struct train_command *commander_add(
        struct commander *commander, int64_t step,
        enum train_command_kind kind);
/* All were done, without an error, each once. */
bool commander_all_done(const struct commander *commander);
bool commander_saw(
        const struct commander *commander, enum train_run_state state);
