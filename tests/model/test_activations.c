#include "tests/model/shapes.h"
#include "tests/model/tiny.h"

#include <criterion/criterion.h>

enum { B = 2, T = 40 };

static size_t planned_of(
        const char *text, const char *freeze, const struct model_shape *shape)
{
    struct tiny t;
    tiny_plan(&t, text, freeze, shape);
    size_t bytes =
            arena_plan_kind_bytes(&t.plan, ARENA_DEVICE, SPAN_ACTIVATIONS);
    tiny_fini(&t);
    return bytes;
}

/* Planned bytes of activations of a model with that many layers. */
static size_t planned(
        const char *family, int layers, struct checkpointing checkpointing,
        const char *freeze)
{
    char text[400];
    struct model_shape shape = {
            .B = B,
            .T = T,
            .checkpointing = checkpointing,
            .dtype = DTYPE_FP32,
            .train = true,
    };
    bool gpt2 = strcmp(family, "gpt2") == 0;
    snprintf(
            text, sizeof text,
            "{\"model_type\":\"%s\",\"vocab_size\":16,\"%s\":64,\"%s\":%d,"
            "\"%s\":4%s}",
            family, gpt2 ? "n_embd" : "hidden_size",
            gpt2 ? "n_layer" : "num_hidden_layers", layers,
            gpt2 ? "n_head" : "num_attention_heads",
            gpt2 ? ""
                 : ",\"num_key_value_heads\":2,\"head_dim\":16,"
                   "\"intermediate_size\":96");
    return planned_of(text, freeze, &shape);
}

static const char *const families[] = {"gpt2", "llama", "qwen2", "qwen3"};
static const size_t residual = B * T * 64 * sizeof(float);

/* Growth from 4 to 16 layers, and from 16 to 64: in proportion to the layers,
 * an input each, or as the root. */
Test(model_activations, memory_grows_as_the_mode_says)
{
    static const struct checkpointing modes[] = {
            {CHECKPOINTING_NONE, 0},
            {CHECKPOINTING_FULL, 0},
            {CHECKPOINTING_SQRT, 0}};
    static const size_t factors[] = {4, 4, 2};
    for (int f = 0; f < 4; f++)
        for (int m = 0; m < 3; m++) {
            size_t b4 = planned(families[f], 4, modes[m], NULL);
            size_t b16 = planned(families[f], 16, modes[m], NULL);
            size_t b64 = planned(families[f], 64, modes[m], NULL);
            cr_expect_eq(b64 - b16, factors[m] * (b16 - b4));
            if (modes[m].mode == CHECKPOINTING_NONE)
                cr_expect_gt((b16 - b4) / 12, 5 * residual);
            if (modes[m].mode == CHECKPOINTING_FULL)
                cr_expect_eq(b16 - b4, 12 * residual);
        }
}

/* Of a layer: Llama 2C and F less, GPT-2 2C, Qwen3 q and k too. */
Test(model_activations, selective_keeps_outputs_of_matmuls_and_attention)
{
    struct checkpointing none = {CHECKPOINTING_NONE, 0};
    struct checkpointing selective = {CHECKPOINTING_SELECTIVE, 0};
    for (int f = 0; f < 4; f++) {
        size_t all = planned(families[f], 16, none, NULL) -
                     planned(families[f], 4, none, NULL);
        size_t kept = planned(families[f], 16, selective, NULL) -
                      planned(families[f], 4, selective, NULL);
        size_t less = 2 * residual;
        if (f > 0) /* act is 96 wide */
            less += residual * 96 / 64;
        if (f == 3) /* q and k after their norms: 64 and 32 */
            less += residual * 96 / 64;
        cr_expect_eq(all - kept, 12 * less, "%s: %zu", families[f], all - kept);
    }
}

Test(model_activations, segments_keep_an_input_each_and_the_layers_of_one)
{
    for (int f = 0; f < 4; f++) {
        struct checkpointing full = {CHECKPOINTING_FULL, 0};
        struct checkpointing every = {CHECKPOINTING_EVERY, 4};
        size_t b16 = planned(families[f], 16, every, NULL);
        size_t b64 = planned(families[f], 64, every, NULL);
        cr_expect_eq(b64 - b16, 12 * residual);
        /* Against full: 12 inputs fewer, 3 layers more. */
        struct checkpointing none = {CHECKPOINTING_NONE, 0};
        size_t layer = planned(families[f], 5, none, NULL) -
                       planned(families[f], 4, none, NULL);
        cr_expect_eq(
                b16 + 12 * residual,
                planned(families[f], 16, full, NULL) + 3 * layer);
    }
}

Test(model_activations, layers_below_every_trained_tensor_keep_nothing)
{
    struct checkpointing none = {CHECKPOINTING_NONE, 0};
    size_t all = planned("gpt2", 4, none, NULL);
    /* Both tables and every layer: wte, wpe, h.N. */
    size_t head = planned("gpt2", 4, none, "[wh]*");
    cr_expect_lt(head, all / 3);
}

/* A model of one layer whose head is most of it. */
static size_t planned_with_vocabulary(int V, int tokens, int head_chunk)
{
    char text[200];
    struct model_shape shape = {
            .B = 1,
            .T = tokens,
            .dtype = DTYPE_FP32,
            .checkpointing = {CHECKPOINTING_FULL, 0},
            .head_chunk = head_chunk,
            .train = true,
    };
    snprintf(
            text, sizeof text,
            "{\"model_type\":\"gpt2\",\"vocab_size\":%d,\"n_embd\":16,"
            "\"n_layer\":1,\"n_head\":1,\"n_positions\":9999}",
            V);
    return planned_of(text, NULL, &shape);
}

Test(model_activations, logits_exist_for_a_chunk_of_tokens_only)
{
    enum { TOKENS = 4096 };
    size_t row = 50257 * sizeof(float), C = 16 * sizeof(float);
    size_t bytes = planned_with_vocabulary(50257, TOKENS, 0);
    cr_expect_lt(bytes, 512 * row + TOKENS * 4 * C + 520 * 3 * C);
    cr_expect_gt(bytes, 500 * row);
    /* Of a larger vocabulary fewer: 256 MiB of logits. */
    size_t larger = planned_with_vocabulary(500000, TOKENS, 0);
    cr_expect_lt(larger, ((size_t)256 << 20) + TOKENS * 40 * C);
    cr_expect_gt(larger, (size_t)200 << 20);
    /* As many as asked for. */
    bytes = planned_with_vocabulary(50257, TOKENS, 64);
    cr_expect_lt(bytes, 64 * row + TOKENS * 40 * C);
}

/* On a GPU: of a tied head that trains as much as a layer keeps, at most 2 GiB;
 * else 512 MiB. However layers are recomputed. */
Test(model_activations, head_that_trains_has_large_chunks_on_a_gpu)
{
    static const char llama[] = "llama_1b";
    static const struct {
        const char *freeze;
        int B, chunk;
    } rows[] = {{NULL, 8, 8192}, {"*embed*", 8, 2048}, {NULL, 1, 2048}};
    for (int i = 0; i < 6; i++) {
        struct tiny t;
        struct model_shape shape = {
                .B = rows[i / 2].B,
                .T = 4096,
                .dtype = DTYPE_BF16,
                .backend = DEVICE_CUDA,
                .checkpointing =
                        {i % 2 ? CHECKPOINTING_FULL : CHECKPOINTING_NONE},
                .train = true,
        };
        tiny_plan(&t, llama, rows[i / 2].freeze, &shape);
        cr_expect_eq(
                model_head_chunk(&t.config, &t.table, &shape),
                rows[i / 2].chunk);
        tiny_fini(&t);
    }
}

/* While the head runs no segment is alive, and the other way round: the larger
 * of the two is planned. */
Test(model_activations, the_head_and_a_segment_share_bytes)
{
    enum { TOKENS = 512 };
    size_t C = 16 * sizeof(float);
    size_t segment = planned_with_vocabulary(2, TOKENS, 0);
    size_t both = planned_with_vocabulary(1000, TOKENS, 0);
    size_t head = TOKENS * 1000 * sizeof(float);
    cr_expect_lt(both, head + TOKENS * 6 * C);
    cr_expect_gt(segment, TOKENS * 16 * C);
}

/* A step writes nearly all of what was planned for it. */
Test(model_activations, a_step_touches_what_was_planned)
{
    static const char *const shapes[] = {"gpt2",  "llama",  "qwen3",
                                         "olmo2", "gemma2", "granite",
                                         "phi3",  "smollm3"};
    static const struct checkpointing modes[] = {
            {CHECKPOINTING_NONE, 0},
            {CHECKPOINTING_FULL, 0},
            {CHECKPOINTING_EVERY, 2},
    };
    const struct kernels *kernels;
    struct tokens tokens;
    tiny_must(kernels_cpu(DTYPE_FP32, &kernels));
    for (int f = 0; f < (int)(sizeof shapes / sizeof *shapes); f++)
        for (int m = 0; m < 3; m++) {
            struct tiny t;
            struct model_shape shape = {
                    .B = B,
                    .T = T,
                    .checkpointing = modes[m],
                    .dtype = DTYPE_FP32,
                    .train = true,
            };
            tiny_init(&t, shapes[f], NULL, &shape, kernels);
            tokens_fill(&tokens, 1, B, T, t.config.vocab_size);
            unsigned char *span = arena_span(&t.arena, "model.activations");
            size_t bytes = arena_plan_find(&t.plan, "model.activations")->bytes;
            size_t untouched = 0;
            memset(span, 0xa5, bytes);
            tiny_step(&t, &tokens.batch, 1.0f);
            for (size_t i = 0; i + 4 <= bytes; i += 4)
                untouched +=
                        memcmp(span + i, "\xa5\xa5\xa5\xa5", 4) == 0 ? 4 : 0;
            cr_expect_lt(
                    untouched, bytes / 20, "%zu of %zu bytes, %d, mode %d",
                    untouched, bytes, f, m);
            tiny_fini(&t);
        }
}
