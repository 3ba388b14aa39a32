/* offload_case.h - a whole job of five steps with and without offload. For
 * programs that print TAP. */
#ifndef ZD_TESTS_TRAIN_OFFLOAD_CASE_H
#define ZD_TESTS_TRAIN_OFFLOAD_CASE_H

#include <limits.h>
#include <stdbool.h>

#define LLAMA "tests/fixtures/llama_odd/job.toml"
#define GPT2  "tests/fixtures/gpt2/job.toml"

enum { STEPS = 5, SETS = 24 };

/* What a job is run with; NULL ends a list. */
struct sets {
    const char *list[SETS];
    int count;
    char text[SETS][PATH_MAX];
};
void set(struct sets *sets, const char *text);
void set_all(struct sets *sets, const char *const *texts);
/* Evaluation and a checkpoint lie between the steps: both read parameters and
 * states while updates may still be under way. */
void set_common(struct sets *sets, const char *dtype);

/* The run of these settings with more of them; its folder. */
const char *run(
        const char *job, const struct sets *common, const char *const *more,
        int world, bool *ran_out);

/* The same losses, norms, checkpoint and model, to the bit. */
bool same_run(const char *a, const char *b, int world);
/* Bytes on the wire and in memory. */
bool as_planned(const char *dir);
/* Tell whether `layout` with `offload` is the same run as without. */
void compare(
        const char *job, const struct sets *common, const char *const *layout,
        const char *const *offload, int world, const char *what);

#endif
