/* test_fp8.c - a linear in FP8 against torch's types (tests/reference/
 * fp8_linear.py), both layouts of the weight, x kept as codes or not; and which
 * matmuls of a model are in FP8, with what is kept of them. */
#include "tests/model/tiny.h"

#include "base/must.h"
#include "model/internal.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

enum { N = 150, IN = 144, OUT = 272, RESULTS = N + N + OUT };

static void draw(float *out, uint64_t seed, size_t rows, size_t columns)
{
    for (size_t i = 0; i < rows * columns; i++) {
        uint64_t state = (i + seed * 1000003) * 6364136223846793005u;
        state ^= state >> 29;
        state *= 11400714819323198485u;
        float unit = ((float)(state >> 40) - 0x1p23f) / 0x1p23f;
        out[i] = ldexpf(unit, -(int)(i / columns % 5 + i % columns % 7));
    }
}

static uint16_t *draw_bf16(uint64_t seed, size_t rows, size_t columns)
{
    ZD_FREED float *wide = zd_array(rows * columns, sizeof *wide);
    uint16_t *out = zd_array(rows * columns, sizeof *out);
    draw(wide, seed, rows, columns);
    for (size_t i = 0; i < rows * columns; i++)
        out[i] = float_to_bf16(wide[i]);
    return out;
}

static uint16_t *turn(const uint16_t *x, size_t rows, size_t columns)
{
    uint16_t *out = zd_array(rows * columns, sizeof *out);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++)
            out[c * rows + r] = x[r * columns + c];
    return out;
}

/* sum_c x[r, c] v[c], of bf16 or fp32; or of its transpose's columns. */
static float row_sum(
        const void *x, bool is_wide, size_t step, size_t begin, size_t count,
        const uint16_t *v)
{
    double sum = 0;
    for (size_t c = 0; c < count; c++) {
        size_t i = begin + c * step;
        float value = is_wide ? ((const float *)x)[i]
                              : bf16_to_float(((const uint16_t *)x)[i]);
        sum += (double)value * (double)bf16_to_float(v[c]);
    }
    return (float)sum;
}

/* A linear on its own, with its scratch. */
struct alone {
    struct model_config config;
    struct param_table table;
    struct param params[1];
    int units[4];
    struct model model;
    struct pass pass;
    struct activations acts;
    struct linear linear;
    char *scratch;
    uint8_t *xt;
    float xt_scales[2 * IN], x_amax, *dw, dbias[OUT];
};

static void open_alone(
        struct alone *a, enum fp8_mode mode, bool conv1d, bool keeps)
{
    struct model_shape shape = {
            .B = 1, .T = N, .dtype = DTYPE_BF16, .fp8 = mode, .train = true};
    *a = (struct alone){.units = {0, 0, 1, 1}};
    a->params[0] = (struct param){
            .role = ROLE_O,
            .unit = 1,
            .dims = 2,
            .shape = {conv1d ? IN : OUT, conv1d ? OUT : IN},
            .count = IN * OUT,
            .trainable = true,
            .conv1d = conv1d,
            .part = PARAM_BASE};
    a->table = (struct param_table){
            .params = a->params,
            .count = 1,
            .unit_count = 3,
            .unit_first = a->units};
    a->model = (struct model){
            .config = &a->config,
            .table = &a->table,
            .fp8_use = fp8_use_of(&a->table, &shape)};
    cr_assert(a->model.fp8_use.has[FP8_O]);
    tiny_must(kernels_cpu(DTYPE_BF16, &a->model.kernels));
    size_t bytes = fp8_scratch_at(&a->config, &a->table, &shape, NULL).bytes;
    a->scratch = zd_array(bytes, 1);
    a->model.fp8 = fp8_scratch_at(&a->config, &a->table, &shape, a->scratch);
    a->xt = zd_array(fp8_transposed_bytes(N, IN), 1);
    a->dw = zd_array(IN * OUT, sizeof *a->dw);
    a->pass.N = N;
    a->pass.acts = &a->acts;
    a->linear = (struct linear){
            .model = &a->model,
            .pass = &a->pass,
            .dweight = a->dw,
            .dbias = a->dbias,
            .grad_type = DTYPE_FP32,
            .y_dtype = DTYPE_BF16,
            .N = N,
            .in = IN,
            .out = OUT,
            .columns = OUT,
            .conv1d = conv1d,
            .is_fp8 = true,
            .group = FP8_O,
            .layer = 1,
            .x_amax = &a->x_amax};
    if (keeps)
        a->linear.xt = (struct fp8_codes){a->xt, a->xt_scales};
}

static void close_alone(struct alone *a)
{
    free(a->scratch);
    free(a->xt);
    free(a->dw);
}

static void expect_near(
        const float *got, const float *wanted, size_t count, const char *what)
{
    float most = 0, apart = 0;
    for (size_t i = 0; i < count; i++) {
        most = fmaxf(most, fabsf(wanted[i]));
        apart = fmaxf(apart, fabsf(got[i] - wanted[i]));
    }
    cr_expect(apart <= 1e-3f * most, "%s: %g of %g", what, apart, most);
}

static void compare(
        enum fp8_mode mode, bool conv1d, bool keeps, const float *wanted)
{
    struct alone a;
    uint16_t *x = draw_bf16(1, N, IN), *dy = draw_bf16(3, N, OUT);
    uint16_t *w = draw_bf16(2, OUT, IN), *turned = turn(w, OUT, IN);
    uint16_t *u = draw_bf16(4, 1, OUT), *v = draw_bf16(5, 1, IN);
    uint16_t *y = zd_array(N * OUT, sizeof *y);
    ZD_FREED uint16_t *dx = zd_array(N * IN, sizeof *dx);
    float got[RESULTS];
    const void *params[] = {conv1d ? turned : w};
    open_alone(&a, mode, conv1d, keeps);
    a.model.params = params;
    a.linear.weight.values = params[0];
    tiny_must(fp8_weights(&a.model, &a.pass, 1));
    tiny_must(linear_forward(&a.linear, y, x));
    if (keeps) /* backward reads codes alone */
        memset(x, 0xff, N * IN * sizeof *x);
    tiny_must(linear_backward(&a.linear, dx, dy, x));
    for (size_t n = 0; n < N; n++) {
        got[n] = row_sum(y, false, 1, n * OUT, OUT, u);
        got[N + n] = row_sum(dx, false, 1, n * IN, IN, v);
    }
    for (size_t o = 0; o < OUT; o++) {
        double sum = 0;
        got[2 * N + o] = row_sum(
                a.dw, true, conv1d ? OUT : 1, conv1d ? o : o * IN, IN, v);
        for (size_t n = 0; n < N; n++)
            sum += (double)bf16_to_float(dy[n * OUT + o]);
        cr_expect_float_eq(a.dbias[o], (float)sum, 1e-4f);
    }
    expect_near(got, wanted, N, "y");
    expect_near(got + N, wanted + N, N, "dx");
    expect_near(got + 2 * N, wanted + 2 * N, OUT, "dW");
    close_alone(&a);
    free(x), free(dy), free(w), free(turned), free(u), free(v), free(y);
}

Test(model_fp8, a_linear_is_that_of_torchs_types)
{
    float wanted[2 * RESULTS];
    char path[1024];
    ZD_PRINT(path, "%s/fp8/linear.f32", getenv("ZEROD_FIXTURES"));
    FILE *file = fopen(path, "rbe");
    cr_assert(file && fread(wanted, sizeof wanted, 1, file) == 1);
    fclose(file);
    for (int i = 0; i < 8; i++)
        compare(i & 1 ? FP8_BLOCKWISE : FP8_TENSORWISE, i & 2, i & 4,
                wanted + (i & 1) * RESULTS);
}

/* What is kept in 8 bits of a llama of one layer, in place of 16. */
Test(model_fp8, inputs_are_kept_in_half_the_bytes)
{
    enum { T = 64, C = 32, F = 80 };
    static const char config[] = "fp8_all";
    struct model_shape shape = {
            .B = 1, .T = T, .dtype = DTYPE_BF16, .train = true};
    struct tiny t;
    tiny_config(config, &t.config);
    tiny_must(param_table_build(&t.config, NULL, 0, &t.table));
    struct fp8_use none = fp8_use_of(&t.table, &shape);
    shape.fp8 = FP8_BLOCKWISE;
    struct fp8_use use = fp8_use_of(&t.table, &shape);
    for (int g = 0; g < FP8_GROUPS; g++)
        cr_expect(use.has[g] && !none.has[g] && use.trains[g]);
    struct activations *passes =
            activations_lay_out(&t.config, &t.table, &shape, (char *)4096);
    const struct layer_acts *slot = passes[PASS_TRAIN].slots;
    cr_expect(slot->xt[FP8_QKV].codes && !slot->xt[FP8_O].codes);
    cr_expect(slot->attention.norm == slot->mlp.norm && !slot->x_amax);
    activations_free(passes, activations_passes(&shape));
    shape.checkpointing.mode = CHECKPOINTING_SELECTIVE;
    passes = activations_lay_out(&t.config, &t.table, &shape, (char *)4096);
    cr_expect(!passes[PASS_TRAIN].slots->xt[FP8_QKV].codes);
    activations_free(passes, activations_passes(&shape));
    param_table_fini(&t.table);
    model_config_fini(&t.config);
}

/* A side of k and v is 8: with q they stay in bf16, and the rest does not. */
Test(model_fp8, projections_of_an_input_are_in_fp8_together)
{
    static const char config[] = "fp8_narrow_kv";
    struct model_shape shape = {.B = 1, .T = 16, .fp8 = FP8_TENSORWISE};
    struct tiny t;
    tiny_config(config, &t.config);
    tiny_must(param_table_build(&t.config, NULL, 0, &t.table));
    struct fp8_use use = fp8_use_of(&t.table, &shape);
    cr_expect(!use.has[FP8_QKV] && use.has[FP8_O] && use.has[FP8_GATE_UP]);
    param_table_fini(&t.table);
    model_config_fini(&t.config);
}
