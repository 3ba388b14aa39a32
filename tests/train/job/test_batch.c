#include "train/job/options.h"

#include <criterion/criterion.h>

struct batch_case {
    int64_t G;
    int B, A, world; /* given; 0 = not */
    int want_B, want_A;
    int64_t want_G;
};

Test(train_batch, any_two_give_the_third)
{
    static const struct batch_case cases[] = {
            {0, 0, 0, 1, 4, 1, 4},   {0, 0, 0, 3, 4, 1, 12},
            {24, 0, 0, 3, 8, 1, 24}, {0, 5, 0, 2, 5, 1, 10},
            {0, 0, 6, 2, 4, 6, 48},  {64, 8, 0, 2, 8, 4, 64},
            {64, 0, 4, 2, 8, 4, 64}, {0, 3, 5, 2, 3, 5, 30},
            {30, 3, 5, 2, 3, 5, 30},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct batch_case *c = &cases[i];
        struct train_options options = {
                .global_batch_size = c->G,
                .per_device_train_batch_size = c->B,
                .gradient_accumulation_steps = c->A};
        int B, A;
        int64_t G;
        cr_assert_eq(
                train_resolve_batch(&options, c->world, 1, &B, &A, &G), ZD_OK,
                "case %zu", i);
        cr_expect(
                B == c->want_B && A == c->want_A && G == c->want_G,
                "case %zu: got %d %d %lld", i, B, A, (long long)G);
    }
}

Test(train_batch, what_does_not_divide_names_the_nearest_that_does)
{
    static const struct {
        int64_t G;
        int B, A, world, sharers;
        const char *says, *of;
    } cases[] = {
            {25, 0, 0, 2, 1, "= 24", "of 2 (2 ranks)"},
            {200, 4, 8, 8, 1, "= 256", "x 8 ranks"},
            {200, 4, 8, 8, 2, "= 256", "x 8 groups of ranks"},
            {30, 4, 0, 2, 1, "= 32",
             "of 8 (per_device_train_batch_size x 2 ranks)"},
            {10, 0, 3, 2, 1, "= 12",
             "of 6 (gradient_accumulation_steps x 2 ranks)"},
            {1, 0, 0, 4, 2, "= 4", "of 4 (8 ranks / 2 of cp_size x tp_size)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct train_options options = {
                .global_batch_size = cases[i].G,
                .per_device_train_batch_size = cases[i].B,
                .gradient_accumulation_steps = cases[i].A};
        int B, A;
        int64_t G;
        zd_error_clear();
        cr_assert_eq(
                train_resolve_batch(
                        &options, cases[i].world, cases[i].sharers, &B, &A, &G),
                ZD_ERR_CONFIG, "case %zu", i);
        cr_expect(
                strstr(zd_error_get()->what, cases[i].of), "case %zu: %s", i,
                zd_error_get()->what);
        cr_expect(
                strstr(zd_error_get()->help, cases[i].says), "case %zu: %s", i,
                zd_error_get()->help);
    }
}
