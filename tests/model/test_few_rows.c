/* How a quantized weight is multiplied by: a decode step of one or two tokens
 * reads the quantized values, everything else dequantizes first. Both make the
 * same logits. */
#include "model/quantized/codes.h"
#include "tests/model/shapes.h"
#include "tests/model/tiny.h"

#include <criterion/criterion.h>

#include <math.h>

enum { T = 12, PIECE = 4, VOCAB = 64 };

/* --- a table that counts -------------------------------------------------- */

static struct {
    int rows, decoded;
} called;
static const struct kernels *real;

static enum zd_status count_rows(
        struct stream *stream, void *out, int64_t stride, const void *a,
        const void *codes, const void *scales,
        const struct quant_matrix *matrix, const void *bias, int M)
{
    called.rows++;
    return real->codes_rows(
            stream, out, stride, a, codes, scales, matrix, bias, M);
}

static enum zd_status count_decoded(
        struct stream *stream, void *out, const void *codes, const void *scales,
        const struct quant_matrix *matrix)
{
    called.decoded++;
    return real->dequantize(stream, out, codes, scales, matrix);
}

/* --- a model whose layers are quantized ------------------------------------
 */

struct coded {
    struct tiny tiny;
    struct kernels kernels;
    struct model_hooks of_replica;
    struct codes_whole *weights; /* (table.count) */
    int count;                   /* of quantized weights */
};

static void make_codes(struct coded *m, const struct weight_source *source)
{
    const struct param_table *table = &m->tiny.table;
    m->weights = calloc((size_t)table->count, sizeof *m->weights);
    for (int id = 0; id < table->count; id++)
        if (param_is_quantized(table, id)) {
            tiny_must(codes_make_whole(
                    source, table, id, &table->codes[id], &m->weights[id]));
            m->count++;
        }
}

static enum zd_status acquire(void *ctx, int unit, const void **params)
{
    struct coded *m = ctx;
    const struct param_table *table = &m->tiny.table;
    ZD_TRY(m->of_replica.params_acquire(m->of_replica.ctx, unit, params));
    for (int id = table->unit_first[unit]; id < table->unit_first[unit + 1];
         id++)
        if (param_is_quantized(table, id)) {
            params[id] = m->weights[id].codes;
            params[param_scales(table, id)] = m->weights[id].scales;
        }
    return ZD_OK;
}

static enum zd_status release(void *ctx, int unit)
{
    struct coded *m = ctx;
    return m->of_replica.params_release(m->of_replica.ctx, unit);
}

/* Adapters on the modules that `target` names. */
static void setup(
        struct coded *m, const char *shape, const char *target,
        enum lora_base base)
{
    struct lora_options options = lora_options_default();
    struct model_shape of = {
            .T = T,
            .eval_B = 1,
            .dtype = DTYPE_FP32,
            .decode_capacity = T,
            .decode_batch = PIECE,
    };
    struct weight_source source;
    struct tiny *t = &m->tiny;
    memset(m, 0, sizeof *m);
    real = tiny_plain(DTYPE_FP32);
    m->kernels = *real;
    m->kernels.codes_rows = count_rows;
    m->kernels.dequantize = count_decoded;
    options.r = 2;
    options.quantize_base = base;
    options.target_modules = json_string(target);
    tiny_table(t, shape, NULL);
    tiny_adapt(t, &options);
    tiny_must(lora_quantize(&t->config, &options, NULL, &t->table));
    tiny_build_random(t, &of, &m->kernels);
    tiny_must(weights_open_random(7, &t->table, &source));
    make_codes(m, &source);
    weights_close(&source);
    m->of_replica = t->hooks;
    t->hooks.ctx = m;
    t->hooks.params_acquire = acquire;
    t->hooks.params_release = release;
    json_decref(options.target_modules);
}

static void teardown(struct coded *m)
{
    for (int id = 0; id < m->tiny.table.count; id++)
        codes_whole_fini(&m->weights[id]);
    free(m->weights);
    tiny_fini(&m->tiny);
}

/* The last logits of T tokens, so many at a time; each weight is multiplied
 * once a call, one way or the other. */
static void decode(
        struct coded *m, const struct tokens *tokens, int piece, float *logits)
{
    bool few = piece <= 2;
    for (int past = 0; past < T; past += piece) {
        memset(&called, 0, sizeof called);
        tiny_must(model_decode(
                m->tiny.model, tokens->tokens + past,
                &(struct decode_run){.past = past, .count = piece}, 1,
                &m->tiny.hooks, logits));
        cr_expect_eq(
                called.rows, few ? m->count : 0,
                "%d of %d weights not dequantized, %d tokens at a time",
                called.rows, m->count, piece);
        cr_expect_eq(
                called.decoded, few ? 0 : m->count,
                "%d of %d weights decoded, %d tokens at a time", called.decoded,
                m->count, piece);
    }
}

static void compare(
        const char *shape, const char *target, int weights, enum lora_base base)
{
    static const int pieces[] = {4, 3, 2, 1};
    struct coded m;
    struct tokens tokens;
    float want[VOCAB], got[VOCAB];
    setup(&m, shape, target, base);
    cr_assert_eq(m.count, weights * m.tiny.config.layers);
    tokens_fill(&tokens, 9, 1, T, m.tiny.config.vocab_size);
    for (int i = 0; i < 4; i++) {
        decode(&m, &tokens, pieces[i], i ? got : want);
        for (int v = 0; i && v < m.tiny.config.vocab_size; v++)
            cr_expect(
                    fabsf(got[v] - want[v]) <= 1e-4f,
                    "%d at a time: logit %d is %.7f, not %.7f", pieces[i], v,
                    (double)got[v], (double)want[v]);
    }
    teardown(&m);
}

Test(few_rows, decode_steps_multiply_without_dequantizing)
{
    for (int base = LORA_BASE_NF4; base <= LORA_BASE_FP8; base++) {
        compare("llama", "all-linear", 7, (enum lora_base)base);
        compare("qwen3", "all-linear", 7, (enum lora_base)base);
        compare("gpt2", "all-linear", 4, (enum lora_base)base);
        /* fc and its gelu are one pass where fc has no adapter */
        compare("gpt2", ".*c_attn", 4, (enum lora_base)base);
    }
}

/* A pass has its weights decoded whatever its rows: its bits do not depend on
 * how many samples there are. */
Test(few_rows, passes_dequantize_first)
{
    struct coded m;
    struct tokens tokens;
    setup(&m, "llama", "all-linear", LORA_BASE_NF4);
    tokens_fill(&tokens, 9, 1, 2, m.tiny.config.vocab_size);
    memset(&called, 0, sizeof called);
    tiny_evaluate(&m.tiny, &tokens.batch);
    cr_expect_eq(called.rows, 0);
    cr_expect_eq(called.decoded, m.count);
    teardown(&m);
}
