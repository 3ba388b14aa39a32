/* run.h - runs an operation by both runners: RUN(add(NULL, out.of[r], x.of[r],
 * y.of[r], count)). A failure is an infinite difference. */
#pragma once

#include "pair.h"

#include <math.h>

/* For a function that takes `ops`. */
#define RUN_OF(call)                                                           \
    for (int r = 0; r < 2; r++) {                                              \
        const struct kernels *ops = pair_enter(r);                             \
        if (call != ZD_OK)                                                     \
            pair_differs(INFINITY);                                            \
    }
#define RUN(call) RUN_OF(ops->call)
