#include "tests/model/shapes.h"
#include "tests/model/tiny.h"

#include <criterion/criterion.h>

#include <math.h>

enum { B = 3, T = 13 };

static const char *const families[] = {SHAPE_GPT2, SHAPE_LLAMA, SHAPE_QWEN3};

static const struct kernels *plain(enum dtype dtype)
{
    const struct kernels *kernels;
    tiny_must(kernels_plain(dtype, &kernels));
    return kernels;
}

static struct model_shape shape_of(struct checkpointing checkpointing)
{
    return (struct model_shape){
            .B = B,
            .T = T,
            .eval_B = B,
            .checkpointing = checkpointing,
            .dtype = DTYPE_FP32,
            .head_chunk = 7,
            .train = true,
    };
}

/* Whatever is not written shows up. */
static void poison(struct tiny *t)
{
    for (int id = 0; id < t->table.count; id++)
        for (size_t i = 0; i < t->table.params[id].count; i++)
            if (replicated_grad(t->replica, id))
                replicated_grad(t->replica, id)[i] = NAN;
}

static bool same_grads(struct tiny *a, struct tiny *b)
{
    for (int id = 0; id < a->table.count; id++)
        if (memcmp(replicated_grad(a->replica, id),
                   replicated_grad(b->replica, id),
                   a->table.params[id].count * sizeof(float)) != 0)
            return false;
    return true;
}

Test(model_passes, every_checkpointing_mode_gives_the_bits_of_none)
{
    static const struct checkpointing modes[] = {
            {CHECKPOINTING_FULL, 0},      {CHECKPOINTING_EVERY, 2},
            {CHECKPOINTING_EVERY, 3},     {CHECKPOINTING_EVERY, 5},
            {CHECKPOINTING_EVERY, 9},     {CHECKPOINTING_SQRT, 0},
            {CHECKPOINTING_SELECTIVE, 0},
    };
    struct tokens tokens;
    for (int f = 0; f < 3; f++) {
        struct tiny none, t;
        struct model_shape shape =
                shape_of((struct checkpointing){CHECKPOINTING_NONE, 0});
        tiny_init(&none, families[f], NULL, &shape, plain(DTYPE_FP32));
        tokens_fill(&tokens, 1, B, T, none.config.vocab_size);
        poison(&none);
        double loss = tiny_step(&none, &tokens.batch, 0.1f);
        cr_expect(isfinite(loss) && loss > 0);
        for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
            shape = shape_of(modes[m]);
            tiny_init(&t, families[f], NULL, &shape, plain(DTYPE_FP32));
            poison(&t);
            cr_expect(tiny_step(&t, &tokens.batch, 0.1f) == loss);
            cr_expect(same_grads(&none, &t), "family %d, mode %zu", f, m);
            tiny_fini(&t);
        }
        tiny_fini(&none);
    }
}

static int rows_of_losses;

static enum zd_status count_rows(
        struct stream *stream, float *losses, void *dlogits, const void *logits,
        const int32_t *targets, float dloss, int n, int V, int stride)
{
    rows_of_losses += n;
    return plain(DTYPE_FP32)
            ->cross_entropy(
                    stream, losses, dlogits, logits, targets, dloss, n, V,
                    stride);
}

static double worst_difference(struct tiny *a, struct tiny *b)
{
    double worst = 0;
    for (int id = 0; id < a->table.count; id++)
        for (size_t i = 0; i < a->table.params[id].count; i++)
            worst = fmax(
                    worst, fabs((double)replicated_grad(a->replica, id)[i] -
                                replicated_grad(b->replica, id)[i]));
    return worst;
}

/* Rows of 13 tokens, of which 5 are padding and 4 have targets, are those of 8
 * tokens; 12 targets in all are 16 rows of the head. */
Test(model_passes, padding_and_what_has_no_target_change_nothing)
{
    static const enum checkpointing_mode modes[] = {
            CHECKPOINTING_NONE, CHECKPOINTING_FULL};
    for (int f = 0; f < 6; f++) {
        struct tiny wide, near;
        struct tokens tokens, narrow;
        struct kernels counting = *plain(DTYPE_FP32);
        struct model_shape shape =
                shape_of((struct checkpointing){modes[f / 3], 0});
        counting.cross_entropy = count_rows;
        tiny_init(&wide, families[f % 3], NULL, &shape, &counting);
        tiny_init(&near, families[f % 3], NULL, &shape, &counting);
        tokens_fill(&tokens, 1, B, T, wide.config.vocab_size);
        for (int i = 0; i < B * T; i++)
            tokens.targets[i] = i % T < 4 ? -1 : abs(tokens.targets[i]);
        tokens_narrow(&narrow, &tokens, 5);
        poison(&wide);
        poison(&near);
        rows_of_losses = 0;
        double loss = tiny_step(&wide, &tokens.batch, 0.1f);
        cr_expect(isfinite(loss) && loss > 0);
        cr_expect(tiny_step(&near, &narrow.batch, 0.1f) == loss);
        cr_expect(tiny_evaluate(&wide, &tokens.batch) == loss);
        cr_expect(tiny_evaluate(&near, &narrow.batch) == loss);
        cr_expect_eq(rows_of_losses, 4 * 16, "%d rows", rows_of_losses);
        double worst = worst_difference(&wide, &near);
        cr_expect(worst < 1e-6, "family %d: %g", f % 3, worst);
        tiny_fini(&near);
        tiny_fini(&wide);
    }
}

Test(model_passes, micro_batches_add_their_gradients)
{
    struct tokens first, second;
    for (int f = 0; f < 3; f++) {
        struct tiny a, b;
        struct model_shape shape =
                shape_of((struct checkpointing){CHECKPOINTING_FULL, 0});
        tiny_init(&a, families[f], NULL, &shape, plain(DTYPE_FP32));
        tiny_init(&b, families[f], NULL, &shape, plain(DTYPE_FP32));
        tokens_fill(&first, 1, B, T, a.config.vocab_size);
        tokens_fill(&second, 2, B, T, a.config.vocab_size);
        poison(&a);
        tiny_step(&a, &first.batch, 1.0f);
        tiny_step(&a, &second.batch, 1.0f);
        tiny_step(&b, &first.batch, 1.0f);
        for (int id = 0; id < a.table.count; id++) {
            float *sum = replicated_grad(a.replica, id);
            float *one = replicated_grad(b.replica, id);
            for (size_t i = 0; i < a.table.params[id].count; i++)
                sum[i] -= one[i];
        }
        replicated_step_begin(b.replica);
        poison(&b);
        tiny_step(&b, &second.batch, 1.0f);
        for (int id = 0; id < a.table.count; id++) {
            double error = 0.0, size = 1e-3;
            for (size_t i = 0; i < a.table.params[id].count; i++) {
                double d = (double)replicated_grad(a.replica, id)[i] -
                           replicated_grad(b.replica, id)[i];
                error = fmax(error, fabs(d));
                size = fmax(size, fabs(replicated_grad(b.replica, id)[i]));
            }
            cr_expect(
                    error < 1e-4 * size, "%s: %g of %g",
                    a.table.params[id].name, error, size);
        }
        tiny_fini(&b);
        tiny_fini(&a);
    }
}

Test(model_passes, frozen_tensors_cost_nothing_and_change_nothing)
{
    static const char *const patterns[][3] = {
            {"wte", "h.2.*", "attn"},
            {"embed", "model.layers.2.*", "self_attn"},
            {"embed", "model.layers.2.*", "self_attn"},
    };
    struct tokens tokens;
    struct model_shape shape =
            shape_of((struct checkpointing){CHECKPOINTING_EVERY, 2});
    for (int f = 0; f < 3; f++)
        for (int p = 0; p < 3; p++) {
            struct tiny all, t;
            tiny_init(&all, families[f], NULL, &shape, plain(DTYPE_FP32));
            tiny_init(
                    &t, families[f], patterns[f][p], &shape, plain(DTYPE_FP32));
            tokens_fill(&tokens, 1, B, T, t.config.vocab_size);
            poison(&t);
            cr_expect(
                    tiny_step(&t, &tokens.batch, 1.0f) ==
                    tiny_step(&all, &tokens.batch, 1.0f));
            for (int id = 0; id < t.table.count; id++) {
                const struct param *param = &t.table.params[id];
                float *grad = replicated_grad(t.replica, id);
                cr_expect((grad != NULL) == param->trainable);
                cr_expect(
                        !grad || memcmp(grad, replicated_grad(all.replica, id),
                                        param->count * sizeof *grad) == 0,
                        "%s with %s frozen", param->name, patterns[f][p]);
            }
            tiny_fini(&t);
            tiny_fini(&all);
        }
}

/* Each is that of fp32, rounded; all others are untouched. */
static void compare_rounded(struct tiny *wide, struct tiny *t)
{
    int rounded = 0;
    for (int id = 0; id < t->table.count; id++) {
        const struct param *param = &t->table.params[id];
        const float *x = replicated_grad(wide->replica, id);
        const void *y = replicated_grad(t->replica, id);
        const uint16_t *narrow = y;
        rounded += param->is_product;
        if (!param->is_product)
            cr_expect_eq(memcmp(x, y, param->count * sizeof *x), 0);
        for (size_t i = 0; i < param->count && param->is_product; i++)
            cr_assert_eq(narrow[i], float_to_bf16(x[i]), "%s", param->name);
    }
    cr_expect_eq(rounded, t->config.mlp_bias ? 0 : 7 * 5);
}

Test(model_passes, gradients_of_products_are_rounded_once)
{
    struct tokens tokens;
    for (int f = 1; f < 3; f++) { /* with biases, and without */
        struct tiny wide, t;
        struct model_shape shape =
                shape_of((struct checkpointing){CHECKPOINTING_NONE, 0});
        shape.dtype = DTYPE_BF16;
        tiny_init(&wide, families[f], NULL, &shape, plain(DTYPE_BF16));
        tiny_init(&t, families[f], NULL, &shape, plain(DTYPE_BF16));
        tokens_fill(&tokens, 1, B, T, t.config.vocab_size);
        t.hooks.product_grads = DTYPE_BF16;
        tiny_step(&wide, &tokens.batch, 1.0f);
        tiny_step(&t, &tokens.batch, 1.0f);
        compare_rounded(&wide, &t);
        tiny_fini(&wide);
        tiny_fini(&t);
    }
}

static struct model_hooks counted_inner;
static int grads_calls, lowest_grads_unit, acquires;

static enum zd_status counted_params(void *ctx, int unit, const void **params)
{
    acquires++;
    return counted_inner.params_acquire(ctx, unit, params);
}

static enum zd_status counted_grads(
        void *ctx, int unit, void **grads, bool *accumulate_out)
{
    grads_calls++;
    lowest_grads_unit = unit < lowest_grads_unit ? unit : lowest_grads_unit;
    return counted_inner.grads_acquire(ctx, unit, grads, accumulate_out);
}

Test(model_passes, the_backward_ends_above_what_is_frozen)
{
    const char *freeze[] = {"model.embed_tokens.*", "model.layers.[0-3].*"};
    struct tokens tokens;
    struct tiny t = {0};
    struct weight_source source;
    struct model_shape shape =
            shape_of((struct checkpointing){CHECKPOINTING_NONE, 0});
    tiny_config(SHAPE_QWEN3, &t.config);
    tiny_must(param_table_build(&t.config, freeze, 2, &t.table));
    tiny_must(weights_open_random(7, &t.table, &source));
    tiny_build(&t, &shape, plain(DTYPE_FP32), &source);
    weights_close(&source);
    tokens_fill(&tokens, 1, B, T, t.config.vocab_size);
    counted_inner = t.hooks;
    t.hooks.params_acquire = counted_params;
    t.hooks.grads_acquire = counted_grads;
    lowest_grads_unit = 99;
    tiny_step(&t, &tokens.batch, 1.0f);
    cr_expect_eq(grads_calls, 2, "the fifth layer and the head");
    cr_expect_eq(lowest_grads_unit, 5);
    cr_expect_eq(acquires, 7 + 1, "one layer comes again for its backward");
    tiny_fini(&t);
}

/* Every sample of a packed batch is what its documents are on their own. */
Test(model_passes, documents_do_not_see_each_other)
{
    enum { CUT = 6 };
    for (int f = 0; f < 3; f++) {
        struct tokens packed, one;
        struct tiny t;
        struct model_shape shape =
                shape_of((struct checkpointing){CHECKPOINTING_NONE, 0});
        tiny_init(&t, families[f], NULL, &shape, plain(DTYPE_FP32));
        tokens_fill(&packed, 4, 1, T, t.config.vocab_size);
        for (int i = 0; i < T; i++)
            packed.doc_start[i] = i < CUT ? 0 : CUT;
        double whole = tiny_step(&t, &packed.batch, 1.0f), parts = 0.0;
        for (int part = 0; part < 2; part++) {
            int from = part ? CUT : 0, count = part ? T - CUT : CUT;
            one = packed;
            memmove(one.tokens, one.tokens + from, sizeof(int32_t) * count);
            memmove(one.targets, one.targets + from, sizeof(int32_t) * count);
            memset(one.doc_start, 0, sizeof one.doc_start);
            one.batch = (struct model_batch){
                    one.tokens, one.targets, one.doc_start, 1, count};
            parts += tiny_step(&t, &one.batch, 1.0f);
        }
        cr_expect(
                fabs(whole / parts - 1.0) < 1e-6, "%.9g, not %.9g", whole,
                parts);
        tiny_fini(&t);
    }
}

Test(model_passes, masked_targets_count_for_nothing)
{
    struct tokens tokens;
    struct tiny t;
    struct model_shape shape =
            shape_of((struct checkpointing){CHECKPOINTING_NONE, 0});
    tiny_init(&t, SHAPE_LLAMA, NULL, &shape, plain(DTYPE_FP32));
    tokens_fill(&tokens, 1, B, T, t.config.vocab_size);
    for (int i = 0; i < B * T; i++)
        tokens.targets[i] = -1;
    poison(&t);
    cr_expect(tiny_step(&t, &tokens.batch, 1.0f) == 0.0);
    for (int id = 0; id < t.table.count; id++)
        for (size_t i = 0; i < t.table.params[id].count; i++)
            cr_assert(
                    replicated_grad(t.replica, id)[i] == 0.0f, "%s",
                    t.table.params[id].name);
    tiny_fini(&t);
}

Test(model_passes, evaluation_gives_the_loss_of_the_forward_pass)
{
    struct tokens tokens;
    for (int f = 0; f < 3; f++) {
        struct tiny t;
        struct model_shape shape =
                shape_of((struct checkpointing){CHECKPOINTING_SQRT, 0});
        tiny_init(&t, families[f], NULL, &shape, plain(DTYPE_FP32));
        tokens_fill(&tokens, 1, B, T, t.config.vocab_size);
        double loss = tiny_evaluate(&t, &tokens.batch);
        cr_expect(loss == tiny_step(&t, &tokens.batch, 1.0f));
        tiny_fini(&t);
    }
}

Test(model_passes, the_size_of_the_heads_chunks_does_not_matter)
{
    struct tokens tokens;
    struct tiny a, b;
    struct model_shape shape =
            shape_of((struct checkpointing){CHECKPOINTING_NONE, 0});
    tiny_init(&a, SHAPE_QWEN3, NULL, &shape, plain(DTYPE_FP32));
    shape.head_chunk = 1;
    tiny_init(&b, SHAPE_QWEN3, NULL, &shape, plain(DTYPE_FP32));
    tokens_fill(&tokens, 1, B, T, a.config.vocab_size);
    cr_expect(
            tiny_step(&a, &tokens.batch, 1.0f) ==
            tiny_step(&b, &tokens.batch, 1.0f));
    int head = param_table_find(&a.table, "lm_head.weight");
    for (size_t i = 0; i < a.table.params[head].count; i++)
        cr_assert(
                fabsf(replicated_grad(a.replica, head)[i] -
                      replicated_grad(b.replica, head)[i]) < 1e-4f);
    tiny_fini(&b);
    tiny_fini(&a);
}

/* `dloss` is the scale that keeps fp16 gradients from vanishing. */
static void stays_near_fp32(
        enum dtype dtype, float dloss, double loss_bound, double cosine_bound)
{
    struct tokens tokens;
    for (int f = 0; f < 3; f++) {
        struct tiny exact, t;
        struct model_shape shape =
                shape_of((struct checkpointing){CHECKPOINTING_NONE, 0});
        tiny_init(&exact, families[f], NULL, &shape, plain(DTYPE_FP32));
        shape.dtype = dtype;
        tiny_init(&t, families[f], NULL, &shape, plain(dtype));
        tokens_fill(&tokens, 1, B, T, t.config.vocab_size);
        poison(&t);
        double loss = tiny_step(&exact, &tokens.batch, 1.0f);
        double narrow = tiny_step(&t, &tokens.batch, dloss);
        cr_expect(
                fabs(narrow / loss - 1.0) < loss_bound, "loss off by %g",
                narrow / loss - 1.0);
        double dot = 0.0, a = 0.0, b = 0.0;
        for (int id = 0; id < t.table.count; id++)
            for (size_t i = 0; i < t.table.params[id].count; i++) {
                double x = replicated_grad(exact.replica, id)[i];
                double y = replicated_grad(t.replica, id)[i];
                dot += x * y, a += x * x, b += y * y;
            }
        cr_expect(
                dot / sqrt(a * b) > cosine_bound, "cosine %g",
                dot / sqrt(a * b));
        tiny_fini(&t);
        tiny_fini(&exact);
    }
}

Test(model_passes, bf16_stays_near_fp32)
{
    stays_near_fp32(DTYPE_BF16, 1.0f, 1e-2, 0.995);
}

Test(model_passes, fp16_stays_nearer_to_fp32)
{
    stays_near_fp32(DTYPE_FP16, 64.0f, 1e-3, 0.9999);
}
