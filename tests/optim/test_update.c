/* Every optimizer with every format: the fast paths have the bits of the
 * definition, however a tensor is cut. */
#include "base/number/philox.h"
#include "optim/simd.h"
#include "tests/optim/choose_isa.h"
#include "tests/optim/family.h"

#include <criterion/criterion.h>

typedef void update_fn(
        struct tensor *t, const struct optim_step *step, int how);

static void update_plainly(
        struct tensor *t, const struct optim_step *step, int how)
{
    struct optim_span span = tensor_span(t, 0, t->count);
    chosen_isa = ISA_BASELINE;
    optim_update_plain(&span, step);
    chosen_isa = ISA_COUNT;
    tensor_keep_param(t, 0, t->count);
}

static void update_compiled(
        struct tensor *t, const struct optim_step *step, int how)
{
    struct optim_span span = tensor_span(t, 0, t->count);
    chosen_isa = (enum isa)how;
    optim_update_plain(&span, step);
    chosen_isa = ISA_COUNT;
    tensor_keep_param(t, 0, t->count);
}

static void update_by_isa(
        struct tensor *t, const struct optim_step *step, int how)
{
    struct optim_span span = tensor_span(t, 0, t->count);
    chosen_isa = (enum isa)how;
    optim_update(&span, step);
    chosen_isa = ISA_COUNT;
    tensor_keep_param(t, 0, t->count);
}

/* Spans of 1 to 8 qblocks, the odd ones after the even ones. */
static void update_in_spans(
        struct tensor *t, const struct optim_step *step, int how)
{
    for (size_t odd = 0; odd < 2; odd++) {
        size_t index = 0;
        for (size_t at = 0, count; at < t->count; at += count, index++) {
            count = 256 * (1 + rng_u64(5, (uint64_t)how, index) % 8);
            count = count < t->count - at ? count : t->count - at;
            if (index % 2 != odd)
                continue;
            struct optim_span span = tensor_span(t, at, count);
            optim_update(&span, step);
            tensor_keep_param(t, at, count);
        }
    }
}

static void update_by_threads(
        struct tensor *t, const struct optim_step *step, int how)
{
    struct optim_span span = tensor_span(t, 0, t->count);
    optim_update_threads(&span, step);
    tensor_keep_param(t, 0, t->count);
}

/* Three steps, by plain code and in ways `first` to `last` of `update`. */
static void expect_equal(
        const struct shape *shape, update_fn *update, int first, int last)
{
    struct tensor a = tensor_make(shape), others[ISA_COUNT];
    size_t blocks = (size_t)shape->blocks.count;
    for (int how = first; how <= last; how++)
        others[how - first] = tensor_make(shape);
    for (int t = 1; t <= 3; t++) {
        struct optim_step step = tensor_step(&a, t);
        tensor_draw_grad(&a, t);
        tensor_update_blocks(&a, &step);
        for (int how = first; how <= last; how++) {
            struct tensor *b = &others[how - first];
            memcpy(b->grad, a.grad, a.count * 4);
            memcpy(b->block_v, a.block_v, blocks * sizeof(float));
        }
        update_plainly(&a, &step, 0);
        for (int how = first; how <= last; how++) {
            update(&others[how - first], &step, how);
            cr_assert(
                    tensor_equal(&a, &others[how - first]), "%s, %d: step %d",
                    shape_text(shape), how, t);
        }
    }
    tensor_drop(&a);
    for (int how = first; how <= last; how++)
        tensor_drop(&others[how - first]);
}

static void expect_equal_for_types(
        const struct variant *variant, const struct tensor_blocks *blocks,
        update_fn *update, int first, int last)
{
    struct shape shape;
    for (int kind = 0; kind < SHAPE_KINDS; kind++)
        if (shape_of_kind(kind, variant, blocks, &shape)) {
            shape.is_extreme = update == update_by_isa;
            expect_equal(&shape, update, first, last);
        }
}

/* Each instruction set brings those before it. */
static int last_isa(void)
{
    int last = ISA_BASELINE;
    while (last + 1 < ISA_COUNT && isa_runs((enum isa)(last + 1)))
        last++;
    for (int isa = last + 1; isa < ISA_COUNT; isa++)
        tell_skipped((enum isa)isa);
    return last;
}

Test(update, fast_paths_have_the_bits_of_the_definition, .timeout = 120)
{
    struct tensor_blocks blocks = fused_blocks(23, 211);
    int last = last_isa();
    for (int k = 0; k < VARIANTS; k++)
        expect_equal_for_types(
                &variants[k], &blocks, update_compiled, ISA_AVX2, last);
    for (int k = ADAMW; k <= ADAMW_8BIT; k++) /* by vector code */
        expect_equal_for_types(
                &variants[k], &blocks, update_by_isa, ISA_AVX2, last);
}

Test(update, cuts_at_multiples_of_256_change_no_bit, .timeout = 120)
{
    struct tensor_blocks blocks = row_blocks(40, 211, 8);
    for (int k = 0; k < VARIANTS; k++)
        expect_equal_for_types(&variants[k], &blocks, update_in_spans, k, k);
}

Test(update, threads_change_no_bit, .timeout = 120)
{
    /* more than four turns of a thread, and a tail */
    struct tensor_blocks blocks = fused_blocks(307, 249);
    for (int k = 0; k < VARIANTS; k++) {
        struct shape shape = {
                .variant = &variants[k],
                .grad_type = DTYPE_BF16,
                .param_type = DTYPE_BF16,
                .has_param = true,
                .blocks = blocks};
        expect_equal(&shape, update_by_threads, 0, 0);
        shape.has_param = false;
        shape.in_place = true;
        shape.grad_type = DTYPE_FP32;
        expect_equal(&shape, update_by_threads, 0, 0);
    }
}

Test(update, few_elements_and_none)
{
    static const int64_t counts[] = {1, 7, 255, 256, 257};
    for (int k = 0; k < VARIANTS; k++)
        for (int i = 0; i < 5; i++) {
            struct shape shape = {
                    .variant = &variants[k],
                    .blocks = row_blocks(counts[i], 1, counts[i])};
            expect_equal(
                    &shape, update_compiled, (int)isa_best(), (int)isa_best());
            expect_equal(&shape, update_by_threads, 0, 0);
            struct tensor t = tensor_make(&shape);
            struct optim_step step = tensor_step(&t, 1);
            struct optim_span span = tensor_span(&t, 0, 0);
            optim_update(&span, &step);
            optim_update_plain(&span, &step);
            optim_update_threads(&span, &step);
            tensor_drop(&t);
        }
}

/* --- what is not finite --------------------------------------------------- */

/* A gradient and a weight with these bits. */
static void expect_visible(const struct shape *shape, int isa, uint32_t bits)
{
    enum { GRAD = 5, MASTER = 600 };
    struct tensor t = tensor_make(shape);
    struct optim_step step = tensor_step(&t, 1);
    float *master = t.master, *seen = malloc(t.count * sizeof *seen);
    tensor_draw_grad(&t, 1);
    tensor_update_blocks(&t, &step);
    memcpy((float *)t.grad + GRAD, &bits, sizeof bits);
    memcpy(master + MASTER, &bits, sizeof bits);
    update_by_isa(&t, &step, isa);
    dtype_convert(seen, DTYPE_FP32, t.param, shape->param_type, t.count);
    cr_expect(
            isnan(master[GRAD]) && isnan(seen[GRAD]) &&
                    !isfinite(master[MASTER]) &&
                    isnan(seen[MASTER]) == isnan(master[MASTER]),
            "%s: %08x by %s", shape_text(shape), bits, isa_name((enum isa)isa));
    for (size_t i = 0; i < t.count; i++)
        if (i != GRAD && i != MASTER)
            cr_assert(
                    isfinite(master[i]) && isfinite(seen[i]), "%s: element %zu",
                    shape_text(shape), i);
    free(seen);
    tensor_drop(&t);
}

Test(update, an_element_that_is_not_finite_stays_visible)
{
    /* NaN; infinities, which become NaN where m is divided by v */
    static const uint32_t damage[] = {
            0x7fffffffu, 0xffffffffu, 0x7f810000u, 0x7f800000u, 0xff800000u};
    for (int k = 0; k < VARIANTS; k++)
        for (int isa = ISA_BASELINE; isa <= last_isa(); isa++)
            for (int i = 0; i < (variants[k].name == OPTIM_ADAMW ? 5 : 3); i++)
                for (int type = DTYPE_BF16; type <= DTYPE_FP16; type++) {
                    struct shape shape = {
                            .variant = &variants[k],
                            .param_type = (enum dtype)type,
                            .has_param = true,
                            .blocks = row_blocks(17, 300, 1)};
                    expect_visible(&shape, isa, damage[i]);
                }
}

/* --- stochastic rounding -------------------------------------------------- */

Test(update, rounding_by_chance_is_right_on_average)
{
    enum { QBLOCKS = 400 };
    float x = 1.0f + 0x1.4p-9f; /* 5/16 of the way to the next bf16 */
    int up = 0;
    for (size_t q = 0; q < QBLOCKS; q++) {
        uint16_t draws[OPTIM_QBLOCK];
        optim_draws(1, 2, 3, q, draws);
        for (int i = 0; i < OPTIM_QBLOCK; i++) {
            uint16_t rounded = round_stochastic(x, draws[i]);
            cr_assert(rounded == 0x3f80 || rounded == 0x3f81);
            up += rounded == 0x3f81;
        }
    }
    double n = QBLOCKS * OPTIM_QBLOCK, mean = up / n;
    double deviation = sqrt(0.3125 * 0.6875 / n);
    cr_expect(fabs(mean - 0.3125) < 5 * deviation, "%.5f", mean);
}

Test(update, rounding_by_chance_keeps_what_bf16_can_hold)
{
    static const float kept[] = {0, -0.0f, 1, -2.5f, INFINITY, -INFINITY};
    for (int i = 0; i < 6; i++)
        for (uint32_t draw = 0; draw < 0x10000; draw += 0xffff) {
            float back =
                    bf16_to_float(round_stochastic(kept[i], (uint16_t)draw));
            cr_expect_eq(
                    memcmp(&back, &kept[i], sizeof back), 0, "%g", kept[i]);
        }
    uint32_t bits = 0x7f800001u; /* a NaN whose payload is cut off */
    float nan;
    memcpy(&nan, &bits, sizeof nan);
    cr_expect(isnan(bf16_to_float(round_stochastic(nan, 0))));
    cr_expect(isnan(bf16_to_float(round_stochastic(nan, 0xffff))));
}

/* As elements.h has them. */
Test(update, draws_are_words_of_philox)
{
    uint16_t draws[OPTIM_QBLOCK];
    optim_draws(1, 2, 3, 4, draws);
    for (uint64_t i = 0; i < OPTIM_QBLOCK; i++) {
        uint32_t words[4];
        philox(1, 2, 3ull << 32 | (4 * 32 + i % 32), words);
        cr_expect_eq(draws[i], (uint16_t)(words[i / 64] >> 16 * (i / 32 % 2)));
    }
}

Test(update, draws_differ_by_seed_step_tensor_and_qblock)
{
    uint16_t base[OPTIM_QBLOCK], other[OPTIM_QBLOCK];
    optim_draws(1, 2, 3, 4, base);
    for (int k = 0; k < 4; k++) {
        optim_draws(
                (uint64_t)(1 + (k == 0)), (uint64_t)(2 + (k == 1)),
                3 + (k == 2), (size_t)(4 + (k == 3)), other);
        int same = 0;
        for (int i = 0; i < OPTIM_QBLOCK; i++)
            same += base[i] == other[i];
        cr_expect(same < 4, "%d", k);
    }
}

Test(update, a_weight_of_bf16_moves_by_less_than_its_unit)
{
    /* 2000 steps of 1e-5 from 1: to nearest, nothing would ever happen */
    struct shape shape = {
            .variant = &variants[PLAIN_SGD],
            .master_type = DTYPE_BF16,
            .blocks = row_blocks(64, 64, 1)};
    struct tensor t = tensor_make(&shape);
    uint16_t *master = t.master;
    for (size_t i = 0; i < t.count; i++) {
        master[i] = float_to_bf16(1);
        ((float *)t.grad)[i] = 1;
    }
    for (int at = 1; at <= 2000; at++) {
        struct optim_step step = tensor_step(&t, at);
        struct optim_span span = tensor_span(&t, 0, t.count);
        step.learning_rate = 1e-5;
        step.grad_scale = 1;
        span.decays = false;
        optim_update(&span, &step);
    }
    double mean = 0;
    for (size_t i = 0; i < t.count; i++)
        mean += (double)bf16_to_float(master[i]) / (double)t.count;
    cr_expect(fabs(mean - 0.98) < 1e-3, "%.6f", mean);
    tensor_drop(&t);
}

Test(update, a_v_of_bf16_goes_on_falling)
{
    /* by a thousandth a step: to nearest, it would stay at 1 */
    struct shape shape = {
            .variant = &variants[ADAMW_BF16], .blocks = row_blocks(64, 64, 1)};
    struct tensor t = tensor_make(&shape);
    uint16_t *v = t.state[OPTIM_V];
    t.options.adam_beta2 = 0.999;
    for (size_t i = 0; i < t.count; i++)
        v[i] = float_to_bf16(1);
    for (int at = 1; at <= 700; at++) {
        struct optim_step step = tensor_step(&t, at);
        struct optim_span span = tensor_span(&t, 0, t.count);
        optim_update(&span, &step);
    }
    double mean = 0;
    for (size_t i = 0; i < t.count; i++)
        mean += (double)bf16_to_float(v[i]) / (double)t.count;
    cr_expect(fabs(mean - pow(0.999, 700)) < 5e-3, "%.6f", mean);
    tensor_drop(&t);
}
