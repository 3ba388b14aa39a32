#include "model/files/config.h"
#include "model/rope.h"

#include "tests/model/cases.h"
#include "tests/model/tiny.h"

#include <criterion/criterion.h>

#include <math.h>

/* What transformers' formulas give in double. */
Test(model_rope, frequencies_are_those_of_transformers)
{
    struct cases row = cases_open("rope.txt");
    while (cases_next(&row)) {
        struct model_config config;
        int positions, original, i, used;
        double factor, want;
        const char *json = row.fields[0], *at = row.fields[2];
        sscanf(row.fields[1], "%d %d %lf", &positions, &original, &factor);
        tiny_config(json, &config);
        const struct rope_set *set = &config.ropes[0];
        cr_expect_eq(set->original_positions, original, "%s", json);
        cr_expect_float_eq(
                set->attention_factor, factor, 1e-9, "%s: %.12g", json,
                set->attention_factor);
        for (; sscanf(at, "%d:%lf%n", &i, &want, &used) == 2; at += used) {
            double got = rope_inv_freq(set, positions, i);
            cr_expect(
                    fabs(got / want - 1.0) < 1e-9, "%s: %d: %.9e", json, i,
                    got);
        }
        cr_expect_str_empty(at);
        model_config_fini(&config);
    }
}

/* Position 17 of 8: two whole spans are behind it. */
Test(model_rope, tables_hold_the_factors_of_scores_and_of_positions)
{
    struct model_config config;
    float memory[4 * 18 * 2];
    tiny_config("ministral3", &config);
    const struct rope_set *set = &config.ropes[0];
    struct rope_tables tables = rope_tables_at(set, 18, memory);
    cr_assert_eq(rope_table_floats(set, 18), sizeof memory / sizeof *memory);
    rope_fill(set, 18, &tables);
    double a = 0.1 * log(4) + 1, scale = 1 + 0.1 * log(3);
    cr_expect_float_eq(set->attention_factor, a, 1e-12);
    for (int i = 0; i < 2; i++) {
        double angle = 17 * rope_inv_freq(set, 18, i);
        cr_expect_float_eq(tables.cosine[17 * 2 + i], a * cos(angle), 1e-5);
        cr_expect_float_eq(tables.sine[17 * 2 + i], a * sin(angle), 1e-5);
        cr_expect_float_eq(
                tables.q_sine[17 * 2 + i], scale * a * sin(angle), 1e-5);
        cr_expect_eq(tables.q_cosine[7 * 2 + i], tables.cosine[7 * 2 + i]);
    }
    model_config_fini(&config);
}
