/* cases.h - runs every operation on the same random arrays, at odd shapes, by
 * two runners. case_run returns the largest difference.
 *
 * test_fast.c compares a fast table with the plain one; test_threads.c one fast
 * table with itself at another number of threads; test_cuda.c a GPU's with the
 * plain one. */
#pragma once

#include "pair.h"

typedef void case_fn(void);

double case_run(case_fn *run, struct runner a, struct runner b);

struct op_case {
    const char *name;
    case_fn *run;
    double tolerance[3]; /* by enum dtype: relative to 1 + |value| */
};

extern const struct op_case op_cases[];
extern const int op_case_count;

/* Shapes and operations that matter only on a GPU. */
extern const struct op_case cuda_cases[];
extern const int cuda_case_count;

/* Members of these lists, in cases_*.c. */
case_fn norm_case, head_norm_case, norm_shapes_case, add_norm_case,
        head_norm_rope_case, row_gains_case, scale_columns_case,
        column_dots_case, dequantize_case, fp8_cast_case, fp8_matmul_case,
        fp8_gradient_case, fp8_codes_case, attention_case, window_case,
        attention_share_case, decode_case;
