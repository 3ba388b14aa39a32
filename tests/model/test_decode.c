#include "tests/model/shapes.h"
#include "tests/model/tiny.h"

#include <criterion/criterion.h>

#include <math.h>

static const char *const families[] = {SHAPE_GPT2, SHAPE_LLAMA, SHAPE_QWEN3};
static const char *const fixtures[] = {"gpt2",    "llama", "llama_odd",
                                       "mistral", "qwen2", "qwen3"};

enum { T = 12, NEW = 64 };

/* The loss that the logits of one position give to a target. */
static double loss_of(const float *logits, int V, int target)
{
    double top = -INFINITY, sum = 0.0;
    for (int v = 0; v < V; v++)
        top = fmax(top, logits[v]);
    for (int v = 0; v < V; v++)
        sum += exp(logits[v] - top);
    return top + log(sum) - logits[target];
}

Test(model_decode, agrees_with_the_whole_forward_pass)
{
    const struct kernels *kernels;
    float logits[64];
    tiny_must(kernels_plain(DTYPE_FP32, &kernels));
    for (int f = 0; f < 3; f++)
        for (int piece = 1; piece <= 5; piece += 4) {
            struct tokens tokens;
            struct tiny t;
            struct model_shape shape = {
                    .T = T,
                    .eval_B = 1,
                    .dtype = DTYPE_FP32,
                    .decode_capacity = T,
                    .decode_batch = 5,
            };
            double sum = 0.0;
            tiny_init(&t, families[f], NULL, &shape, kernels);
            tokens_fill(&tokens, 9, 1, T, t.config.vocab_size);
            for (int i = 0; i < T; i++) {
                tokens.doc_start[i] = 0;
                if ((i + 1) % piece != 0 && i + 1 != T)
                    tokens.targets[i] = -1;
                else if (tokens.targets[i] < 0)
                    tokens.targets[i] = 1;
            }
            double whole = tiny_evaluate(&t, &tokens.batch);
            for (int past = 0; past < T; past += piece) {
                int count = T - past < piece ? T - past : piece;
                tiny_must(model_decode(
                        t.model, tokens.tokens + past, count, past, &t.hooks,
                        logits));
                sum +=
                        loss_of(logits, t.config.vocab_size,
                                tokens.targets[past + count - 1]);
            }
            cr_expect(
                    fabs(sum / whole - 1.0) < 1e-5,
                    "family %d in pieces of %d: %.9g, not %.9g", f, piece, sum,
                    whole);
            tiny_fini(&t);
        }
}

/* Numbers of an array in expected.json. */
static int read_ids(const json_t *array, int32_t *ids, int max)
{
    size_t i;
    const json_t *id;
    json_array_foreach(array, i, id) if ((int)i < max) ids[i] =
            (int32_t)json_integer_value(id);
    return (int)json_array_size(array);
}

static void check_fixture(const char *name)
{
    const struct kernels *kernels;
    char dir[4096], path[4096];
    int32_t ids[256], expected[NEW];
    json_t *json;
    struct tiny t;
    struct model_shape shape = {
            .dtype = DTYPE_FP32,
            .decode_capacity = 256,
            .decode_batch = 128,
    };
    snprintf(dir, sizeof dir, "%s/%s/model", getenv("ZEROD_FIXTURES"), name);
    snprintf(
            path, sizeof path, "%s/%s/expected.json", getenv("ZEROD_FIXTURES"),
            name);
    tiny_must(json_parse_file(path, 1 << 24, &json));
    const json_t *generate = json_object_get(json, "generate");
    int past = 0;
    int count = read_ids(json_object_get(generate, "prompt_ids"), ids, 128);
    int length = read_ids(json_object_get(generate, "ids"), expected, NEW);
    cr_assert(count > 0 && length > 0 && length <= NEW);
    json_decref(json);

    tiny_must(kernels_plain(DTYPE_FP32, &kernels));
    tiny_must(model_config_read(dir, &t.config));
    if (t.config.max_positions < shape.decode_capacity)
        shape.decode_capacity = t.config.max_positions;
    model_config_fini(&t.config);
    tiny_open(&t, dir, &shape, kernels);
    float *logits = malloc((size_t)t.config.vocab_size * sizeof *logits);
    for (int i = 0; i < length; i++) {
        int best = 0;
        tiny_must(model_decode(t.model, ids, count, past, &t.hooks, logits));
        past += count;
        count = 1;
        for (int v = 1; v < t.config.vocab_size; v++)
            best = logits[v] > logits[best] ? v : best;
        cr_assert_eq(best, expected[i], "%s: token %d", name, i);
        ids[0] = best;
    }
    free(logits);
    tiny_fini(&t);
}

Test(model_decode, greedy_text_is_that_of_transformers)
{
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++)
        check_fixture(fixtures[i]);
}

Test(model_decode, more_positions_than_gpt2_has_learned_are_refused)
{
    struct model_config config;
    struct param_table table;
    struct arena_plan plan;
    struct model_shape shape = {
            .dtype = DTYPE_FP32, .decode_capacity = 41, .decode_batch = 1};
    tiny_config(SHAPE_GPT2, &config);
    tiny_must(param_table_build(&config, NULL, 0, &table));
    arena_plan_init(&plan);
    cr_expect(model_plan(&config, &table, &shape, &plan) == ZD_ERR_CONFIG);
    arena_plan_fini(&plan);
    param_table_fini(&table);
    model_config_fini(&config);
}
