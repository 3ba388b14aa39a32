/* commands_case.h - runs of twelve steps that are asked things, and what they
 * are compared by. For programs that print TAP. */
#pragma once

#include "tests/support/commander.h"

#define JOB "tests/fixtures/llama_odd/job.toml"
enum { STEPS = 12 };

struct curve {
    double *loss, *rate;
    int count;
};
struct curve curve_of(const char *dir);
void curve_free(struct curve *curve);
/* To the bit, and of all steps. */
bool same_curve(const char *a, const char *b);

/* Is there a checkpoint of this step whose bytes are those of its manifest? */
bool verifies(const char *dir, int step);

/* Run with more settings (may be NULL); a folder that exists is resumed.
 * `commander` may be NULL: nothing is asked. */
bool run(
        const char *dir, int world, const char *sets,
        struct commander *commander);

/* The same with commands of commander_ask, all of which are done. */
bool run_asked(
        const char *dir, int world, const char *sets, const char *commands);

/* Ask at `step` for another value of a setting. */
void add_set(
        struct commander *commander, int64_t step, enum train_setting_id id,
        double value);
