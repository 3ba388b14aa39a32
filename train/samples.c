/* samples.c - text written by the model in training; all ranks run the model,
 * rank 0 picks the tokens. */
#include "train/decoder.h"
#include "train/trainer.h"

#include <stdlib.h>
#include <string.h>

struct collected {
    char *bytes; /* NUL-terminated */
    size_t count, capacity;
};

static enum zd_status collect(void *ctx, const char *bytes, size_t count)
{
    struct collected *text = ctx;
    if (text->count + count + 1 > text->capacity) {
        size_t capacity = 2 * (text->count + count) + 64;
        char *more = realloc(text->bytes, capacity);
        if (!more)
            return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
        text->bytes = more;
        text->capacity = capacity;
    }
    memcpy(text->bytes + text->count, bytes, count);
    text->count += count;
    text->bytes[text->count] = '\0';
    return ZD_OK;
}

static enum zd_status sample_one(
        struct trainer *trainer, const struct decoder *decoder, int i,
        struct collected *text)
{
    const struct sample_options *options = &trainer->job->sample;
    struct token_vector ids = {0};
    struct sampler sampler = {
            .temperature = options->temperature,
            .top_p = options->top_p,
            .seed = trainer->job->job.seed,
            .stream = (uint64_t)trainer->state.step * 64 + (uint64_t)i};
    enum zd_status status =
            decoder_encode(&trainer->text, options->prompts[i], &ids);
    if (status == ZD_OK)
        status = decoder_run(
                decoder, ids.ids, (int)ids.count, options->max_new_tokens,
                &sampler, collect, text);
    token_vector_fini(&ids);
    return status;
}

enum zd_status trainer_sample(struct trainer *trainer)
{
    const struct sample_options *options = &trainer->job->sample;
    int V = trainer->plan.config.vocab_size;
    enum zd_status status = ZD_OK;

    if (!trainer->plan.shape.decode_capacity)
        return ZD_OK;
    float *logits = arena_span(&trainer->arena, "train.sample_logits");
    struct model_hooks hooks = zero_hooks(trainer->zero);
    struct decoder decoder = {
            .model = trainer->model,
            .config = &trainer->plan.config,
            .hooks = &hooks,
            .text = &trainer->text,
            .comm = trainer->comm,
            .logits = logits,
            .order = (int32_t *)(logits + V),
            .capacity = trainer->plan.shape.decode_capacity,
            .batch = trainer->plan.shape.decode_batch};
    for (int i = 0; i < options->prompt_count && status == ZD_OK; i++) {
        struct collected text = {0};
        status = zero_eval_begin(trainer->zero);
        if (status == ZD_OK)
            status = sample_one(trainer, &decoder, i, &text);
        if (status == ZD_OK)
            trainer_tell_sample(
                    trainer, options->prompts[i], text.bytes ? text.bytes : "");
        free(text.bytes);
    }
    return status;
}
