/* state_case.h - a run's state filled by hand, for the tests of sinks, and the
 * warnings that they gave. */
#pragma once

#include "daemon/state/run_state.h"
#include "tests/support/scratch.h"

enum { STATE_CASE_RANKS = 2 };

struct state_case {
    struct scratch scratch; /* job.output_dir */
    struct train_job job;
    struct run_state state;
    struct train_rank_report ranks[STATE_CASE_RANKS];
};

/* A job "tiny" of two ranks at step 120 of 400, with everything known: every
 * number is another one, so that none is taken for another. */
void state_case_init(struct state_case *c);
void state_case_fini(struct state_case *c);
/* One more step, with this loss. */
void state_case_step(struct state_case *c, double loss);
void state_case_sample(
        struct state_case *c, const char *prompt, const char *text);

/* Lines of the log of this process that have `word`; the log is
 * scratch/log. */
int state_case_log_count(struct state_case *c, const char *word);

/* The value of the only line of `text` (Prometheus') with this name and all of
 * the labels, as in "rank=1,where=device"; NaN: none, or several. */
double state_case_metric(
        const char *text, const char *name, const char *labels);
