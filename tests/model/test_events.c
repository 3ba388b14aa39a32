#include "model/files/config.h"
#include "tests/model/shapes.h"
#include "tests/model/tiny.h"

#include <criterion/criterion.h>

enum { B = 1, T = 5, TEXT = 4096 };

#define LLAMA3_LAYERS(TIED)                                                    \
    "{\"model_type\":\"llama\",\"vocab_size\":7,\"hidden_size\":4,"            \
    "\"intermediate_size\":4,\"num_hidden_layers\":3,"                         \
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,"                     \
    "\"tie_word_embeddings\":" TIED "}"

static void append(char *text, const char *mark, int unit)
{
    size_t used = strlen(text);
    snprintf(text + used, TEXT - used, "%s%s%d", used ? " " : "", mark, unit);
}

static void planned_events(
        const char *config_text, const char *const freeze[2],
        struct checkpointing checkpointing, enum model_pass pass, char *text)
{
    struct model_config config;
    struct param_table table;
    tiny_config(config_text, &config);
    tiny_must(param_table_build(&config, freeze, freeze[0] ? 2 : 0, &table));
    struct unit_events events =
            model_unit_events(&config, &table, checkpointing, pass);
    *text = '\0';
    for (int i = 0; i < events.count; i++)
        append(text, events.list[i].acquire ? "+" : "-", events.list[i].unit);
    free(events.list);
    param_table_fini(&table);
    model_config_fini(&config);
}

/* clang-format off */
static const struct {
    const char *config, *freeze[2];
    struct checkpointing checkpointing;
    enum model_pass pass;
    const char *events;
} cases[] = {
        {LLAMA3_LAYERS("false"), {NULL}, {CHECKPOINTING_NONE, 0}, MODEL_TRAIN,
         "+0 -0 +1 -1 +2 -2 +3 -3 +4 -4 +3 -3 +2 -2 +1 -1"},
        {LLAMA3_LAYERS("true"), {NULL}, {CHECKPOINTING_FULL, 0}, MODEL_TRAIN,
         "+0 -0 +1 -1 +2 -2 +3 -3 +4 +0 -0 -4 +3 -3 +2 -2 +1 -1"},
        {LLAMA3_LAYERS("true"), {NULL}, {CHECKPOINTING_EVERY, 2}, MODEL_TRAIN,
         "+0 -0 +1 -1 +2 -2 +3 -3 +4 +0 -0 -4 +3 -3 +1 +2 -2 -1"},
        {LLAMA3_LAYERS("true"), {NULL}, {CHECKPOINTING_EVERY, 2}, MODEL_EVAL,
         "+0 -0 +1 -1 +2 -2 +3 -3 +4 +0 -0 -4"},
        {LLAMA3_LAYERS("false"), {"model.embed_tokens.*", "model.layers.0.*"}, {CHECKPOINTING_NONE, 0}, MODEL_TRAIN,
         "+0 -0 +1 -1 +2 -2 +3 -3 +4 -4 +3 -3 +2 -2"},
};
/* clang-format on */

Test(model_events, list_the_units_in_the_order_of_the_passes)
{
    char text[TEXT];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        planned_events(
                cases[i].config, cases[i].freeze, cases[i].checkpointing,
                cases[i].pass, text);
        cr_expect_str_eq(text, cases[i].events, "case %zu: %s", i, text);
    }
}

/* Writes down every call, those for gradients as (u and )u. */
struct recorder {
    struct model_hooks inner;
    char text[TEXT];
};

static enum zd_status record_acquire(void *ctx, int unit, const void **params)
{
    struct recorder *r = ctx;
    append(r->text, "+", unit);
    return r->inner.params_acquire(r->inner.ctx, unit, params);
}

static enum zd_status record_release(void *ctx, int unit)
{
    struct recorder *r = ctx;
    append(r->text, "-", unit);
    return r->inner.params_release(r->inner.ctx, unit);
}

static enum zd_status record_grads(
        void *ctx, int unit, void **grads, bool *accumulate_out)
{
    struct recorder *r = ctx;
    append(r->text, "(", unit);
    return r->inner.grads_acquire(r->inner.ctx, unit, grads, accumulate_out);
}

static enum zd_status record_done(void *ctx, int unit)
{
    struct recorder *r = ctx;
    append(r->text, ")", unit);
    return r->inner.grads_release(r->inner.ctx, unit);
}

static void recorded(const char *config, const char *freeze, char *text)
{
    struct recorder r = {0};
    struct tokens tokens;
    struct tiny t;
    struct model_shape shape = {
            .B = B,
            .T = T,
            .checkpointing = {CHECKPOINTING_EVERY, 2},
            .dtype = DTYPE_FP32,
            .train = true,
    };
    tiny_init(&t, config, freeze, &shape, tiny_plain(DTYPE_FP32));
    tokens_fill(&tokens, 1, B, T, t.config.vocab_size);
    r.inner = t.hooks;
    t.hooks = (struct model_hooks){
            &r, record_acquire, record_release, record_grads, record_done};
    tiny_step(&t, &tokens.batch, 1.0f);
    strcpy(text, r.text);
    tiny_fini(&t);
}

/* The tied embedding's gradient is open from the head to the embedding. */
Test(model_events, gradients_are_complete_when_their_last_part_is_added)
{
    char text[TEXT];
    recorded(LLAMA3_LAYERS("true"), NULL, text);
    cr_expect_str_eq(
            text,
            "+0 -0 +1 -1 +2 -2 +3 -3 +4 +0 (4 (0 )4 -0 -4 "
            "+3 (3 )3 -3 +1 +2 (2 )2 -2 (1 )1 -1 )0",
            "%s", text);
    recorded(LLAMA3_LAYERS("false"), NULL, text);
    cr_expect_str_eq(
            text,
            "+0 -0 +1 -1 +2 -2 +3 -3 +4 (4 )4 -4 "
            "+3 (3 )3 -3 +1 +2 (2 )2 -2 (1 )1 -1 (0 )0",
            "%s", text);
}

Test(model_events, nothing_is_asked_for_a_unit_without_a_trained_tensor)
{
    char text[TEXT];
    recorded(LLAMA3_LAYERS("true"), "layers.1.", text);
    cr_expect_str_eq(
            text,
            "+0 -0 +1 -1 +2 -2 +3 -3 +4 +0 (4 (0 )4 -0 -4 "
            "+3 (3 )3 -3 +1 +2 -2 (1 )1 -1 )0",
            "%s", text);
}
