#include "train/text/decoder.h"
#include "train/text/generate.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { V = 7 };

static void fill(float *logits)
{
    static const float values[V] = {0.5f, 2.0f, -1.0f, 2.0f, 0.0f, 1.0f, -3.0f};
    memcpy(logits, values, sizeof values);
}

Test(train_sampler, greedy_takes_the_lowest_of_equal_logits)
{
    float logits[V];
    int32_t order[V];
    struct sampler sampler = {.temperature = 0};
    fill(logits);
    cr_expect_eq(sampler_pick(&sampler, logits, order, V, 0), 1);
}

Test(train_sampler, a_position_decides_the_token)
{
    float logits[V];
    int32_t order[V];
    struct sampler sampler = {.temperature = 1, .top_p = 1, .seed = 3};
    for (int position = 0; position < 20; position++) {
        fill(logits);
        int32_t first = sampler_pick(&sampler, logits, order, V, position);
        fill(logits);
        cr_expect_eq(first, sampler_pick(&sampler, logits, order, V, position));
    }
}

Test(train_sampler, frequencies_follow_the_softmax)
{
    enum { DRAWS = 20000 };
    float logits[V];
    int32_t order[V];
    int seen[V] = {0};
    double sum = 0;
    struct sampler sampler = {.temperature = 0.7, .top_p = 1, .seed = 5};
    for (int i = 0; i < DRAWS; i++) {
        fill(logits);
        seen[sampler_pick(&sampler, logits, order, V, i)]++;
    }
    fill(logits);
    for (int i = 0; i < V; i++)
        sum += exp(logits[i] / 0.7);
    for (int i = 0; i < V; i++)
        cr_expect_float_eq(
                seen[i] / (double)DRAWS, exp(logits[i] / 0.7) / sum, 0.015);
}

Test(train_sampler, top_p_keeps_the_smallest_set_with_the_mass)
{
    float logits[V];
    int32_t order[V];
    struct sampler sampler = {.temperature = 1, .top_p = 0.5, .seed = 7};
    bool seen[V] = {false};
    for (int i = 0; i < 2000; i++) {
        fill(logits);
        seen[sampler_pick(&sampler, logits, order, V, i)] = true;
    }
    /* 1 and 3 hold 0.33 each: the first alone is not enough, both are */
    for (int i = 0; i < V; i++)
        cr_expect_eq(seen[i], i == 1 || i == 3, "token %d", i);
}

/* Many readers of JSON refuse a string with NUL. */
Test(train_sampler, bytes_that_json_has_not_become_replacement_characters)
{
    struct decoder_text text = {
            .bytes = (char[]){'a', 0, 'b', '\xff'}, .count = 4};
    json_auto_t *json = decoder_text_json(&text, "p");
    cr_expect_str_eq(
            json_string_at(json, "text"), "a\xef\xbf\xbd"
                                          "b\xef\xbf\xbd");
}
