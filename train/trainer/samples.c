/* samples.c - text written by the model in training; all ranks run the model,
 * rank 0 picks the tokens. */
#include "train/text/decoder.h"
#include "train/trainer/trainer.h"

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
        struct trainer *trainer, const struct decoder *decoder,
        const struct sample_request *request, int i, struct collected *text)
{
    const struct sample_options *options = &trainer->job->sample;
    struct token_vector ids = {0};
    struct sampler sampler = {
            .temperature = options->temperature,
            .top_p = options->top_p,
            .seed = trainer->job->job.seed,
            .stream = (uint64_t)trainer->state.step * 64 + (uint64_t)i};
    enum zd_status status =
            decoder_encode(&trainer->text, request->prompts[i], &ids);
    if (status == ZD_OK)
        status = decoder_run(
                decoder, ids.ids, (int)ids.count, request->max_new_tokens,
                &sampler, collect, text);
    token_vector_fini(&ids);
    return status;
}

static void tell(
        struct trainer *trainer, const struct sample_request *request, int i,
        const struct collected *collected)
{
    const char *text = collected->bytes ? collected->bytes : "";
    trainer_tell_sample(trainer, request->prompts[i], text);
    if (request->told)
        json_array_append_new(
                request->told, trainer_sample_json(request->prompts[i], text));
}

enum zd_status trainer_sample_request(
        struct trainer *trainer, const struct sample_request *request)
{
    int V = trainer->plan.config.vocab_size;
    enum zd_status status = ZD_OK;
    enum train_run_state before = trainer->run_state;
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
    trainer_tell_state(trainer, RUN_SAMPLING);
    for (int i = 0; i < request->count && status == ZD_OK; i++) {
        struct collected text = {0};
        status = zero_eval_begin(trainer->zero);
        if (status == ZD_OK)
            status = sample_one(trainer, &decoder, request, i, &text);
        if (status == ZD_OK)
            tell(trainer, request, i, &text);
        free(text.bytes);
    }
    trainer_tell_state(trainer, before);
    return status;
}

enum zd_status trainer_sample(struct trainer *trainer)
{
    const struct sample_options *options = &trainer->job->sample;
    struct sample_request request = {
            .prompts = options->prompts,
            .count = options->prompt_count,
            .max_new_tokens = options->max_new_tokens};
    if (!trainer->plan.shape.decode_capacity || !request.count)
        return ZD_OK;
    return trainer_sample_request(trainer, &request);
}

enum zd_status trainer_sample_check(
        struct trainer *trainer, const struct sample_request *request)
{
    enum zd_status status = ZD_OK;
    int capacity = trainer->plan.shape.decode_capacity;
    for (int i = 0; i < request->count && status == ZD_OK; i++) {
        struct token_vector ids = {0};
        status = decoder_encode(&trainer->text, request->prompts[i], &ids);
        if (status == ZD_OK && ids.count >= (size_t)capacity) {
            status =
                    ZD_FAIL(ZD_ERR_DATA, "E0463",
                            "the prompt has %zu tokens, there is room for %d",
                            ids.count, capacity);
            zd_fail_help("a shorter prompt; memory is planned for one of so "
                         "many tokens and its continuation");
        } else if (
                status == ZD_OK && request->is_asked &&
                request->max_new_tokens > capacity - (int)ids.count) {
            status =
                    ZD_FAIL(ZD_ERR_DATA, "E1015",
                            "%d new tokens behind %zu of the prompt: there is "
                            "room for %d in all",
                            request->max_new_tokens, ids.count, capacity);
            zd_fail_help(
                    "max_new_tokens of at most %d", capacity - (int)ids.count);
        }
        token_vector_fini(&ids);
    }
    return status;
}
