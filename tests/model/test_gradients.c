#include "tests/model/shapes.h"
#include "tests/model/tiny.h"

#include <criterion/criterion.h>

#include <math.h>

/* Central differences of the loss along a direction in one tensor, against the
 * gradient that the backward pass wrote. fp32 rounds the loss, so a step must
 * move it by far more than that. */
enum { B = 2, T = 11 };

static double difference_along(
        struct tiny *t, const struct model_batch *batch, int id,
        const float *direction, double step)
{
    size_t count = t->table.params[id].count;
    float *w = replicated_param(t->replica, id),
          *kept = malloc(count * sizeof *w);
    double loss[2], applied = 0.0;
    memcpy(kept, w, count * sizeof *w);
    for (int side = 0; side < 2; side++) {
        double sign = side ? -step : step;
        for (size_t i = 0; i < count; i++)
            w[i] = (float)(kept[i] + sign * direction[i]);
        loss[side] = tiny_evaluate(t, batch);
    }
    applied = 2.0 * step;
    memcpy(w, kept, count * sizeof *w);
    free(kept);
    return (loss[0] - loss[1]) / applied;
}

static void check_tensor(
        struct tiny *t, const struct model_batch *batch, int id)
{
    const struct param *param = &t->table.params[id];
    const float *grad = replicated_grad(t->replica, id);
    float *direction = malloc(param->count * sizeof *direction);
    double norm = 0.0, length = 0.0, expected = 0.0;
    rng_normal(11, rng_stream(param->name), 0, param->count, direction);
    for (size_t i = 0; i < param->count; i++)
        norm += (double)grad[i] * grad[i];
    norm = sqrt(norm);
    /* Half along the gradient, so that there is something to see. */
    for (size_t i = 0; i < param->count; i++) {
        direction[i] = direction[i] / (float)sqrt((double)param->count) +
                       (norm > 0 ? (float)(grad[i] / norm) : 0.0f);
        length += (double)direction[i] * direction[i];
    }
    length = sqrt(length);
    for (size_t i = 0; i < param->count; i++) {
        direction[i] /= (float)length;
        expected += (double)grad[i] * direction[i];
    }
    double got = difference_along(t, batch, id, direction, 4e-3);
    cr_expect(
            fabs(got - expected) < 4e-3 * norm + 4e-3, "%s: %g, not %g",
            param->name, expected, got);
    free(direction);
}

static void check_model(const char *config)
{
    struct tokens tokens;
    struct tiny t;
    struct model_shape shape = {
            .B = B,
            .T = T,
            .eval_B = B,
            .dtype = DTYPE_FP32,
            .head_chunk = 5,
            .train = true,
    };
    tiny_init(&t, config, NULL, &shape, tiny_plain(DTYPE_FP32));
    tokens_fill(&tokens, 3, B, T, t.config.vocab_size);
    /* Biases and norms away from the 0 and 1 that they begin with. */
    for (int id = 0; id < t.table.count; id++)
        if (t.table.params[id].dims == 1) {
            float noise, *w = replicated_param(t.replica, id);
            for (size_t i = 0; i < t.table.params[id].count; i++) {
                rng_normal(
                        5, rng_stream(t.table.params[id].name), i, 1, &noise);
                w[i] += 0.2f * noise;
            }
        }
    tiny_step(&t, &tokens.batch, 1.0f);
    for (int id = 0; id < t.table.count; id++)
        check_tensor(&t, &tokens.batch, id);
    tiny_fini(&t);
}

Test(model_gradients, gpt2_agrees_with_finite_differences)
{
    check_model(SHAPE_GPT2);
}

Test(model_gradients, llama_agrees_with_finite_differences)
{
    check_model(SHAPE_LLAMA);
}

Test(model_gradients, qwen3_agrees_with_finite_differences)
{
    check_model(SHAPE_QWEN3);
}

Test(model_gradients, olmo2_agrees_with_finite_differences)
{
    check_model(SHAPE_OLMO2);
}

Test(model_gradients, gemma2_agrees_with_finite_differences)
{
    check_model(SHAPE_GEMMA2);
}

Test(model_gradients, phi3_agrees_with_finite_differences)
{
    check_model(SHAPE_PHI3);
}

Test(model_gradients, smollm3_agrees_with_finite_differences)
{
    check_model(SHAPE_SMOLLM3);
}

Test(model_gradients, granite_agrees_with_finite_differences)
{
    check_model(SHAPE_GRANITE);
}
