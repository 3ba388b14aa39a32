/* suite.h - what every back end of comm must do, as a list of cases that each
 * rank runs with its own comm. */
#pragma once

#include "comm/comm.h"

typedef bool suite_fn(struct comm *comm); /* did it hold on this rank? */

struct suite_case {
    const char *name;
    suite_fn *run;
};

extern const struct suite_case suite_cases[];
extern const int suite_case_count;
/* What the groups of this thread's rank sent so far. */
extern _Thread_local struct comm_counters suite_group_counters;

/* Say on stderr which check of which rank did not hold. */
bool suite_check(bool holds, const struct comm *comm, const char *what);
#define CHECK(comm, condition) suite_check((condition), (comm), #condition)

/* The cases with `part` in their names, and `more` (or NULL): TAP from rank 0
 * of what holds on all. The exit code. */
int suite_report(
        struct comm *comm, const char *part, const struct suite_case *more);
