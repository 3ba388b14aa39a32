/* The fast paths of every instruction set this machine has, against the plain
 * definitions, and against themselves at another number of threads. */
#include "cases.h"

#include "kernels/backend.h"

#include <criterion/criterion.h>

static const char *const isas[] = {"base", "avx2", "avx512"};
static const enum dtype dtypes[] = {DTYPE_FP32, DTYPE_BF16};

static void agree_with_plain(enum dtype dtype)
{
    struct runner plain = {.threads = 1}, fast = {.threads = 2};
    cr_assert_eq(kernels_plain(dtype, &plain.ops), ZD_OK);
    for (int i = 0; i < 3; i++) {
        const struct cpu_backend *backend = kernels_backend(isas[i], dtype);
        if (!backend)
            continue;
        fast.ops = &backend->ops;
        for (int c = 0; c < op_case_count; c++) {
            double error = op_cases[c].run(fast, plain);
            cr_expect(
                    error <= op_cases[c].tolerance[dtype == DTYPE_BF16],
                    "%s, %s, %s: differs by %g", op_cases[c].name, isas[i],
                    dtype_name(dtype), error);
        }
    }
}

Test(kernels_fast, fp32_agrees_with_the_plain_definitions)
{
    agree_with_plain(DTYPE_FP32);
}

Test(kernels_fast, bf16_agrees_with_the_plain_definitions)
{
    agree_with_plain(DTYPE_BF16);
}

Test(kernels_fast, the_number_of_threads_changes_no_bit)
{
    for (int d = 0; d < 2; d++)
        for (int i = 0; i < 3; i++) {
            const struct cpu_backend *backend =
                    kernels_backend(isas[i], dtypes[d]);
            if (!backend)
                continue;
            struct runner one = {&backend->ops, 1}, three = {&backend->ops, 3};
            for (int c = 0; c < op_case_count; c++)
                cr_expect_eq(
                        op_cases[c].run(one, three), 0.0,
                        "%s, %s, %s: bits differ", op_cases[c].name, isas[i],
                        dtype_name(dtypes[d]));
        }
}

Test(kernels_fast, the_chosen_table_agrees_too)
{
    for (int d = 0; d < 2; d++) {
        struct runner plain = {.threads = 2}, chosen = {.threads = 2};
        kernels_set_threads(2);
        cr_assert_eq(kernels_plain(dtypes[d], &plain.ops), ZD_OK);
        cr_assert_eq(kernels_cpu(dtypes[d], &chosen.ops), ZD_OK);
        cr_assert_eq(chosen.ops->dtype, dtypes[d]);
        cr_expect(strstr(chosen.ops->name, "2 threads") != NULL);
        double error = op_cases[0].run(chosen, plain);
        cr_expect(error <= op_cases[0].tolerance[d], "differs by %g", error);
    }
    const struct kernels *none = NULL;
    cr_expect_eq(kernels_cpu(DTYPE_FP16, &none), ZD_ERR_UNFIT);
    cr_expect_eq(none, NULL);
}
