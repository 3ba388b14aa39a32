#include "tests/model/shapes.h"
#include "tests/model/tiny.h"

#include <criterion/criterion.h>

#include <math.h>

enum { B = 3, T = 13 };

static const char *const families[] = {"gpt2", "llama",   "qwen3", "granite",
                                       "phi3", "smollm3", "olmo2", "gemma2"};
enum { FAMILIES = sizeof families / sizeof families[0] };

/* A model and a batch for it. */
struct small {
    struct tiny tiny;
    struct tokens tokens;
};

static void init(
        struct small *s, const char *config, const char *freeze,
        enum checkpointing_mode mode, enum dtype dtype)
{
    struct model_shape shape =
            tiny_shape(B, T, (struct checkpointing){mode, 2});
    shape.dtype = dtype;
    tiny_init(&s->tiny, config, freeze, &shape, tiny_plain(dtype));
    tokens_fill(&s->tokens, 1, B, T, s->tiny.config.vocab_size);
    tiny_poison(&s->tiny);
}

static double step(struct small *s)
{
    return tiny_step(&s->tiny, &s->tokens.batch, 1.0f);
}

Test(model_passes, every_checkpointing_mode_gives_the_bits_of_none)
{
    static const struct checkpointing modes[] = {
            {CHECKPOINTING_FULL, 0},      {CHECKPOINTING_EVERY, 2},
            {CHECKPOINTING_EVERY, 3},     {CHECKPOINTING_EVERY, 5},
            {CHECKPOINTING_EVERY, 9},     {CHECKPOINTING_SQRT, 0},
            {CHECKPOINTING_SELECTIVE, 0},
    };
    for (int f = 0; f < FAMILIES; f++) {
        struct small none;
        init(&none, families[f], NULL, CHECKPOINTING_NONE, DTYPE_FP32);
        double loss = step(&none);
        cr_expect(isfinite(loss) && loss > 0);
        for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
            struct tiny t;
            struct model_shape shape = tiny_shape(B, T, modes[m]);
            tiny_init(&t, families[f], NULL, &shape, tiny_plain(DTYPE_FP32));
            tiny_poison(&t);
            cr_expect(tiny_step(&t, &none.tokens.batch, 1.0f) == loss);
            cr_expect(
                    tiny_same_grads(&none.tiny, &t), "family %d, mode %zu", f,
                    m);
            tiny_fini(&t);
        }
        tiny_fini(&none.tiny);
    }
}

/* Are gradients of the tensor sums over the pieces of an MLP? */
static bool is_in_pieces(const struct param *param)
{
    return param->role >= ROLE_NORM2 && param->role <= ROLE_POST2_BIAS;
}

static void expect_near_grads(struct tiny *whole, struct tiny *t)
{
    for (int id = 0; id < t->table.count; id++) {
        const struct param *param = &t->table.params[id];
        const float *x = tiny_grad(whole, id);
        const float *y = tiny_grad(t, id);
        double error = 0, size = 1e-3;
        for (size_t i = 0; i < param->count; i++) {
            error = fmax(error, fabs((double)x[i] - y[i]));
            size = fmax(size, fabs(x[i]));
        }
        double most = is_in_pieces(param) ? 2e-6 * size : 0;
        cr_expect(error <= most, "%s: %g of %g", param->name, error, size);
    }
}

/* What is of one token has the same bits, at any number of pieces, of 39 tokens
 * also one that does not divide and one that is more; sums over tokens are near
 * them, and the same in every mode. */
Test(model_passes, an_mlp_in_pieces_changes_the_order_of_sums_alone)
{
    static const int pieces[] = {2, 3, 7, 50};
    static const struct checkpointing modes[] = {
            {CHECKPOINTING_NONE, 0},
            {CHECKPOINTING_SELECTIVE, 0},
            {CHECKPOINTING_FULL, 0},
            {CHECKPOINTING_EVERY, 2}};
    for (int i = 0; i < FAMILIES * 4; i++) {
        const char *family = families[i / 4];
        struct small whole;
        struct tiny tiled[4];
        init(&whole, family, NULL, CHECKPOINTING_NONE, DTYPE_FP32);
        double loss = step(&whole);
        double eval = tiny_evaluate(&whole.tiny, &whole.tokens.batch);
        for (int m = 0; m < 4; m++) {
            struct model_shape shape = tiny_shape(B, T, modes[m]);
            struct tiny *t = &tiled[m];
            shape.mlp_pieces = pieces[i % 4];
            tiny_init(t, family, NULL, &shape, tiny_plain(DTYPE_FP32));
            tiny_poison(t);
            cr_expect(tiny_step(t, &whole.tokens.batch, 1.0f) == loss);
            cr_expect(tiny_evaluate(t, &whole.tokens.batch) == eval);
            cr_expect(tiny_same_grads(&tiled[0], t), "%s mode %d", family, m);
        }
        expect_near_grads(&whole.tiny, &tiled[0]);
        for (int m = 0; m < 4; m++)
            tiny_fini(&tiled[m]);
        tiny_fini(&whole.tiny);
    }
}

static int rows_of_losses;

static enum zd_status count_rows(
        struct stream *stream, const struct loss_rows *rows)
{
    rows_of_losses += rows->n;
    return tiny_plain(DTYPE_FP32)->cross_entropy(stream, rows);
}

static double worst_difference(struct tiny *a, struct tiny *b)
{
    double worst = 0;
    for (int id = 0; id < a->table.count; id++)
        for (size_t i = 0; i < a->table.params[id].count; i++)
            worst =
                    fmax(worst, fabs((double)tiny_grad(a, id)[i] -
                                     tiny_grad(b, id)[i]));
    return worst;
}

/* Rows of 13 tokens, of which 5 are padding and 4 have targets, are those of 8
 * tokens; 12 targets in all are 16 rows of the head. */
Test(model_passes, padding_and_masked_targets_change_nothing)
{
    static const enum checkpointing_mode modes[] = {
            CHECKPOINTING_NONE, CHECKPOINTING_FULL};
    for (int f = 0; f < 2 * FAMILIES; f++) {
        struct tiny wide, near;
        struct tokens tokens, narrow;
        struct kernels counting = *tiny_plain(DTYPE_FP32);
        struct model_shape shape = tiny_shape(
                B, T, (struct checkpointing){modes[f / FAMILIES], 0});
        counting.cross_entropy = count_rows;
        tiny_init(&wide, families[f % FAMILIES], NULL, &shape, &counting);
        tiny_init(&near, families[f % FAMILIES], NULL, &shape, &counting);
        tokens_fill(&tokens, 1, B, T, wide.config.vocab_size);
        for (int i = 0; i < B * T; i++)
            tokens.targets[i] = i % T < 4 ? -1 : abs(tokens.targets[i]);
        tokens_narrow(&narrow, &tokens, 5);
        tiny_poison(&wide);
        tiny_poison(&near);
        rows_of_losses = 0;
        double loss = tiny_step(&wide, &tokens.batch, 0.1f);
        cr_expect(isfinite(loss) && loss > 0);
        cr_expect(tiny_step(&near, &narrow.batch, 0.1f) == loss);
        cr_expect(tiny_evaluate(&wide, &tokens.batch) == loss);
        cr_expect(tiny_evaluate(&near, &narrow.batch) == loss);
        cr_expect_eq(rows_of_losses, 4 * 16, "%d rows", rows_of_losses);
        double worst = worst_difference(&wide, &near);
        cr_expect(worst < 1e-6, "family %d: %g", f % FAMILIES, worst);
        tiny_fini(&near);
        tiny_fini(&wide);
    }
}

Test(model_passes, frozen_tensors_cost_nothing_and_change_nothing)
{
    static const char *const patterns[][3] = {
            {"wte", "h.2.*", "attn"},
            {"embed", "model.layers.2.*", "self_attn"},
    };
    for (int f = 0; f < FAMILIES; f++)
        for (int p = 0; p < 3; p++) {
            struct small all, s;
            init(&all, families[f], NULL, CHECKPOINTING_EVERY, DTYPE_FP32);
            init(&s, families[f], patterns[f > 0][p], CHECKPOINTING_EVERY,
                 DTYPE_FP32);
            cr_expect(step(&s) == step(&all));
            for (int id = 0; id < s.tiny.table.count; id++)
                cr_expect(
                        (tiny_grad(&s.tiny, id) != NULL) ==
                        s.tiny.table.params[id].trainable);
            cr_expect(
                    tiny_same_grads(&s.tiny, &all.tiny), "%s frozen",
                    patterns[f > 0][p]);
            tiny_fini(&s.tiny);
            tiny_fini(&all.tiny);
        }
}

/* Each is that of fp32, rounded; all others are untouched. */
static void compare_rounded(struct tiny *wide, struct tiny *t)
{
    int rounded = 0;
    for (int id = 0; id < t->table.count; id++) {
        const struct param *param = &t->table.params[id];
        const float *x = tiny_grad(wide, id);
        const void *y = tiny_grad(t, id);
        const uint16_t *narrow = y;
        rounded += param->is_product;
        if (!param->is_product)
            cr_expect_eq(memcmp(x, y, param->count * sizeof *x), 0);
        for (size_t i = 0; i < param->count && param->is_product; i++)
            cr_assert_eq(narrow[i], float_to_bf16(x[i]), "%s", param->name);
    }
    cr_expect_eq(rounded, t->config.mlp_bias ? 0 : 7 * 5);
}

Test(model_passes, gradients_of_matmuls_are_rounded_once)
{
    for (int f = 1; f < 3; f++) { /* with biases, and without */
        struct small wide, s;
        init(&wide, families[f], NULL, CHECKPOINTING_NONE, DTYPE_BF16);
        init(&s, families[f], NULL, CHECKPOINTING_NONE, DTYPE_BF16);
        s.tiny.hooks.product_grads = DTYPE_BF16;
        step(&wide);
        step(&s);
        compare_rounded(&wide.tiny, &s.tiny);
        tiny_fini(&wide.tiny);
        tiny_fini(&s.tiny);
    }
}

/* Every sample of a packed batch is what its documents are on their own. */
Test(model_passes, documents_do_not_see_each_other)
{
    enum { CUT = 6 };
    for (int f = 0; f < FAMILIES; f++) {
        struct tokens packed, one;
        struct small s;
        init(&s, families[f], NULL, CHECKPOINTING_NONE, DTYPE_FP32);
        tokens_fill(&packed, 4, 1, T, s.tiny.config.vocab_size);
        for (int i = 0; i < T; i++)
            packed.doc_start[i] = i < CUT ? 0 : CUT;
        double whole = tiny_step(&s.tiny, &packed.batch, 1.0f), parts = 0.0;
        for (int part = 0; part < 2; part++) {
            int from = part ? CUT : 0, count = part ? T - CUT : CUT;
            one = packed;
            memmove(one.tokens, one.tokens + from, sizeof(int32_t) * count);
            memmove(one.targets, one.targets + from, sizeof(int32_t) * count);
            memset(one.doc_start, 0, sizeof one.doc_start);
            one.batch = (struct model_batch){
                    one.tokens, one.targets, one.doc_start, 1, count};
            parts += tiny_step(&s.tiny, &one.batch, 1.0f);
        }
        cr_expect(
                fabs(whole / parts - 1.0) < 1e-6, "%.9g, not %.9g", whole,
                parts);
        tiny_fini(&s.tiny);
    }
}

Test(model_passes, masked_targets_count_for_nothing)
{
    struct small s;
    init(&s, "llama", NULL, CHECKPOINTING_NONE, DTYPE_FP32);
    for (int i = 0; i < B * T; i++)
        s.tokens.targets[i] = -1;
    cr_expect(step(&s) == 0.0);
    for (int id = 0; id < s.tiny.table.count; id++)
        for (size_t i = 0; i < s.tiny.table.params[id].count; i++)
            cr_assert(
                    tiny_grad(&s.tiny, id)[i] == 0.0f, "%s",
                    s.tiny.table.params[id].name);
    tiny_fini(&s.tiny);
}

/* --- micro-batches by layer ------------------------------------------------
 */

enum { MICROS = 3 };

/* The last is smaller. Gradients of all of them are left in the replica. */
static double step_of_all(
        struct tiny *t, const struct model_batch *batches, bool by_layer)
{
    double loss = 0;
    tiny_step_begin(t);
    for (int m = 0; m < MICROS && !by_layer; m++)
        loss += tiny_step(t, &batches[m], 1.0f);
    if (!by_layer) /* a sum of sums is rounded, the sum of all is not */
        return loss;
    tiny_must(model_forward(t->model, batches, MICROS, 1.0f, &t->hooks));
    tiny_must(model_backward(t->model, &t->hooks));
    return tiny_loss(t);
}

/* The same bits, but for a tied table, whose head's part of all micro-batches
 * comes first. */
static void expect_grads_by_layer(struct tiny *a, struct tiny *b)
{
    for (int id = 0; id < a->table.count; id++) {
        const float *x = tiny_grad(a, id);
        const float *y = tiny_grad(b, id);
        double most = a->config.tied && id == 0 ? 1e-6 : 0;
        for (size_t i = 0; x && i < a->table.params[id].count; i++)
            cr_assert(
                    fabs((double)x[i] - y[i]) <= most * (1 + fabs(x[i])),
                    "%s %zu: %g, not %g", a->table.params[id].name, i, y[i],
                    x[i]);
    }
}

static void expect_by_layer(
        const char *family, const char *freeze, const struct model_shape *shape)
{
    const struct kernels *kernels = tiny_plain(shape->dtype);
    struct tokens tokens[MICROS];
    struct model_batch batches[MICROS];
    struct model_shape by_layer = *shape;
    struct tiny a, b;
    by_layer.micros = MICROS + 1; /* room for more */
    tiny_init(&a, family, freeze, shape, kernels);
    tiny_init(&b, family, freeze, &by_layer, kernels);
    for (int m = 0; m < MICROS; m++) {
        int samples = m == MICROS - 1 ? 1 : B;
        tokens_fill(&tokens[m], (uint64_t)m, samples, T, a.config.vocab_size);
        batches[m] = tokens[m].batch;
    }
    for (int turn = 0; turn < 2; turn++) {
        tiny_poison(&a);
        tiny_poison(&b);
        double x = step_of_all(&a, batches, false);
        double y = step_of_all(&b, batches, true);
        cr_expect(fabs(x - y) < 1e-9 * x, "%.17g, not %.17g", y, x);
        expect_grads_by_layer(&a, &b);
        tiny_evaluate(&b, &batches[1]); /* in between, over the same memory */
    }
    tiny_fini(&b);
    tiny_fini(&a);
}

Test(model_passes, micro_batches_by_layer_give_the_bits_of_one_by_one)
{
    static const struct checkpointing modes[] = {
            {CHECKPOINTING_NONE, 0},
            {CHECKPOINTING_SELECTIVE, 0},
            {CHECKPOINTING_FULL, 0},
            {CHECKPOINTING_EVERY, 2},
            {CHECKPOINTING_EVERY, 9}};
    static const enum dtype dtypes[] = {DTYPE_FP32, DTYPE_BF16};
    for (int i = 0; i < FAMILIES * 5; i++) {
        struct model_shape shape = tiny_shape(B, T, modes[i % 5]);
        shape.dtype = dtypes[i % 2];
        shape.mlp_pieces = i % 3 == 1 ? 3 : 0;
        expect_by_layer(families[i / 5], NULL, &shape);
    }
    for (int i = 0; i < 5; i++) {
        struct model_shape shape = tiny_shape(B, T, modes[i]);
        expect_by_layer("qwen3", "model.[el]*s.[012w]*", &shape);
        expect_by_layer("olmo2", "model.[el]*s.[0w]*", &shape);
        expect_by_layer("qwen3", "model.*", &shape);
    }
}

Test(model_passes, head_chunk_size_does_not_matter)
{
    struct small a;
    struct tiny b;
    struct model_shape shape =
            tiny_shape(B, T, (struct checkpointing){CHECKPOINTING_NONE, 0});
    shape.head_chunk = 1;
    init(&a, "qwen3", NULL, CHECKPOINTING_NONE, DTYPE_FP32);
    tiny_init(&b, "qwen3", NULL, &shape, tiny_plain(DTYPE_FP32));
    cr_expect(step(&a) == tiny_step(&b, &a.tokens.batch, 1.0f));
    cr_expect(worst_difference(&a.tiny, &b) < 1e-4);
    tiny_fini(&b);
    tiny_fini(&a.tiny);
}
