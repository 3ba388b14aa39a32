/* What runs for adapters, and what they drop: backward stops at the first of
 * them; what dropout keeps depends on the seed, the step, the sample and the
 * module. On the CPU's plain tables. */
#include "tests/model/shapes.h"
#include "tests/model/tiny.h"

#include <criterion/criterion.h>

#include <math.h>

enum { B = 2, T = 11, LAYERS = 5 };

/* --- an adapted model ----------------------------------------------------- */

static struct {
    struct model_hooks of_replica;
    int products, fetched, grads, lowest_unit, keys;
    uint64_t key[64]; /* of dropout, in the order of the calls */
} seen;
static const struct kernels *real;

static enum zd_status count_matmul(
        struct stream *stream, const struct matmul *m)
{
    seen.products++;
    return real->matmul(stream, m);
}

static enum zd_status note_key(
        struct stream *stream, void *out, int64_t out_stride, const void *x,
        int N, int C, float scale, const struct dropout *dropout, bool add)
{
    if (dropout->threshold && seen.keys < 64)
        seen.key[seen.keys++] = dropout->key;
    return real->scale_rows(
            stream, out, out_stride, x, N, C, scale, dropout, add);
}

static enum zd_status fetch(void *ctx, int unit, const void **params)
{
    seen.fetched++;
    return seen.of_replica.params_acquire(ctx, unit, params);
}

static enum zd_status take_grads(
        void *ctx, int unit, void **grads, bool *accumulate_out)
{
    seen.grads++;
    seen.lowest_unit = unit < seen.lowest_unit ? unit : seen.lowest_unit;
    return seen.of_replica.grads_acquire(ctx, unit, grads, accumulate_out);
}

struct adapted {
    struct tiny tiny;
    struct kernels kernels;
};

/* The second factor begins with zeros, and all of an adapter with it. */
static void fill_second_factors(struct tiny *t)
{
    for (int id = 0; id < t->table.count; id++) {
        float *w = replicated_param(t->replica, id);
        if (t->table.params[id].part == PARAM_LORA_B)
            for (size_t i = 0; i < t->table.params[id].count; i++)
                rng_normal(5, (uint64_t)id, i, 1, &w[i]);
    }
}

/* Adapters on the modules of `targets` (JSON), in layers from `first`. */
static void setup(
        struct adapted *m, const char *config, const char *targets, int first,
        double dropout, uint64_t seed)
{
    struct tiny *t = &m->tiny;
    struct lora_options options = lora_options_default();
    struct model_shape shape =
            tiny_shape(B, T, (struct checkpointing){CHECKPOINTING_NONE, 0});
    shape.dropout = dropout;
    shape.seed = seed;
    memset(m, 0, sizeof *m);
    real = tiny_plain(DTYPE_FP32);
    m->kernels = *real;
    m->kernels.matmul = count_matmul;
    m->kernels.scale_rows = note_key;
    options.r = 2;
    options.target_modules = json_loads(targets, JSON_DECODE_ANY, NULL);
    options.layers_to_transform = json_array();
    for (int layer = first; layer < LAYERS; layer++)
        json_array_append_new(options.layers_to_transform, json_integer(layer));
    tiny_table(t, config, NULL);
    tiny_adapt(t, &options);
    tiny_build_random(t, &shape, &m->kernels);
    fill_second_factors(t);
    json_decref(options.target_modules);
    json_decref(options.layers_to_transform);
}

/* The loss of one micro-batch of samples `first` .. of the run. */
static double step(
        struct adapted *m, const struct model_batch *samples, int64_t number,
        int64_t first)
{
    struct model_batch batch = *samples;
    batch.step = number;
    batch.first_sample = first;
    memset(&seen, 0, sizeof seen);
    seen.of_replica = tiny_hooks(&m->tiny);
    seen.lowest_unit = 99;
    m->tiny.hooks = seen.of_replica;
    m->tiny.hooks.params_acquire = fetch;
    m->tiny.hooks.grads_acquire = take_grads;
    return tiny_step(&m->tiny, &batch, 1.0f);
}

/* --- below the first adapter ---------------------------------------------- */

/* Products of a micro-batch whose adapters begin with layer `first`. */
static int products_from(const char *config, const char *target, int first)
{
    struct adapted m;
    struct tokens tokens;
    setup(&m, config, target, first, 0, 1);
    tokens_fill(&tokens, 3, B, T, m.tiny.config.vocab_size);
    step(&m, &tokens.batch, 1, 0);
    int products = seen.products;
    cr_expect_eq(
            seen.grads, LAYERS - first, "adapters from layer %d: %d units",
            first, seen.grads);
    cr_expect_eq(seen.lowest_unit, first + 1, "unit %d", seen.lowest_unit);
    /* embedding, layers and head, whose weight a tied embedding is; going back,
     * the layers again that have adapters or lie above them */
    cr_expect_eq(
            seen.fetched, LAYERS + 2 + m.tiny.config.tied + LAYERS - first,
            "from layer %d: %d units fetched", first, seen.fetched);
    tiny_fini(&m.tiny);
    return products;
}

/* What a layer's adapters cost: of each two products forward and four back; and
 * the gradients of what the layer's weights read. */
Test(adapted, backward_stops_at_the_first_adapter)
{
    static const struct {
        const char *config, *target;
        int weights, adapters; /* of a layer */
    } cases[] = {
            {"llama", "\"all-linear\"", 7, 7},
            {"qwen3", "\"all-linear\"", 7, 7},
            {"gpt2", "\"all-linear\"", 4, 4},
            {"llama", "[\"q_proj\",\"v_proj\"]", 7, 2},
    };
    for (int c = 0; c < 4; c++) {
        int before = products_from(cases[c].config, cases[c].target, 0);
        for (int first = 1; first < LAYERS; first++) {
            int products =
                    products_from(cases[c].config, cases[c].target, first);
            cr_expect_eq(
                    before - products, cases[c].weights + 6 * cases[c].adapters,
                    "%s from layer %d: %d products less", cases[c].target,
                    first, before - products);
            before = products;
        }
    }
}

/* --- dropout -------------------------------------------------------------- */

static void expect_keys(
        const struct adapted *m, const uint64_t *key, int keys, bool same)
{
    cr_expect_eq(seen.keys, keys);
    for (int i = 0; i < keys; i++)
        cr_expect_eq(seen.key[i] == key[i], same, "call %d", i);
}

/* Adapters and data stay; only what is named differs. */
Test(adapted, dropout_depends_on_seed_step_and_sample)
{
    struct adapted m, other;
    struct tokens tokens;
    uint64_t key[64];
    setup(&m, "llama", "[\"down_proj\"]", 0, 0.25, 1);
    setup(&other, "llama", "[\"down_proj\"]", 0, 0.25, 2);
    tokens_fill(&tokens, 3, B, T, m.tiny.config.vocab_size);
    double loss = step(&m, &tokens.batch, 1, 0);
    int keys = seen.keys;
    memcpy(key, seen.key, sizeof key);
    cr_expect_eq(keys, 3 * LAYERS, "%d: forward, and twice back", keys);
    cr_expect(step(&m, &tokens.batch, 1, 0) == loss, "the same again");
    expect_keys(&m, key, keys, true);
    cr_expect(
            fabs(step(&m, &tokens.batch, 2, 0) / loss - 1) > 1e-4,
            "another step drops others");
    expect_keys(&m, key, keys, false);
    cr_expect(
            fabs(step(&m, &tokens.batch, 1, 5) / loss - 1) > 1e-4,
            "other samples drop others");
    expect_keys(&m, key, keys, true);
    cr_expect(
            fabs(step(&other, &tokens.batch, 1, 0) / loss - 1) > 1e-4,
            "another seed drops others");
    expect_keys(&other, key, keys, false);
    tiny_fini(&m.tiny);
    tiny_fini(&other.tiny);
}

/* Of modules and layers no two drop the same; forward and backward do. */
Test(adapted, dropout_depends_on_the_module)
{
    struct adapted m;
    struct tokens tokens;
    int distinct = 0;
    setup(&m, "llama", "[\"gate_proj\",\"up_proj\",\"down_proj\"]", 2, 0.25, 1);
    tokens_fill(&tokens, 3, B, T, m.tiny.config.vocab_size);
    step(&m, &tokens.batch, 1, 0);
    for (int i = 0; i < seen.keys; i++) {
        int before = 0;
        for (int j = 0; j < i; j++)
            before += seen.key[j] == seen.key[i];
        distinct += before == 0;
    }
    cr_expect_eq(distinct, 3 * (LAYERS - 2), "%d keys", distinct);
    cr_expect_eq(seen.keys, 3 * distinct, "%d calls", seen.keys);
    tiny_fini(&m.tiny);
}

/* A sample of a batch drops what it drops alone, and with less padding. */
Test(adapted, dropout_of_a_sample_does_not_depend_on_the_batch)
{
    struct adapted m;
    struct tokens tokens, narrow;
    double parts = 0;
    setup(&m, "qwen3", "\"all-linear\"", 0, 0.25, 1);
    tokens_fill(&tokens, 3, B, T, m.tiny.config.vocab_size);
    double both = step(&m, &tokens.batch, 4, 6);
    for (int i = 0; i < B; i++) {
        struct model_batch one = {
                tokens.tokens + i * T, tokens.targets + i * T,
                tokens.doc_start + i * T, 1, T};
        parts += step(&m, &one, 4, 6 + i);
    }
    cr_expect(fabs(both / parts - 1) < 1e-6, "%.9g, not %.9g", both, parts);
    tokens_narrow(&narrow, &tokens, 3);
    cr_expect(step(&m, &tokens.batch, 4, 6) == step(&m, &narrow.batch, 4, 6));
    tiny_fini(&m.tiny);
}
