/* 50 steps of every optimizer against other people's code: what made the
 * fixtures and from what is told in tests/reference/optim_steps.py. */
#include "base/must.h"
#include "tests/optim/family.h"

#include <criterion/criterion.h>
#include <stdio.h>

enum { STEPS = 50, TENSORS = 4, CODES = 2 };

/* --- the same weights and gradients --------------------------------------- */

static uint32_t mix(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    return x ^ (x >> 16);
}

static float draw(uint32_t stream, size_t i)
{
    uint32_t h = mix(stream * 65536 + (uint32_t)i);
    return (float)((int32_t)(h & 0xffffff) - 0x800000) * 0x1p-23f;
}

static float grad_at(int tensor, int step, size_t i)
{
    uint32_t decade =
            mix((uint32_t)(i / 8) + 65536 * (2000 + (uint32_t)tensor)) % 31;
    float g = draw((uint32_t)(10 * step + tensor), i);
    return i % 97 == 5 ? 0 : ldexpf(g, -(int)decade);
}

/* --- a model of four tensors ---------------------------------------------- */

struct reference {
    const char *name;
    enum optim_name optimizer;
    enum optim_state_type states;
    double momentum, learning_rate, beta2;
    /* How far a weight may be off, and how many codes in a thousand may be
     * neighbors of the expected: our entries are within 1e-6 of the map's, and
     * a difference in the last places moves a value over the middle between two
     * entries now and then (which moves an AdamW weight by part of a step). */
    double tolerance;
    int codes_off;
};

#define FP32 OPTIM_STATE_FP32
#define I8   OPTIM_STATE_8BIT
static const struct reference references[] = {
        {"adamw", OPTIM_ADAMW, FP32, 0, 1e-3, 0.95, 2e-7, 0},
        {"adamw_8bit", OPTIM_ADAMW, I8, 0, 1e-3, 0.95, 1e-5, 1},
        {"adam_mini", OPTIM_ADAM_MINI, FP32, 0, 1e-3, 0.95, 2e-7, 0},
        {"adam_mini_8bit", OPTIM_ADAM_MINI, I8, 0, 1e-3, 0.95, 2e-7, 1},
        {"lion", OPTIM_LION, FP32, 0, 1e-4, 0.99, 2e-7, 0},
        {"lion_8bit", OPTIM_LION, I8, 0, 1e-4, 0.99, 2e-7, 1},
        {"sgd", OPTIM_SGD, FP32, 0, 1e-2, 0.95, 2e-7, 0},
        {"sgd_momentum", OPTIM_SGD, FP32, 0.9, 1e-2, 0.95, 2e-7, 0},
};
#undef FP32
#undef I8
enum { REFERENCES = sizeof references / sizeof references[0] };

static const char *const tensor_names[TENSORS] = {
        "q_proj", "mlp", "norm", "bias"};

static struct tensor_blocks blocks_of(int tensor)
{
    switch (tensor) {
    case 0:
        return row_blocks(64, 64, 16);
    case 1:
        return row_blocks(24, 180, 1);
    case 2:
        return row_blocks(100, 1, 100);
    default:
        return row_blocks(100, 1, 1);
    }
}

struct model {
    struct tensor tensors[TENSORS];
};

static struct model model_make(const struct reference *r)
{
    struct model model;
    struct variant variant = {r->name, r->optimizer, r->states, r->momentum};
    for (int k = 0; k < TENSORS; k++) {
        struct shape shape = {.variant = &variant, .blocks = blocks_of(k)};
        struct tensor *t = &model.tensors[k];
        *t = tensor_make(&shape);
        t->options.adam_beta2 = r->beta2;
        for (size_t i = 0; i < t->count; i++)
            ((float *)t->master)[i] = draw(1000 + (uint32_t)k, i) * 0x1p-5f;
    }
    return model;
}

static double model_norm(const struct model *model)
{
    struct exact_sum sum = {0};
    for (int k = 0; k < TENSORS; k++)
        optim_add_squares(
                &sum, model->tensors[k].grad, DTYPE_FP32,
                model->tensors[k].count);
    return sqrt(exact_sum_value(&sum));
}

static void model_step(struct model *model, const struct reference *r, int at)
{
    for (int k = 0; k < TENSORS; k++)
        for (size_t i = 0; i < model->tensors[k].count; i++)
            ((float *)model->tensors[k].grad)[i] = grad_at(k, at, i);
    double norm = model_norm(model);
    for (int k = 0; k < TENSORS; k++) {
        struct tensor *t = &model->tensors[k];
        struct optim_step step = tensor_step(t, at);
        step.learning_rate = r->learning_rate;
        step.grad_scale = 1;
        tensor_update_blocks_by(t, &step, norm);
        struct optim_span span = tensor_span(t, 0, t->count);
        span.decays = k < 2;
        optim_update(&span, &step);
    }
}

/* --- comparison ----------------------------------------------------------- */

static void *read_fixture(const char *name, const char *ending, size_t bytes)
{
    char path[512];
    ZD_PRINT(path, ZD_FIXTURES "/optim/%s.%s", name, ending);
    FILE *f = fopen(path, "rb");
    cr_assert(f != NULL, "%s", path);
    char *content = malloc(bytes + 1);
    cr_assert_eq(fread(content, 1, bytes + 1, f), bytes, "%s", path);
    fclose(f);
    return content;
}

struct totals {
    size_t floats, codes;
};

static struct totals totals_of(const struct model *model)
{
    struct totals total = {0, 0};
    ZD_EACH(t, model->tensors, TENSORS) {
        total.floats += t->count;
        for (int lane = 0; lane < OPTIM_LANES; lane++)
            if (t->layout.lane[lane] == OPTIM_8BIT) {
                total.floats += optim_scale_count(OPTIM_8BIT, t->count);
                total.codes += t->count;
            }
    }
    return total;
}

static const float *compare_weights(
        const struct model *model, const struct reference *r,
        const float *expected)
{
    for (int k = 0; k < TENSORS; k++) {
        const struct tensor *t = &model->tensors[k];
        double worst = 0;
        for (size_t i = 0; i < t->count; i++, expected++) {
            double off =
                    fabs((double)((float *)t->master)[i] - (double)*expected);
            worst = off > worst ? off : worst;
        }
        cr_expect(
                worst <= r->tolerance, "%s: %s is off by up to %.3g", r->name,
                tensor_names[k], worst);
    }
    return expected;
}

/* Codes that are neighbors, and none that is farther. */
static void compare_codes(
        const struct tensor *t, int lane, const struct reference *r,
        const char *tensor, const float *scales, const uint8_t *codes)
{
    const uint8_t *mine = t->state[lane];
    size_t off = 0, far = 0,
           scale_count = optim_scale_count(OPTIM_8BIT, t->count);
    double worst = 0;
    for (size_t i = 0; i < t->count; i++) {
        off += mine[i] != codes[i];
        far += abs(mine[i] - codes[i]) > 1;
    }
    for (size_t i = 0; i < scale_count; i++)
        worst = fmax(
                worst, fabs((double)t->scale[lane][i] / (double)scales[i] - 1));
    cr_expect(
            worst < 5e-6, "%s: a scale of %s, lane %d, is off by %.3g", r->name,
            tensor, lane, worst);
    cr_expect(
            off * 1000 <= (size_t)r->codes_off * t->count && far == 0,
            "%s: %zu of %zu codes of %s, lane %d, differ, %zu by more than 1",
            r->name, off, t->count, tensor, lane, far);
}

Test(reference, fifty_steps_end_where_others_do)
{
    ZD_EACH(r, references, REFERENCES) {
        struct model model = model_make(r);
        struct totals total = totals_of(&model);
        ZD_FREED float *floats = read_fixture(r->name, "f32", total.floats * 4);
        ZD_FREED uint8_t *codes =
                total.codes ? read_fixture(r->name, "u8", total.codes) : NULL;
        for (int at = 1; at <= STEPS; at++)
            model_step(&model, r, at);
        const float *scale = compare_weights(&model, r, floats);
        const uint8_t *code = codes;
        for (int k = 0; k < TENSORS; k++) {
            struct tensor *t = &model.tensors[k];
            for (int lane = 0; lane < OPTIM_LANES; lane++)
                if (t->layout.lane[lane] == OPTIM_8BIT) {
                    compare_codes(t, lane, r, tensor_names[k], scale, code);
                    scale += optim_scale_count(OPTIM_8BIT, t->count);
                    code += t->count;
                }
            tensor_drop(t);
        }
    }
}
