#include "model/files/config.h"
#include "model/rope.h"

#include "tests/model/tiny.h"

#include <criterion/criterion.h>

#include <math.h>

/* One set, and what transformers' formulas give in double. */
struct golden {
    const char *json;
    int positions, original;
    double attention_factor;
    struct {
        int i;
        double inv_freq;
    } at[12];
};

#define LLAMA "{\"model_type\":\"llama\",\"head_dim\":"

#define LONGROPE                                                               \
    LLAMA "8,\"max_position_embeddings\":256,\"rope_scaling\":{"               \
          "\"rope_type\":\"longrope\",\"original_max_position_embeddings\":"   \
          "64,"                                                                \
          "\"short_factor\":[1,1.1,1.25,1.5],\"long_factor\":[1,2.5,9,30]}}"

static const struct golden goldens[] = {
        /* Llama-3.2-1B: kept, blended and slowed down */
        {LLAMA "64,\"rope_theta\":5e5,"
               "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":32,"
               "\"low_freq_factor\":1,\"high_freq_factor\":4,"
               "\"original_max_position_embeddings\":8192}}",
         1,
         8192,
         1,
         {{0, 1.0},
          {1, 6.636012377e-01},
          {8, 3.760603093e-02},
          {13, 4.839421346e-03},
          {14, 3.211445995e-03},
          {15, 1.290547928e-03},
          {16, 4.295567966e-04},
          {17, 9.708287803e-05},
          {18, 1.946163818e-05},
          {19, 1.291476719e-05},
          {20, 8.570255490e-06},
          {31, 9.418306725e-08}}},
        /* Qwen 2.5 and 3 with YaRN */
        {LLAMA "128,\"rope_theta\":1e6,"
               "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,"
               "\"original_max_position_embeddings\":32768}}",
         1,
         32768,
         1.1386294361,
         {{0, 1.0},
          {23, 6.978305849e-03},
          {24, 5.375321491e-03},
          {30, 1.064360981e-03},
          {35, 2.462584069e-04},
          {39, 6.490394321e-05},
          {40, 4.445698525e-05},
          {63, 3.102344402e-07}}},
        /* gpt-oss: fractions of pairs */
        {LLAMA "64,\"rope_parameters\":{\"rope_type\":\"yarn\","
               "\"rope_theta\":150000,\"factor\":32,\"truncate\":false,"
               "\"beta_fast\":32.0,\"beta_slow\":1.0,"
               "\"original_max_position_embeddings\":4096}}",
         1,
         4096,
         1.3465735903,
         {{0, 1.0},
          {8, 5.081327482e-02},
          {9, 3.170569618e-02},
          {12, 6.794959490e-03},
          {17, 1.293187012e-04},
          {18, 3.830881237e-05},
          {31, 3.023511428e-07}}},
        {LLAMA "8,\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}}",
         1,
         0,
         1,
         {{0, 2.5e-01}, {1, 2.5e-02}, {3, 2.5e-04}}},
        /* within the model's positions, and beyond them */
        {LLAMA "8,\"max_position_embeddings\":256,"
               "\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}}",
         100,
         0,
         1,
         {{0, 1.0}, {1, 1e-01}, {3, 1e-03}}},
        {LLAMA "8,\"max_position_embeddings\":256,"
               "\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}}",
         1000,
         0,
         1,
         {{0, 1.0},
          {1, 5.275105643e-02},
          {2, 2.782673955e-03},
          {3, 1.467889908e-04}}},
        {LONGROPE,
         64,
         64,
         1.1547005384,
         {{0, 1.0}, {1, 9.090909091e-02}, {2, 8.0e-03}, {3, 6.666666667e-04}}},
        {LONGROPE,
         65,
         64,
         1.1547005384,
         {{0, 1.0}, {1, 4.0e-02}, {2, 1.111111111e-03}, {3, 3.333333333e-05}}},
        /* factors of attention: given, and by both scales */
        {LLAMA "8,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,"
               "\"attention_factor\":0.5,\"mscale\":1,\"mscale_all_dim\":2}}",
         1,
         2048,
         0.5,
         {{0, 1.0}}},
        {LLAMA "8,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":40,"
               "\"mscale\":0.707,\"mscale_all_dim\":1.3}}",
         1,
         2048,
         0.8521510516,
         {{0, 1.0}}},
};

Test(model_rope, frequencies_are_those_of_transformers)
{
    for (size_t n = 0; n < sizeof goldens / sizeof *goldens; n++) {
        const struct golden *g = &goldens[n];
        struct model_config config;
        tiny_config(g->json, &config);
        const struct rope_set *set = &config.ropes[0];
        cr_expect_eq(set->original_positions, g->original, "%s", g->json);
        cr_expect_float_eq(
                set->attention_factor, g->attention_factor, 1e-9, "%s: %.12g",
                g->json, set->attention_factor);
        for (int k = 0; k < 12 && g->at[k].inv_freq > 0; k++) {
            double got = rope_inv_freq(set, g->positions, g->at[k].i);
            cr_expect(
                    fabs(got / g->at[k].inv_freq - 1.0) < 1e-9, "%s: %d: %.9e",
                    g->json, g->at[k].i, got);
        }
        model_config_fini(&config);
    }
}

/* Position 17 of 8: two whole spans are behind it. */
Test(model_rope, tables_hold_the_factors_of_scores_and_of_positions)
{
    struct model_config config;
    float memory[4 * 18 * 2];
    tiny_config(
            "{\"model_type\":\"ministral3\",\"head_dim\":4,\"rope_parameters\":"
            "{"
            "\"rope_type\":\"yarn\",\"factor\":4,\"rope_theta\":1e4,"
            "\"original_max_position_embeddings\":8,"
            "\"llama_4_scaling_beta\":0.1}}",
            &config);
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
