/* cases.h - every operation run twice on the same random arrays, at odd shapes:
 * by runner `a` and by runner `b`. Each returns the worst difference found.
 *
 * test_fast.c compares a fast table with the plain one; test_threads.c one fast
 * table with itself at another number of threads; test_cuda.c a GPU's with the
 * plain one. */
#ifndef ZD_TESTS_KERNELS_CASES_H
#define ZD_TESTS_KERNELS_CASES_H

#include "pair.h"

typedef double case_fn(struct runner a, struct runner b);

struct op_case {
    const char *name;
    case_fn *run;
    double tolerance[3]; /* by enum dtype: relative to 1 + |value| */
};

extern const struct op_case op_cases[];
extern const int op_case_count;

/* Shapes and operations that say something of a GPU only. */
extern const struct op_case cuda_cases[];
extern const int cuda_case_count;

/* cases_norm.c, for these lists */
double layernorm_case(struct runner a, struct runner b);
double rmsnorm_case(struct runner a, struct runner b);
double head_norm_case(struct runner a, struct runner b);
double norm_shapes_case(struct runner a, struct runner b);
double add_norm_case(struct runner a, struct runner b);
/* cases_head_norm_rope.c */
double head_norm_rope_case(struct runner a, struct runner b);
/* cases_magnitudes.c */
double row_gains_case(struct runner a, struct runner b);
double scale_columns_case(struct runner a, struct runner b);
double column_dots_case(struct runner a, struct runner b);
/* cases_codes.c */
double dequantize_case(struct runner a, struct runner b);
double codes_rows_case(struct runner a, struct runner b);
double matmul_codes_case(
        struct runner a, struct runner b); /* 0: one has none */
/* cases_attention.c */
double attention_case(struct runner a, struct runner b);
double decode_case(struct runner a, struct runner b);

#endif
