/* Projections made by one matmul: the same as by separate ones but for the
 * order of sums, with fewer operations. On the CPU's tables. */
#include "tests/model/shapes.h"
#include "tests/model/tiny.h"

#include <criterion/criterion.h>

#include <math.h>

enum { B = 2, T = 11, LAYERS = 5, BOTH = JOIN_QKV | JOIN_GATE_UP };

static const char *const shapes[] = {"llama", "qwen2", "qwen3"};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* --- a table that counts -------------------------------------------------- */

static struct {
    int products, ropes, adds;
} called;
static const struct kernels *real;
static int pieces; /* of the MLP, where projections are joined */

static enum zd_status count_matmul(
        struct stream *stream, const struct matmul *m)
{
    called.products++;
    return real->matmul(stream, m);
}

static enum zd_status count_rope(
        struct stream *stream, void *x, const struct rope_angles *angles, int N,
        int H, int D, int64_t row_stride, bool backward)
{
    called.ropes++;
    return real->rope(stream, x, angles, N, H, D, row_stride, backward);
}

static enum zd_status count_add(
        struct stream *stream, void *out, const void *a, const void *b,
        size_t count)
{
    called.adds++;
    return real->add(stream, out, a, b, count);
}

static struct kernels counting_table(enum dtype dtype)
{
    real = tiny_plain(dtype);
    struct kernels table = *real;
    table.matmul = count_matmul;
    table.rope = count_rope;
    table.add = count_add;
    memset(&called, 0, sizeof called);
    return table;
}

/* --- two micro-batches, joined or not ------------------------------------- */

struct run {
    struct kernels kernels;
    struct tiny tiny;
    struct tokens tokens;
    double loss, evaluated;
};

/* With adapters on some modules. */
static void adapted_init(
        struct tiny *t, const char *config, const char *adapters,
        const struct model_shape *shape, const struct kernels *kernels)
{
    struct lora_options options = lora_options_default();
    options.r = 3;
    options.target_modules = json_string(adapters);
    tiny_table(t, config, NULL);
    tiny_adapt(t, &options);
    tiny_build_random(t, shape, kernels);
    json_decref(options.target_modules);
}

static void run_init(
        struct run *r, const char *config, const char *freeze,
        const char *adapters, enum dtype dtype, enum checkpointing_mode mode,
        unsigned joined)
{
    struct model_shape shape =
            tiny_shape(B, T, (struct checkpointing){mode, 2});
    shape.dtype = dtype;
    shape.head_chunk = 5;
    shape.decode_capacity = 24;
    shape.decode_batch = 7;
    shape.joined = joined;
    shape.mlp_pieces = joined ? pieces : 0;
    r->kernels = counting_table(dtype);
    if (adapters)
        adapted_init(&r->tiny, config, adapters, &shape, &r->kernels);
    else
        tiny_init(&r->tiny, config, freeze, &shape, &r->kernels);
    tiny_add_noise(&r->tiny);
    tokens_fill(&r->tokens, 3, B, T, r->tiny.config.vocab_size);
}

static void run_steps(struct run *r, int micros)
{
    r->evaluated = tiny_evaluate(&r->tiny, &r->tokens.batch);
    memset(&called, 0, sizeof called);
    for (int i = 0; i < micros; i++)
        r->loss = tiny_step(&r->tiny, &r->tokens.batch, 1.0f);
}

/* By norm, of each tensor. */
static void expect_near(const struct run *a, const struct run *b, double limit)
{
    const struct param_table *table = &a->tiny.table;
    cr_expect(fabs(a->loss / b->loss - 1.0) < limit);
    cr_expect(fabs(a->evaluated / b->evaluated - 1.0) < limit);
    for (int id = 0; id < table->count; id++) {
        const float *x = tiny_grad(&a->tiny, id);
        const float *y = tiny_grad(&b->tiny, id);
        double apart = 0.0, norm = 0.0;
        for (size_t i = 0; x && i < table->params[id].count; i++) {
            apart += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
            norm += (double)y[i] * y[i];
        }
        cr_expect(
                sqrt(apart) <= limit * sqrt(norm), "%s: %g of %g apart",
                table->params[id].name, sqrt(apart), sqrt(norm));
    }
}

static void compare(
        const char *config, const char *freeze, const char *adapters,
        enum dtype dtype, enum checkpointing_mode mode, unsigned joined,
        double limit)
{
    struct run one, apart;
    run_init(&apart, config, freeze, adapters, dtype, mode, 0);
    run_steps(&apart, 2);
    run_init(&one, config, freeze, adapters, dtype, mode, joined);
    run_steps(&one, 2);
    expect_near(&one, &apart, limit);
    tiny_fini(&one.tiny);
    tiny_fini(&apart.tiny);
}

Test(model_joined, gradients_equal_those_of_separate_matmuls)
{
    static const enum checkpointing_mode modes[] = {
            CHECKPOINTING_NONE, CHECKPOINTING_EVERY, CHECKPOINTING_FULL};
    for (int s = 0; s < SHAPES; s++)
        for (unsigned joined = 1; joined <= BOTH; joined++)
            compare(shapes[s], NULL, NULL, DTYPE_FP32, modes[(s + joined) % 3],
                    joined, 2e-5);
}

Test(model_joined, gate_and_up_of_pieces_are_joined_too)
{
    pieces = 4;
    for (int s = 0; s < SHAPES; s++)
        for (int adapted = 0; adapted < 2; adapted++)
            compare(shapes[s], NULL, adapted ? "all-linear" : NULL, DTYPE_FP32,
                    s ? CHECKPOINTING_FULL : CHECKPOINTING_SELECTIVE, BOTH,
                    2e-5);
}

/* Separate matmuls round twice more on the way to dx. */
Test(model_joined, bf16_gradients_differ_by_rounding_only)
{
    for (int s = 0; s < SHAPES; s++)
        compare(shapes[s], NULL, NULL, DTYPE_BF16, CHECKPOINTING_NONE, BOTH,
                3e-2);
}

/* Of q, k, v, gate and up all have an adapter, or some. */
Test(model_joined, adapters_equal_those_of_separate_matmuls)
{
    static const char *const adapters[] = {
            "all-linear", ".*(q|v)_proj", ".*(k|up)_proj", ".*o_proj"};
    for (int s = 0; s < SHAPES; s++)
        for (int a = 0; a < 4; a++)
            compare(shapes[s], NULL, adapters[a], DTYPE_FP32,
                    a % 2 ? CHECKPOINTING_FULL : CHECKPOINTING_NONE, BOTH,
                    2e-5);
}

Test(model_joined, bf16_adapters_differ_by_rounding_only)
{
    for (int s = 0; s < SHAPES; s++)
        compare(shapes[s], NULL, "all-linear", DTYPE_BF16, CHECKPOINTING_NONE,
                BOTH, 8e-2);
}

Test(model_joined, frozen_projections_have_no_gradient)
{
    static const char *const freeze[] = {
            "*_proj.weight", "*self_attn*", "*mlp*", "*_proj.bias"};
    for (int i = 0; i < 4; i++)
        compare("llama", freeze[i], NULL, DTYPE_FP32, CHECKPOINTING_NONE, BOTH,
                2e-5);
}

/* Separate and joined, in bf16 or fp32. */
static void pair_init(struct run pair[2], const char *shape, enum dtype dtype)
{
    for (unsigned i = 0; i < 2; i++)
        run_init(
                &pair[i], shape, NULL, NULL, dtype, CHECKPOINTING_NONE,
                i ? BOTH : 0);
}

static void pair_fini(struct run pair[2])
{
    tiny_fini(&pair[0].tiny);
    tiny_fini(&pair[1].tiny);
}

Test(model_joined, decoding_gives_the_same_logits)
{
    for (int s = 0; s < SHAPES; s++) {
        struct run pair[2];
        float logits[2][40];
        pair_init(pair, shapes[s], DTYPE_FP32);
        for (int i = 0; i < 2; i++)
            for (int past = 0; past < 20; past += 5)
                tiny_must(model_decode(
                        pair[i].tiny.model, pair[i].tokens.tokens + past,
                        &(struct decode_run){.past = past, .count = 5}, 1,
                        &pair[i].tiny.hooks, logits[i]));
        for (int v = 0; v < pair[0].tiny.config.vocab_size; v++)
            cr_expect(fabsf(logits[0][v] - logits[1][v]) < 1e-5f);
        pair_fini(pair);
    }
}

/* Of a layer: q, k, v, gate and up are two products and not five, forward and
 * for each of the two gradients; q and k are rotated together; nothing is added
 * up. */
Test(model_joined, a_layer_has_fewer_operations)
{
    for (int s = 0; s < SHAPES; s++) {
        struct run pair[2];
        pair_init(pair, shapes[s], DTYPE_BF16);
        run_steps(&pair[0], 1);
        int products = called.products, ropes = called.ropes;
        int adds = called.adds;
        run_steps(&pair[1], 1);
        cr_expect_eq(products - called.products, LAYERS * 3 * 3);
        cr_expect_eq(ropes - called.ropes, LAYERS * 2);
        cr_expect_eq(adds - called.adds, LAYERS * 3);
        pair_fini(pair);
    }
}

static size_t planned(const char *text, unsigned joined)
{
    struct tiny t;
    struct model_shape shape = {
            .B = 1,
            .T = 1024,
            .checkpointing = {CHECKPOINTING_FULL, 0},
            .dtype = DTYPE_BF16,
            .joined = joined,
            .train = true,
    };
    tiny_plan(&t, text, NULL, &shape);
    size_t bytes = arena_plan_find(&t.plan, "model.activations")->bytes;
    tiny_fini(&t);
    return bytes;
}

Test(model_joined, no_more_memory_is_planned)
{
    static const char *const large[] = {"llama_wide", "qwen3_wide"};
    for (int i = 0; i < 2; i++)
        cr_expect_leq(planned(large[i], BOTH), planned(large[i], 0));
}
