/* Sums over gradients: the norm's squares and Adam-mini's blocks. */
#include "tests/optim/choose_isa.h"
#include "tests/optim/family.h"

#include <criterion/criterion.h>

static bool runs(int isa)
{
    if (isa_runs((enum isa)isa))
        return true;
    tell_skipped((enum isa)isa);
    return false;
}

/* --- squares -------------------------------------------------------------- */

/* As the header defines it. */
static double squares_of(const void *grad, enum dtype type, size_t count)
{
    struct exact_sum sum = {0};
    for (size_t at = 0; at < count; at += 256) {
        size_t n = count - at < 256 ? count - at : 256;
        float x[256];
        double lane[8] = {0};
        dtype_convert(
                x, DTYPE_FP32, (const char *)grad + at * dtype_bytes(type),
                type, n);
        for (size_t i = 0; i < n; i++)
            lane[i % 8] += (double)x[i] * (double)x[i];
        exact_sum_add(
                &sum, ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
                              ((lane[1] + lane[5]) + (lane[3] + lane[7])));
    }
    return exact_sum_value(&sum);
}

Test(sums, squares_have_the_bits_of_their_definition)
{
    static const size_t counts[] = {0, 1, 9, 255, 256, 1000, 50001};
    for (int type = DTYPE_FP32; type <= DTYPE_FP16; type++)
        for (int k = 0; k < 7; k++) {
            void *grad = grad_draw((enum dtype)type, counts[k]);
            double expected = squares_of(grad, (enum dtype)type, counts[k]);
            for (int isa = 0; isa <= ISA_COUNT; isa++) {
                struct exact_sum sum = {0};
                if (isa < ISA_COUNT && !runs(isa))
                    continue;
                chosen_isa = (enum isa)isa;
                if (isa == ISA_COUNT)
                    optim_add_squares_threads(
                            &sum, grad, (enum dtype)type, counts[k]);
                else
                    optim_add_squares(&sum, grad, (enum dtype)type, counts[k]);
                cr_expect(
                        exact_sum_value(&sum) == expected,
                        "%s, %zu elements: %a, not %a",
                        dtype_name((enum dtype)type), counts[k],
                        exact_sum_value(&sum), expected);
            }
            free(grad);
        }
}

Test(sums, infinities_and_nan_are_counted)
{
    for (int type = DTYPE_FP32; type <= DTYPE_FP16; type++) {
        float x[300] = {0};
        uint16_t narrow[600];
        struct exact_sum sum = {0};
        x[4] = INFINITY;
        x[290] = NAN;
        dtype_convert(narrow, (enum dtype)type, x, DTYPE_FP32, 300);
        optim_add_squares(&sum, narrow, (enum dtype)type, 300);
        cr_expect_eq(sum.nonfinite, 2);
    }
}

/* --- blocks --------------------------------------------------------------- */

static double norm_of(const void *grad, enum dtype type, size_t count)
{
    struct exact_sum sum = {0};
    optim_add_squares(&sum, grad, type, count);
    return sqrt(exact_sum_value(&sum));
}

static float grad_at(const void *grad, enum dtype type, size_t i)
{
    float x;
    dtype_convert(
            &x, DTYPE_FP32, (const char *)grad + i * dtype_bytes(type), type,
            1);
    return x;
}

/* mean(g^2) of every block in double precision, scaled as the step says. */
static double *means_of(
        const struct tensor_blocks *blocks, const void *grad, enum dtype type,
        double scale)
{
    double *mean = calloc((size_t)blocks->count, sizeof *mean);
    double *members = calloc((size_t)blocks->count, sizeof *members);
    size_t count = (size_t)(blocks->rows * blocks->columns);
    for (size_t e = 0; e < count; e++) {
        double g = (double)grad_at(grad, type, e) * scale;
        int64_t b = tensor_blocks_of_element(blocks, e);
        mean[b] += g * g;
        members[b]++;
    }
    for (int64_t b = 0; b < blocks->count; b++)
        mean[b] /= members[b];
    free(members);
    return mean;
}

static const struct tensor_blocks *shapes(int k)
{
    static struct tensor_blocks blocks[4];
    blocks[0] = fused_blocks(80, 1401);
    blocks[1] = row_blocks(400, 261, 16);
    blocks[2] = row_blocks(300, 85, 1);
    blocks[3] = row_blocks(25000, 1, 25000);
    return &blocks[k];
}

/* Word for word: whole, in spans of several sizes, by each instruction set. */
static void expect_same_sums(
        const struct tensor_blocks *blocks, const void *grad, enum dtype type)
{
    size_t count = (size_t)(blocks->rows * blocks->columns);
    size_t words = (size_t)blocks->count * 2;
    double norm = norm_of(grad, type, count);
    int64_t *whole = calloc(words, sizeof *whole);
    chosen_isa = ISA_BASELINE;
    optim_add_block_sums(whole, blocks, grad, type, 0, count, norm);
    /* behind the instruction sets, all threads */
    for (int how = 0; how < 3 * (ISA_COUNT + 1); how++) {
        static const size_t cuts[] = {256, 2560, 1 << 30};
        int isa = how / 3;
        if (isa < ISA_COUNT && !runs(isa))
            continue;
        chosen_isa = (enum isa)isa;
        int64_t *sums = calloc(words, sizeof *sums);
        for (size_t at = 0, n; at < count; at += n) {
            const char *from = (const char *)grad + at * dtype_bytes(type);
            n = count - at < cuts[how % 3] ? count - at : cuts[how % 3];
            if (isa < ISA_COUNT)
                optim_add_block_sums(sums, blocks, from, type, at, n, norm);
            else
                optim_add_block_sums_threads(
                        sums, blocks, from, type, at, n, norm);
        }
        /* the words of two cuts may differ by a carry, their number does not */
        for (size_t k = 0; k < words; k += 2) {
            __int128 a = ((__int128)whole[k] << 42) + whole[k + 1];
            __int128 b = ((__int128)sums[k] << 42) + sums[k + 1];
            cr_assert(a == b, "block %zu, cut %d", k / 2, how);
        }
        free(sums);
    }
    free(whole);
}

Test(sums, blocks_are_the_same_for_every_cut_and_instruction_set)
{
    for (int k = 0; k < 4; k++)
        for (int type = DTYPE_FP32; type <= DTYPE_FP16; type++) {
            const struct tensor_blocks *blocks = shapes(k);
            size_t count = (size_t)(blocks->rows * blocks->columns);
            void *grad = grad_draw((enum dtype)type, count);
            expect_same_sums(blocks, grad, (enum dtype)type);
            free(grad);
        }
}

Test(sums, each_element_gets_the_v_of_its_block)
{
    for (int k = 0; k < 4; k++) {
        const struct tensor_blocks *blocks = shapes(k);
        size_t count = (size_t)(blocks->rows * blocks->columns);
        float *v = malloc((size_t)blocks->count * sizeof *v);
        float out[OPTIM_QBLOCK];
        for (int64_t b = 0; b < blocks->count; b++)
            v[b] = (float)b;
        for (size_t at = 0; at < count; at += OPTIM_QBLOCK) {
            size_t n = count - at < OPTIM_QBLOCK ? count - at : OPTIM_QBLOCK;
            optim_expand_blocks(blocks, v, at, n, out);
            for (size_t i = 0; i < n; i++)
                cr_assert(
                        out[i] ==
                                (float)tensor_blocks_of_element(blocks, at + i),
                        "shape %d, element %zu", k, at + i);
        }
        free(v);
    }
}

Test(sums, v_of_a_block_follows_the_mean_of_squares)
{
    struct optim_options options = optim_options_default();
    struct optim_step step = {.options = &options, .t = 1, .grad_scale = 0.25f};
    for (int k = 0; k < 4; k++) {
        const struct tensor_blocks *blocks = shapes(k);
        size_t count = (size_t)(blocks->rows * blocks->columns);
        float *grad = grad_draw(DTYPE_FP32, count);
        double norm = norm_of(grad, DTYPE_FP32, count);
        int64_t *sums = calloc((size_t)blocks->count * 2, sizeof *sums);
        float *v = calloc((size_t)blocks->count, sizeof *v);
        double *mean = means_of(blocks, grad, DTYPE_FP32, 0.25);
        optim_add_block_sums(sums, blocks, grad, DTYPE_FP32, 0, count, norm);
        for (int t = 1; t <= 2; t++) {
            optim_update_blocks(v, sums, blocks, &step, norm);
            double gain = 1 - pow(options.adam_beta2, t);
            /* what lies below 2^-92 of the whole sum is lost, and no more */
            double lost = norm * norm * 0x1p-90;
            for (int64_t b = 0; b < blocks->count; b++)
                cr_assert(
                        fabs((double)v[b] - gain * mean[b]) <=
                                1e-6 * gain * mean[b] + lost,
                        "block %lld of shape %d: %g, not %g", (long long)b, k,
                        (double)v[b], gain * mean[b]);
        }
        free(grad);
        free(sums);
        free(v);
        free(mean);
    }
}

Test(sums, a_block_of_a_large_share_and_one_of_nearly_nothing)
{
    struct optim_options options = optim_options_default();
    struct optim_step step = {.options = &options, .t = 1, .grad_scale = 1};
    struct tensor_blocks blocks = row_blocks(3, 400, 1);
    float *grad = calloc(1200, sizeof *grad), v[3] = {0};
    int64_t sums[6] = {0};
    grad[7] = 3e18f;
    for (int i = 0; i < 400; i++)
        grad[400 + i] = 1e8f;
    double norm = norm_of(grad, DTYPE_FP32, 1200);
    optim_add_block_sums(sums, &blocks, grad, DTYPE_FP32, 0, 1200, norm);
    optim_update_blocks(v, sums, &blocks, &step, norm);
    cr_expect(
            fabs((double)v[0] / (0.05 * 9e36 / 400) - 1) < 1e-6, "%g",
            (double)v[0]);
    cr_expect(
            fabs((double)v[1] / (0.05 * 1e16) - 1) < 1e-5, "%g", (double)v[1]);
    cr_expect_eq(v[2], 0);
    free(grad);
}

Test(sums, a_gradient_of_nothing_adds_nothing)
{
    struct optim_options options = optim_options_default();
    struct optim_step step = {.options = &options, .t = 1, .grad_scale = 1};
    struct tensor_blocks blocks = row_blocks(3, 4, 1);
    float grad[12] = {0}, v[3] = {1, 2, 3};
    int64_t sums[6] = {0};
    optim_add_block_sums(sums, &blocks, grad, DTYPE_FP32, 0, 12, 0);
    optim_update_blocks(v, sums, &blocks, &step, 0);
    for (int b = 0; b < 3; b++)
        cr_expect_float_eq(v[b], 0.95f * (float)(b + 1), 1e-6f);
}
