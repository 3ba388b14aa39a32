#include "base/rng.h"
#include "optim/optim.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

enum { COUNT = 40000 + 13 }; /* more than two turns of a thread, and a tail */

struct state {
    float *master, *m, *v, *grad;
    uint16_t *grad_half, *param;
};

static struct state make(void)
{
    struct state s;
    s.master = malloc(COUNT * sizeof(float));
    s.m = calloc(COUNT, sizeof(float));
    s.v = calloc(COUNT, sizeof(float));
    s.grad = malloc(COUNT * sizeof(float));
    s.grad_half = malloc(COUNT * sizeof(uint16_t));
    s.param = calloc(COUNT, sizeof(uint16_t));
    rng_normal(1, 1, 0, COUNT, s.master);
    return s;
}

static void drop(struct state *s)
{
    free(s->master);
    free(s->m);
    free(s->v);
    free(s->grad);
    free(s->grad_half);
    free(s->param);
}

static void draw_grad(struct state *s, int step)
{
    rng_normal(2, (uint64_t)step, 0, COUNT, s->grad);
    s->grad[0] = 0;
    s->grad[1] = 1e-30f;
    for (int i = 0; i < COUNT; i++)
        s->grad_half[i] = float_to_bf16(s->grad[i]);
}

static struct adamw_span span_of(struct state *s, bool half, bool decays)
{
    return (struct adamw_span){
            .master = s->master,
            .m = s->m,
            .v = s->v,
            .grad = half ? (void *)s->grad_half : (void *)s->grad,
            .grad_type = half ? DTYPE_BF16 : DTYPE_FP32,
            .param = half ? s->param : NULL,
            .param_type = DTYPE_BF16,
            .count = COUNT,
            .decays = decays};
}

static struct adamw_step step_of(int t)
{
    return (struct adamw_step){
            .learning_rate = 3e-3,
            .beta1 = 0.9,
            .beta2 = 0.95,
            .epsilon = 1e-8,
            .weight_decay = 0.1,
            .t = t,
            .grad_scale = 0.37f};
}

/* The same recurrence in double precision. */
static void reference(
        double *p, double *m, double *v, double g,
        const struct adamw_step *step, bool decays)
{
    g *= (double)step->grad_scale;
    if (decays)
        *p *= 1 - step->learning_rate * step->weight_decay;
    *m = step->beta1 * *m + (1 - step->beta1) * g;
    *v = step->beta2 * *v + (1 - step->beta2) * g * g;
    double corrected = sqrt(*v) / sqrt(1 - pow(step->beta2, (double)step->t));
    *p -= step->learning_rate / (1 - pow(step->beta1, (double)step->t)) * *m /
          (corrected + step->epsilon);
}

static void check_against_double(bool half, bool decays)
{
    struct state s = make();
    double *p = malloc(COUNT * sizeof *p);
    double *m = calloc(COUNT, sizeof *m), *v = calloc(COUNT, sizeof *v);
    for (int i = 0; i < COUNT; i++)
        p[i] = (double)s.master[i];
    for (int t = 1; t <= 20; t++) {
        struct adamw_step step = step_of(t);
        draw_grad(&s, t);
        struct adamw_span span = span_of(&s, half, decays);
        optim_adamw_plain(&span, &step);
        for (int i = 0; i < COUNT; i++)
            reference(
                    &p[i], &m[i], &v[i],
                    (double)(half ? bf16_to_float(s.grad_half[i]) : s.grad[i]),
                    &step, decays);
    }
    for (int i = 0; i < COUNT; i++) {
        double off = fabs((double)s.master[i] - p[i]);
        cr_assert(
                off < 2e-6 + 1e-6 * fabs(p[i]), "element %d is %.9g, not %.9g",
                i, (double)s.master[i], p[i]);
        if (half)
            cr_assert_eq(s.param[i], float_to_bf16(s.master[i]));
    }
    free(p);
    free(m);
    free(v);
    drop(&s);
}

Test(adamw, follows_the_recurrence_in_double)
{
    check_against_double(false, true);
    check_against_double(false, false);
    check_against_double(true, true);
}

static void check_bits(bool half, bool decays, size_t begin, size_t count)
{
    struct state a = make(), b = make();
    for (int t = 1; t <= 3; t++) {
        struct adamw_step step = step_of(t);
        draw_grad(&a, t);
        draw_grad(&b, t);
        struct adamw_span plain = span_of(&a, half, decays);
        struct adamw_span fast = span_of(&b, half, decays);
        struct adamw_span *spans[] = {&plain, &fast};
        for (int k = 0; k < 2; k++) {
            spans[k]->master += begin;
            spans[k]->m += begin;
            spans[k]->v += begin;
            spans[k]->grad = (const char *)spans[k]->grad +
                             begin * dtype_bytes(spans[k]->grad_type);
            if (half)
                spans[k]->param = (uint16_t *)spans[k]->param + begin;
            spans[k]->count = count;
        }
        optim_adamw_plain(&plain, &step);
        optim_adamw(&fast, &step);
    }
    cr_expect_arr_eq(a.master, b.master, COUNT * sizeof(float));
    cr_expect_arr_eq(a.m, b.m, COUNT * sizeof(float));
    cr_expect_arr_eq(a.v, b.v, COUNT * sizeof(float));
    cr_expect_arr_eq(a.param, b.param, COUNT * sizeof(uint16_t));
    drop(&a);
    drop(&b);
}

Test(adamw, the_fast_path_has_the_bits_of_the_definition)
{
    for (int kind = 0; kind < 4; kind++) {
        check_bits(kind & 1, kind & 2, 0, COUNT);
        check_bits(kind & 1, kind & 2, 3, 16384 + 5);
        check_bits(kind & 1, kind & 2, 7, 1);
        check_bits(kind & 1, kind & 2, 0, 0);
    }
}

Test(adamw, an_fp32_copy_of_the_weight_is_written)
{
    struct state s = make();
    draw_grad(&s, 1);
    float *plain = malloc(COUNT * sizeof *plain);
    struct adamw_step step = step_of(1);
    struct adamw_span span = span_of(&s, false, true);
    span.param = plain;
    span.param_type = DTYPE_FP32;
    optim_adamw(&span, &step);
    cr_expect_arr_eq(plain, s.master, COUNT * sizeof(float));
    optim_adamw_plain(&span, &step);
    cr_expect_arr_eq(plain, s.master, COUNT * sizeof(float));
    free(plain);
    drop(&s);
}

Test(adamw, an_element_that_is_not_finite_stays_visible)
{
    struct state s = make();
    draw_grad(&s, 1);
    s.grad_half[5] = float_to_bf16(NAN);
    struct adamw_step step = step_of(1);
    struct adamw_span span = span_of(&s, true, true);
    optim_adamw(&span, &step);
    cr_expect(isnan(s.master[5]));
    cr_expect(isnan(bf16_to_float(s.param[5])));
    cr_expect(isfinite(s.master[4]) && isfinite(s.master[6]));
    drop(&s);
}
