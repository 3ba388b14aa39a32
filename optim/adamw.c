/* The definition of AdamW for one element, and two ways to run it over a span.
 *
 * Every operation below is one IEEE-754 operation in fp32 (the build forbids
 * contraction into fused multiply-adds), and an element depends on no other. So
 * any vector width, any tile and any number of threads give the same bits. */
#include "optim/optim.h"

#include <math.h>
#include <stdbool.h>

/* What is the same for all elements of a step, rounded once to fp32. */
struct adamw_factors {
    float grad_scale;
    float keep;         /* 1 - lr * wd, or 1 */
    float beta1, gain1; /* gain = 1 - beta */
    float beta2, gain2;
    float root_scale; /* 1 / sqrt(1 - beta2^t) */
    float epsilon;
    float rate; /* lr / (1 - beta1^t) */
};

static struct adamw_factors factors_of(
        const struct adamw_span *span, const struct adamw_step *step)
{
    double decay = span->decays ? step->learning_rate * step->weight_decay : 0;
    double t = (double)step->t;
    return (struct adamw_factors){
            .grad_scale = step->grad_scale,
            .keep = (float)(1.0 - decay),
            .beta1 = (float)step->beta1,
            .gain1 = (float)(1.0 - step->beta1),
            .beta2 = (float)step->beta2,
            .gain2 = (float)(1.0 - step->beta2),
            .root_scale = (float)(1.0 / sqrt(1.0 - pow(step->beta2, t))),
            .epsilon = (float)step->epsilon,
            .rate = (float)(step->learning_rate / (1.0 - pow(step->beta1, t))),
    };
}

static inline __attribute__((always_inline)) float element(
        const struct adamw_factors *f, float master, float *m, float *v,
        float grad)
{
    float g = grad * f->grad_scale;
    float m1 = f->beta1 * *m + f->gain1 * g;
    float v1 = f->beta2 * *v + f->gain2 * (g * g);
    float denominator = sqrtf(v1) * f->root_scale + f->epsilon;
    *m = m1;
    *v = v1;
    return master * f->keep - f->rate * (m1 / denominator);
}

static float grad_at(const struct adamw_span *span, size_t i)
{
    if (span->grad_type == DTYPE_BF16)
        return bf16_to_float(((const uint16_t *)span->grad)[i]);
    if (span->grad_type == DTYPE_FP16)
        return fp16_to_float(((const uint16_t *)span->grad)[i]);
    return ((const float *)span->grad)[i];
}

void optim_adamw_plain(
        const struct adamw_span *span, const struct adamw_step *step)
{
    struct adamw_factors f = factors_of(span, step);
    for (size_t i = 0; i < span->count; i++) {
        float p =
                element(&f, span->master[i], &span->m[i], &span->v[i],
                        grad_at(span, i));
        span->master[i] = p;
        if (!span->param)
            continue;
        if (span->param_type == DTYPE_BF16)
            ((uint16_t *)span->param)[i] = float_to_bf16(p);
        else if (span->param_type == DTYPE_FP16)
            ((uint16_t *)span->param)[i] = float_to_fp16(p);
        else
            ((float *)span->param)[i] = p;
    }
}

/* --- the fast path -------------------------------------------------------- */

/* float_to_bf16 without its branch, so that the loop below vectorises. */
static inline __attribute__((always_inline)) uint16_t narrow(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    uint32_t quiet = (bits >> 16) | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

/* One loop per pair of types: `grad_half` and `param_half` are constants where
 * this is inlined. Arrays of a span never overlap. */
static inline __attribute__((always_inline)) void run(
        const struct adamw_factors *factors, float *restrict master,
        float *restrict m, float *restrict v, const void *restrict grad,
        uint16_t *restrict param, size_t count, bool grad_half, bool param_half)
{
    const struct adamw_factors f = *factors;
    const uint16_t *restrict grad16 = grad;
    const float *restrict grad32 = grad;
    for (size_t i = 0; i < count; i++) {
        float g = grad_half ? bf16_to_float(grad16[i]) : grad32[i];
        float p = element(&f, master[i], &m[i], &v[i], g);
        master[i] = p;
        if (param_half)
            param[i] = narrow(p);
    }
}

static inline __attribute__((always_inline)) void run_any(
        const struct adamw_factors *f, float *master, float *m, float *v,
        const void *grad, uint16_t *param, size_t count, bool grad_half)
{
    if (grad_half && param)
        run(f, master, m, v, grad, param, count, true, true);
    else if (grad_half)
        run(f, master, m, v, grad, NULL, count, true, false);
    else if (param)
        run(f, master, m, v, grad, param, count, false, true);
    else
        run(f, master, m, v, grad, NULL, count, false, false);
}

typedef void run_fn(
        const struct adamw_factors *f, float *master, float *m, float *v,
        const void *grad, uint16_t *param, size_t count, bool grad_half);

static void run_baseline(
        const struct adamw_factors *f, float *master, float *m, float *v,
        const void *grad, uint16_t *param, size_t count, bool grad_half)
{
    run_any(f, master, m, v, grad, param, count, grad_half);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void run_avx2(
        const struct adamw_factors *f, float *master, float *m, float *v,
        const void *grad, uint16_t *param, size_t count, bool grad_half)
{
    run_any(f, master, m, v, grad, param, count, grad_half);
}

__attribute__((target("avx512f,avx512bw,avx512vl"))) static void run_avx512(
        const struct adamw_factors *f, float *master, float *m, float *v,
        const void *grad, uint16_t *param, size_t count, bool grad_half)
{
    run_any(f, master, m, v, grad, param, count, grad_half);
}
#endif

static run_fn *choose(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        return run_avx512;
    if (__builtin_cpu_supports("avx2"))
        return run_avx2;
#endif
    return run_baseline;
}

/* Elements of one turn of a thread: seven arrays of it lie in a second-level
 * cache, and starting a thread costs far less than a turn. */
enum { TURN = 16384 };

void optim_adamw(const struct adamw_span *span, const struct adamw_step *step)
{
    struct adamw_factors f = factors_of(span, step);
    bool grad_half = span->grad_type == DTYPE_BF16;
    size_t grad_bytes = dtype_bytes(span->grad_type);
    run_fn *run_turn = choose();
    size_t turns = (span->count + TURN - 1) / TURN;
    bool copies = span->param && span->param_type != DTYPE_BF16;

#pragma omp parallel for schedule(static) if (turns > 1)
    for (size_t turn = 0; turn < turns; turn++) {
        size_t at = turn * TURN;
        size_t count = span->count - at < TURN ? span->count - at : TURN;
        const void *grad = (const char *)span->grad + at * grad_bytes;
        float wide[TURN];
        if (span->grad_type == DTYPE_FP16) {
            dtype_convert(wide, DTYPE_FP32, grad, DTYPE_FP16, count);
            grad = wide;
        }
        run_turn(
                &f, span->master + at, span->m + at, span->v + at, grad,
                span->param && !copies ? (uint16_t *)span->param + at : NULL,
                count, grad_half);
        if (copies)
            dtype_convert(
                    (char *)span->param + at * dtype_bytes(span->param_type),
                    span->param_type, span->master + at, DTYPE_FP32, count);
    }
}
