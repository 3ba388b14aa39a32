#include "train/text/generate.h"

#include "base/file/fs.h"
#include "base/log.h"
#include "base/must.h"
#include "data/tokenize.h"
#include "model/files/config.h"
#include "model/replicated_params.h"
#include "train/text/decoder.h"

#include <stdlib.h>

struct generate_options generate_options_default(void)
{
    return (struct generate_options){.max_new_tokens = 64, .top_p = 1.0};
}

/* The state of one generation. */
struct generation {
    struct model_config config;
    struct param_table table;
    struct text text;
    struct weight_source source;
    struct replicated_params *replica;
    struct arena_plan plan;
    struct arena arena;
    struct model *model;
    struct decoder_text *texts; /* (text_count) */
    int text_count;
    int capacity; /* positions per text */
};

static void generation_fini(struct generation *g)
{
    for (int i = 0; i < g->text_count; i++)
        decoder_text_fini(&g->texts[i]);
    free(g->texts);
    model_destroy(g->model);
    arena_release(&g->arena);
    arena_plan_fini(&g->plan);
    replicated_destroy(g->replica);
    weights_close(&g->source);
    text_close(&g->text);
    param_table_fini(&g->table);
    model_config_fini(&g->config);
}

static enum zd_status open_model(
        const struct generate_options *options, struct generation *g)
{
    ZD_TRY(model_config_read(options->model, true, &g->config));
    for (int i = 0; i < options->adapter_count; i++)
        ZD_TRY(peft_extend_config(options->adapters[i].dir, &g->config));
    ZD_TRY(text_open_dir(options->model, &g->config, &g->text));
    ZD_TRY(param_table_build(&g->config, NULL, 0, &g->table));
    ZD_TRY(weights_open_adapted(
            options->model, &g->config, &g->table, options->adapters,
            options->adapter_count, NULL, &g->source));
    return replicated_create(&g->table, DTYPE_FP32, &g->source, &g->replica);
}

static enum zd_status encode(
        struct generation *g, const char *prompt, bool chat,
        struct token_vector *ids)
{
    const struct chat_choice choice = {.name = CHAT_AUTO};
    if (chat)
        ZD_TRY(tokenize_chat_prompt(
                g->text.tokenizer, prompt, &choice, ids, &g->text.turn_end));
    else
        ZD_TRY(decoder_encode(&g->text, prompt, ids));
    if (ids->count <= (size_t)g->config.max_positions)
        return ZD_OK;
    return ZD_BAD(
            "E0463", "the prompt has %zu tokens, and the model %d positions",
            ids->count, g->config.max_positions);
}

/* Logs which layout replaces the model's missing chat template. */
static enum zd_status tell_layout(const struct tokenizer *tokenizer)
{
    const struct chat_choice choice = {.name = CHAT_AUTO};
    struct chat *chat = NULL;
    ZD_TRY(chat_create(&choice, tokenizer, false, &chat));
    if (chat && !chat->is_own)
        chat_tell(chat, tokenizer, true);
    chat_destroy(chat);
    return ZD_OK;
}

static enum zd_status open_prompts(
        const struct generate_options *options, struct generation *g)
{
    size_t count = (size_t)options->prompt_count, longest = 0;
    g->texts = zd_array(count, sizeof *g->texts);
    g->text_count = options->prompt_count;
    for (int i = 0; i < g->text_count; i++) {
        struct decoder_text *text = &g->texts[i];
        text->stream = (uint64_t)i;
        enum zd_status status =
                encode(g, options->prompts[i], options->chat, &text->prompt);
        if (status != ZD_OK && g->text_count > 1)
            zd_fail_where("prompt %d of %d", i + 1, g->text_count);
        ZD_TRY(status);
        if (text->prompt.count > longest)
            longest = text->prompt.count;
    }
    if (options->chat)
        ZD_TRY(tell_layout(g->text.tokenizer));
    size_t wanted = longest + (size_t)options->max_new_tokens;
    size_t most = (size_t)g->config.max_positions;
    g->capacity = (int)(wanted < most ? wanted : most);
    if (wanted > most)
        zd_log_warning(
                "%d new tokens after the prompt's %zu exceed the model's %zu "
                "positions, where the text stops",
                options->max_new_tokens, longest, most);
    return ZD_OK;
}

static struct model_shape shape_of(const struct generation *g)
{
    enum { DECODE_BATCH = 64 };
    int batch = g->capacity < DECODE_BATCH ? g->capacity : DECODE_BATCH;
    return (struct model_shape){
            .dtype = DTYPE_FP32,
            .decode_capacity = g->capacity,
            .decode_batch = batch > g->text_count ? batch : g->text_count,
            .decode_texts = g->text_count};
}

static enum zd_status take_memory(
        const struct model_shape *shape, struct generation *g)
{
    size_t V = (size_t)g->config.vocab_size;
    const struct kernels *kernels;
    ZD_TRY(kernels_cpu(DTYPE_FP32, &kernels));
    ZD_TRY(model_plan(&g->config, &g->table, shape, &g->plan));
    ZD_TRY(arena_plan_add(
            &g->plan, "generate.logits", ARENA_HOST, SPAN_BUFFERS,
            (size_t)g->text_count * V * sizeof(float)));
    ZD_TRY(arena_plan_add(
            &g->plan, "generate.order", ARENA_HOST, SPAN_BUFFERS,
            V * sizeof(int32_t)));
    ZD_TRY(arena_take(&g->arena, &g->plan));
    return model_create(
            &g->config, &g->table, shape, kernels, &g->arena, &g->model);
}

/* Writes a line of JSON per text. */
static enum zd_status write_lines(
        const struct generate_options *options, const struct generation *g,
        FILE *out)
{
    for (int i = 0; i < g->text_count; i++) {
        json_auto_t *line =
                decoder_text_json(&g->texts[i], options->prompts[i]);
        json_dumpf(line, out, JSON_COMPACT);
        fputc('\n', out);
    }
    return decoder_flush(out);
}

static enum zd_status run(
        const struct generate_options *options, struct generation *g, FILE *out)
{
    struct printable to = printable_to(out);
    struct model_hooks hooks = replicated_hooks(g->replica);
    struct device_options device = {.cpu_threads = options->threads};
    struct model_shape shape = shape_of(g);
    bool is_one = g->text_count == 1;

    kernels_set_threads(device_threads(
            &device, device_affinity_cpus(), device_online_cpus(), 1));
    ZD_TRY(take_memory(&shape, g));
    struct decoder decoder = {
            .model = g->model,
            .config = &g->config,
            .hooks = &hooks,
            .text = &g->text,
            .logits = arena_span(&g->arena, "generate.logits"),
            .order = arena_span(&g->arena, "generate.order"),
            .capacity = g->capacity,
            .batch = shape.decode_batch};
    struct sampler sampler = {
            .temperature = options->temperature,
            .top_p = options->top_p,
            .seed = options->seed};
    if (is_one)
        g->texts[0].live = &to;
    ZD_TRY(decoder_run(
            &decoder, g->texts, g->text_count, options->max_new_tokens,
            &sampler));
    if (!is_one)
        return write_lines(options, g, out);
    printable_end(&to);
    fputc('\n', out);
    return decoder_flush(out);
}

enum zd_status generate_text(const struct generate_options *options, FILE *out)
{
    ZD_SCOPED(generation_fini) struct generation g = {0};
    ZD_TRY(open_model(options, &g));
    ZD_TRY(open_prompts(options, &g));
    return run(options, &g, out);
}
