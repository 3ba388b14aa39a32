/* The vector code of AdamW against the plain definition, bit by bit. */
#include "base/number/rng.h"
#include "optim/codec.h"
#include "optim/simd.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

enum { COUNT = 20 * OPTIM_QBLOCK + 77, SCALES = 21, STEPS = 4 };

/* Everything a span points to; bytes after the last element must not change. */
struct memory {
    float master[COUNT + 16];
    float grad[COUNT + 16];
    uint8_t param[4 * (COUNT + 16)];
    uint8_t state[OPTIM_LANES][4 * (COUNT + 16)];
    float scale[OPTIM_LANES][SCALES + 16];
};

enum place { BESIDE, IN_PLACE, NOWHERE };

struct kind {
    enum optim_format states;
    enum dtype grad_type, param_type;
    enum place place;
};

static void clear_states(struct memory *m, enum optim_format format)
{
    memset(m, 0xa5, sizeof *m);
    for (int lane = 0; lane < OPTIM_LANES; lane++)
        optim_lane_clear(
                (enum optim_lane)lane, format, m->state[lane], m->scale[lane],
                COUNT);
    rng_normal(1, 1, 0, COUNT, m->master);
}

/* Gradients of very different sizes, qblocks of zeros, of zeros but one, tiny
 * and huge ones. */
static void draw_grads(struct memory *m, enum dtype type, uint64_t step)
{
    static const float sizes[SCALES] = {
            1e-3f, 1,     1e-20f, 0,      1e-12f, 1e-6f, 3e-5f,
            1e15f, 1e-3f, 1e-44f, 1e-30f, 2e-3f,  0,     100,
            7e4f,  1e-2f, 1e-3f,  1e-4f,  1e-5f,  1e-6f, 1};
    float x[COUNT];
    rng_normal(2, step, 0, COUNT, x);
    for (int i = 0; i < COUNT; i++)
        x[i] *= sizes[i / OPTIM_QBLOCK] * (i % 7 == 3 ? 1e-6f : 1);
    x[12 * OPTIM_QBLOCK + 100] = 1e-3f;
    for (int i = 0; i < OPTIM_QBLOCK; i += 2) /* only m becomes 0 */
        x[8 * OPTIM_QBLOCK + i] = 0;
    memset(m->grad, 0xa5, sizeof m->grad);
    dtype_convert(m->grad, type, x, DTYPE_FP32, COUNT);
}

static struct optim_span span_of(struct memory *m, const struct kind *kind)
{
    struct optim_span span = {
            .master = m->master,
            .master_type = DTYPE_FP32,
            .grad = m->grad,
            .grad_type = kind->grad_type,
            .param_type = kind->param_type,
            .layout = {{kind->states, kind->states}},
            .count = COUNT,
            .decays = true};
    if (kind->place != NOWHERE)
        span.param = kind->place == IN_PLACE ? (void *)m->grad : m->param;
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        span.lanes.state[lane] = m->state[lane];
        span.lanes.scale[lane] =
                kind->states == OPTIM_8BIT ? m->scale[lane] : NULL;
    }
    return span;
}

#define CHECK(part)                                                            \
    for (size_t i_ = 0; i_ < sizeof a->part; i_++)                             \
    cr_assert_eq(                                                              \
            ((const uint8_t *)a->part)[i_], ((const uint8_t *)b->part)[i_],    \
            "byte %zu of " #part ": states %d, grad %d, param %d, place %d",   \
            i_, (int)kind->states, (int)kind->grad_type,                       \
            (int)kind->param_type, (int)kind->place)

static void check_equal(
        const struct memory *a, const struct memory *b, const struct kind *kind)
{
    CHECK(master);
    CHECK(grad);
    CHECK(param);
    CHECK(state);
    CHECK(scale);
}
#undef CHECK

static void run_both(
        enum isa isa, const struct kind *kind, struct memory *plain,
        struct memory *fast, int64_t t)
{
    struct optim_options options = optim_options_default();
    struct optim_step step = {
            .options = &options,
            .learning_rate = 3e-3,
            .t = t,
            .grad_scale = t == 2 ? 1 : 0.37f,
            .seed = 5};
    struct optim_span span = span_of(plain, kind);
    optim_update_plain(&span, &step);
    span = span_of(fast, kind);
    optim_update_isa(isa, &span, &step);
}

static void check_kind(enum isa isa, const struct kind *kind)
{
    size_t bytes = (sizeof(struct memory) + 127) / 64 * 64;
    struct memory *plain = aligned_alloc(64, bytes);
    struct memory *fast = aligned_alloc(64, bytes);
    clear_states(plain, kind->states);
    clear_states(fast, kind->states);
    for (int64_t t = 1; t <= STEPS; t++) {
        draw_grads(plain, kind->grad_type, (uint64_t)t);
        draw_grads(fast, kind->grad_type, (uint64_t)t);
        run_both(isa, kind, plain, fast, t);
        check_equal(plain, fast, kind);
    }
    free(plain);
    free(fast);
}

static void check_isa(enum isa isa)
{
    static const enum optim_format formats[] = {
            OPTIM_FP32, OPTIM_BF16, OPTIM_8BIT};
    if (!isa_runs(isa))
        cr_skip("no %s here", isa_name(isa));
    for (int f = 0; f < 3; f++)
        for (int g = DTYPE_FP32; g <= DTYPE_FP16; g++)
            for (int p = DTYPE_FP32; p <= DTYPE_FP16; p++)
                for (int place = BESIDE; place <= NOWHERE; place++) {
                    struct kind kind = {
                            formats[f], (enum dtype)g, (enum dtype)p,
                            (enum place)place};
                    bool fits = place != IN_PLACE ||
                                dtype_bytes((enum dtype)p) <=
                                        dtype_bytes((enum dtype)g);
                    if (fits)
                        check_kind(isa, &kind);
                }
}

Test(simd, avx2_has_the_bits_of_the_definition)
{
    check_isa(ISA_AVX2);
}

Test(simd, avx512_has_the_bits_of_the_definition)
{
    check_isa(ISA_AVX512);
}

/* NaN may differ in bits that mean nothing; what is one must be one. */
static void check_damage(enum isa isa, const struct kind *kind, uint32_t bits)
{
    size_t bytes = (sizeof(struct memory) + 127) / 64 * 64;
    struct memory *plain = aligned_alloc(64, bytes);
    struct memory *fast = aligned_alloc(64, bytes);
    struct memory *both[] = {plain, fast};
    for (int k = 0; k < 2; k++) {
        clear_states(both[k], kind->states);
        draw_grads(both[k], kind->grad_type, 1);
        uint16_t half = (uint16_t)(bits >> 16);
        if (kind->grad_type == DTYPE_FP32)
            memcpy(&both[k]->grad[300], &bits, sizeof bits);
        else
            memcpy((uint16_t *)both[k]->grad + 300, &half, sizeof half);
        memcpy(&both[k]->master[900], &bits, sizeof bits);
    }
    for (int64_t t = 1; t <= 2; t++)
        run_both(isa, kind, plain, fast, t);
    float a[COUNT], b[COUNT];
    dtype_convert(a, DTYPE_FP32, plain->param, kind->param_type, COUNT);
    dtype_convert(b, DTYPE_FP32, fast->param, kind->param_type, COUNT);
    int bad = 0;
    for (int i = 0; i < COUNT; i++) {
        cr_assert_eq(isnan(plain->master[i]), isnan(fast->master[i]));
        cr_assert_eq(isnan(a[i]), isnan(b[i]), "%d", i);
        if (!isnan(a[i]))
            cr_assert_eq(a[i], b[i], "%d", i);
        bad += isnan(plain->master[i]);
    }
    cr_assert(isnan(a[900]) || !isnan(plain->master[900]));
    cr_assert(isnan(a[300]), "%d", bad);
    free(plain);
    free(fast);
}

Test(simd, what_is_not_finite_stays_visible)
{
    static const uint32_t damage[] = {
            0x7f800000u, 0xff800000u, 0x7fffffffu, 0xffffffffu, 0x7f810000u};
    for (int isa = ISA_AVX2; isa < ISA_COUNT; isa++)
        for (size_t k = 0; k < sizeof damage / sizeof *damage; k++)
            for (int g = DTYPE_FP32; g <= DTYPE_BF16; g++)
                for (int p = DTYPE_BF16; p <= DTYPE_FP16; p++) {
                    struct kind kind = {
                            OPTIM_8BIT, (enum dtype)g, (enum dtype)p, BESIDE};
                    if (!isa_runs((enum isa)isa))
                        continue;
                    check_damage((enum isa)isa, &kind, damage[k]);
                    kind.states = OPTIM_FP32;
                    check_damage((enum isa)isa, &kind, damage[k]);
                }
}
