/* run.h - an operation by both runners `a` and `b` of the function around it:
 * RUN(most, add(NULL, out.of[r], x.of[r], y.of[r], count)). */
#ifndef ZD_TESTS_KERNELS_RUN_H
#define ZD_TESTS_KERNELS_RUN_H

#include <math.h>

#define RUN(result, call)                                                      \
    for (int turn_ = 0; turn_ < 2; turn_++) {                                  \
        const struct kernels *ops = turn_ ? b.ops : a.ops;                     \
        int r = turn_;                                                         \
        runner_enter(turn_ ? b : a);                                           \
        if (ops->call != ZD_OK)                                                \
            result = INFINITY;                                                 \
    }

/* The same of a function of fused.h, whose first argument is `ops`. */
#define RUN_FUSED(result, call)                                                \
    for (int turn_ = 0; turn_ < 2; turn_++) {                                  \
        const struct kernels *ops = turn_ ? b.ops : a.ops;                     \
        int r = turn_;                                                         \
        runner_enter(turn_ ? b : a);                                           \
        if (call != ZD_OK)                                                     \
            result = INFINITY;                                                 \
    }

#endif
