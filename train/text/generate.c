#include "train/text/generate.h"

#include "model/grown.h"

#include "base/file/fs.h"
#include "base/printable.h"
#include "model/holder.h"
#include "train/text/decoder.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct generate_options generate_options_default(void)
{
    return (struct generate_options){.max_new_tokens = 64, .top_p = 1.0};
}

static enum zd_status write_token(void *ctx, const char *bytes, size_t count)
{
    struct printable *to = ctx;
    printable_put(to, bytes, count);
    if (fflush(to->out) != 0 || ferror(to->out))
        return ZD_FAIL(
                ZD_ERR_IO, "E0732", "cannot write the text: %s",
                strerror(errno));
    return ZD_OK;
}

/* Everything that one generation holds. */
struct generation {
    struct model_config config;
    struct param_table table;
    struct text text;
    struct weight_source source;
    struct holder *holder;
    struct arena_plan plan;
    struct arena arena;
    struct model *model;
    struct token_vector prompt;
};

static void generation_fini(struct generation *g)
{
    token_vector_fini(&g->prompt);
    if (g->model)
        model_destroy(g->model);
    arena_release(&g->arena);
    arena_plan_fini(&g->plan);
    if (g->holder)
        holder_destroy(g->holder);
    if (g->source.read)
        weights_close(&g->source);
    text_close(&g->text);
    param_table_fini(&g->table);
    model_config_fini(&g->config);
}

static enum zd_status open_model(
        const struct generate_options *options, struct generation *g)
{
    if (!fs_exists(options->model))
        return ZD_FAIL(
                ZD_ERR_NO_INPUT, "E0301", "no model at %s", options->model);
    ZD_TRY(model_config_read_stored(options->model, &g->config));
    for (int i = 0; i < options->adapter_count; i++)
        ZD_TRY(model_config_grow_for(options->adapters[i].dir, &g->config));
    ZD_TRY(text_open_dir(options->model, &g->config, &g->text));
    ZD_TRY(param_table_build(&g->config, NULL, 0, &g->table));
    ZD_TRY(weights_open_adapted(
            options->model, &g->config, &g->table, options->adapters,
            options->adapter_count, NULL, &g->source));
    ZD_TRY(holder_create(&g->table, DTYPE_FP32, &g->source, false, &g->holder));
    return decoder_encode(&g->text, options->prompt, &g->prompt);
}

static enum zd_status run(
        const struct generate_options *options, struct generation *g, FILE *out)
{
    enum { DECODE_BATCH = 64 };
    const struct kernels *kernels;
    struct printable to = printable_to(out);
    struct model_hooks hooks = holder_hooks(g->holder);
    struct device_options device = {.cpu_threads = options->threads};
    size_t V = (size_t)g->config.vocab_size;
    size_t wanted = g->prompt.count + (size_t)options->max_new_tokens;
    int capacity = wanted < (size_t)g->config.max_positions
                           ? (int)wanted
                           : g->config.max_positions;
    struct model_shape shape = {
            .dtype = DTYPE_FP32,
            .decode_capacity = capacity,
            .decode_batch = capacity < DECODE_BATCH ? capacity : DECODE_BATCH};

    kernels_set_threads(device_threads(
            &device, device_affinity_cpus(), device_online_cpus(), 1));
    ZD_TRY(kernels_cpu(DTYPE_FP32, &kernels));
    ZD_TRY(model_plan(&g->config, &g->table, &shape, &g->plan));
    ZD_TRY(arena_plan_add(
            &g->plan, "generate.logits", ARENA_HOST, SPAN_BUFFERS,
            V * sizeof(float)));
    ZD_TRY(arena_plan_add(
            &g->plan, "generate.order", ARENA_HOST, SPAN_BUFFERS,
            V * sizeof(int32_t)));
    ZD_TRY(arena_take(&g->arena, &g->plan));
    ZD_TRY(model_create(
            &g->config, &g->table, &shape, kernels, &g->arena, &g->model));

    struct decoder decoder = {
            .model = g->model,
            .config = &g->config,
            .hooks = &hooks,
            .text = &g->text,
            .logits = arena_span(&g->arena, "generate.logits"),
            .order = arena_span(&g->arena, "generate.order"),
            .capacity = capacity,
            .batch = shape.decode_batch};
    struct sampler sampler = {
            .temperature = options->temperature,
            .top_p = options->top_p,
            .seed = options->seed};
    ZD_TRY(decoder_run(
            &decoder, g->prompt.ids, (int)g->prompt.count,
            options->max_new_tokens, &sampler, write_token, &to));
    printable_end(&to);
    return write_token(&to, "\n", 1);
}

enum zd_status generate_text(const struct generate_options *options, FILE *out)
{
    struct generation g = {0};
    enum zd_status status = open_model(options, &g);
    if (status == ZD_OK)
        status = run(options, &g, out);
    generation_fini(&g);
    return status;
}
