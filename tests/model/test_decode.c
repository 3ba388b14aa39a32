#include "base/must.h"
#include "model/files/config.h"
#include "tests/model/shapes.h"
#include "tests/model/tiny.h"

#include <criterion/criterion.h>

#include <math.h>

static const char *const families[] = {"gpt2",   "llama",   "qwen3", "olmo2",
                                       "gemma2", "granite", "phi3",  "smollm3"};
enum { FAMILIES = sizeof families / sizeof families[0] };
static const char *const fixtures[] = {
        "gemma",   "gemma2",         "gemma3", "gemma3_text", "glm4",
        "gpt2",    "granite",        "llama",  "llama_odd",   "ministral3",
        "mistral", "mistral_window", "olmo2",  "phi3",        "qwen2",
        "qwen3",   "qwen3_yarn",     "smollm3"};

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
    float logits[64];
    for (int f = 0; f < FAMILIES; f++)
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
            tiny_init(&t, families[f], NULL, &shape, tiny_plain(DTYPE_FP32));
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
                struct decode_run run = {.past = past, .count = count};
                tiny_must(model_decode(
                        t.model, tokens.tokens + past, &run, 1, &t.hooks,
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

enum { TEXTS = 3, ROOM = 20 };

static void logits_of(
        struct tiny *t, const struct tokens *tokens, struct decode_run run,
        int from, float *logits)
{
    tiny_must(model_decode(
            t->model, tokens->tokens + from + run.past, &run, 1, &t->hooks,
            logits));
}

/* Texts of unlike lengths, a token of each at a time, one of them begun anew
 * amid the others, against each on its own in the first place. */
Test(model_decode, texts_side_by_side_are_as_each_alone)
{
    static const int lengths[TEXTS] = {3, 7, 5};
    float alone[64], both[TEXTS][64];
    for (int f = 0; f < FAMILIES; f++) {
        struct tokens tokens;
        struct tiny t;
        struct decode_run runs[TEXTS];
        int32_t next[TEXTS];
        struct model_shape shape = {
                .T = ROOM,
                .dtype = DTYPE_FP32,
                .decode_capacity = ROOM,
                .decode_batch = 8,
                .decode_texts = TEXTS,
        };
        tiny_init(&t, families[f], NULL, &shape, tiny_plain(DTYPE_FP32));
        int V = t.config.vocab_size;
        cr_assert(V <= 64);
        tokens_fill(&tokens, 9, TEXTS, ROOM, V);
        for (int i = 0; i < TEXTS; i++) {
            runs[i] = (struct decode_run){.text = i, .count = lengths[i]};
            logits_of(&t, &tokens, runs[i], i * ROOM, both[i]);
            runs[i].past = lengths[i];
            runs[i].count = 1;
        }
        for (int step = 0; step < 10; step++) {
            if (step == 4) { /* the second text begins again */
                runs[1] = (struct decode_run){.text = 1, .count = 2};
                logits_of(&t, &tokens, runs[1], ROOM, both[1]);
                runs[1].past = 2;
                runs[1].count = 1;
            }
            for (int i = 0; i < TEXTS; i++)
                next[i] = tokens.tokens[i * ROOM + runs[i].past];
            tiny_must(model_decode(
                    t.model, next, runs, TEXTS, &t.hooks, both[0]));
            for (int i = 0; i < TEXTS; i++)
                runs[i].past++;
            /* rows are V apart */
            for (int i = TEXTS - 1; i > 0; i--)
                memmove(both[i], both[0] + i * V, (size_t)V * sizeof(float));
        }
        for (int i = 0; i < TEXTS; i++) {
            for (int past = 0; past < runs[i].past; past++)
                logits_of(
                        &t, &tokens,
                        (struct decode_run){.past = past, .count = 1}, i * ROOM,
                        alone);
            cr_expect_arr_eq(
                    both[i], alone, (size_t)V * sizeof(float),
                    "family %d, text %d of %d tokens", f, i, runs[i].past);
        }
        tiny_fini(&t);
    }
}

/* Numbers of an array in expected.json. */
static int read_ids(const json_t *array, int32_t *ids, int max)
{
    JSON_EACH_AT(i, id, array)
        if ((int)i < max)
            ids[i] = (int32_t)json_integer_value(id);
    return (int)json_array_size(array);
}

static void check_fixture(const char *name)
{
    char dir[4096], path[4096];
    int32_t ids[256], expected[NEW];
    json_t *json;
    struct tiny t;
    struct model_shape shape = {
            .dtype = DTYPE_FP32,
            .decode_capacity = 256,
            .decode_batch = 128,
    };
    ZD_PRINT(dir, "%s/%s/model", getenv("ZEROD_FIXTURES"), name);
    ZD_PRINT(path, "%s/%s/expected.json", getenv("ZEROD_FIXTURES"), name);
    tiny_must(json_parse_file(path, 1 << 24, &json));
    const json_t *generate = json_object_get(json, "generate");
    int past = 0;
    int count = read_ids(json_object_get(generate, "prompt_ids"), ids, 128);
    int length = read_ids(json_object_get(generate, "ids"), expected, NEW);
    cr_assert(count > 0 && length > 0 && length <= NEW);
    json_decref(json);

    tiny_must(model_config_read(dir, false, &t.config));
    if (t.config.max_positions < shape.decode_capacity)
        shape.decode_capacity = t.config.max_positions;
    model_config_fini(&t.config);
    tiny_open(&t, dir, &shape, tiny_plain(DTYPE_FP32));
    ZD_FREED float *logits =
            malloc((size_t)t.config.vocab_size * sizeof *logits);
    for (int i = 0; i < length; i++) {
        int best = 0;
        struct decode_run run = {.past = past, .count = count};
        tiny_must(model_decode(t.model, ids, &run, 1, &t.hooks, logits));
        past += count;
        count = 1;
        for (int v = 1; v < t.config.vocab_size; v++)
            best = logits[v] > logits[best] ? v : best;
        cr_assert_eq(best, expected[i], "%s: token %d", name, i);
        ids[0] = best;
    }
    tiny_fini(&t);
}

Test(model_decode, greedy_text_is_that_of_transformers)
{
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++)
        check_fixture(fixtures[i]);
}

Test(model_decode, more_positions_than_gpt2_has_learned_are_refused)
{
    struct tiny t;
    struct model_shape shape = {
            .dtype = DTYPE_FP32, .decode_capacity = 41, .decode_batch = 1};
    tiny_table(&t, "gpt2", NULL);
    arena_plan_init(&t.plan);
    cr_expect(
            model_plan(&t.config, &t.table, &shape, &t.plan) == ZD_ERR_CONFIG);
    tiny_fini(&t);
}
