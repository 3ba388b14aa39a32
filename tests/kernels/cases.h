/* cases.h - every operation run twice on the same random arrays, at odd shapes:
 * by table `a` and by table `b`. Each returns the worst difference found.
 *
 * test_fast.c compares a fast table with the plain one; test_threads.c one fast
 * table with itself at another number of threads. */
#ifndef ZD_TESTS_KERNELS_CASES_H
#define ZD_TESTS_KERNELS_CASES_H

#include "kernels/kernels.h"

/* What runs the operations, and what sets the scene for it (threads). */
struct runner {
    const struct kernels *ops;
    int threads; /* 0: as they are */
};

typedef double case_fn(struct runner a, struct runner b);

struct op_case {
    const char *name;
    case_fn *run;
    double tolerance[3]; /* by enum dtype: relative to 1 + |value| */
};

extern const struct op_case op_cases[];
extern const int op_case_count;

#endif
