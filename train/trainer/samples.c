/* samples.c - text written by the model in training; all ranks run the model,
 * rank 0 picks the tokens. */
#include "data/tokenize.h"
#include "train/text/decoder.h"
#include "train/trainer/trainer.h"

#include <string.h>

/* *end_out: the token that ends the answer of a chat, or -1. */
static enum zd_status encode(
        const struct trainer *trainer, const struct sample_request *request,
        int i, struct token_vector *ids, int32_t *end_out)
{
    const struct data_options *data = &trainer->job->data;
    const struct chat_choice choice = {
            data->chat_template, data->chat_file, trainer->ahead.date};
    *end_out = -1;
    if (!request->chat || !trainer->text.tokenizer)
        return decoder_encode(&trainer->text, request->prompts[i], ids);
    return tokenize_chat_prompt(
            trainer->text.tokenizer, request->prompts[i], &choice, ids,
            end_out);
}

static enum zd_status sample_one(
        struct trainer *trainer, const struct decoder *decoder,
        const struct sample_request *request, int i, struct decoder_text *text)
{
    const struct sample_options *options = &trainer->job->sample;
    struct text own = trainer->text;
    struct decoder to_end = *decoder;
    struct sampler sampler = {
            .temperature = options->temperature,
            .top_p = options->top_p,
            .seed = trainer->job->job.seed};
    ZD_TRY(zero_eval_begin(trainer->zero));
    ZD_TRY(encode(trainer, request, i, &text->prompt, &own.turn_end));
    to_end.text = &own;
    return decoder_run(&to_end, text, 1, request->max_new_tokens, &sampler);
}

static void tell(
        struct trainer *trainer, const struct sample_request *request, int i,
        const struct decoder_text *text)
{
    json_t *sample = decoder_text_json(text, request->prompts[i]);
    trainer_tell_sample(trainer, sample);
    if (request->told)
        json_array_append(request->told, sample);
    json_decref(sample);
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
        struct decoder_text text = {
                .stream = (uint64_t)trainer->state.step * 64 + (uint64_t)i};
        status = sample_one(trainer, &decoder, request, i, &text);
        if (status == ZD_OK)
            tell(trainer, request, i, &text);
        decoder_text_fini(&text);
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
        int32_t end;
        status = encode(trainer, request, i, &ids, &end);
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
                            "%d new tokens after %zu of the prompt: there is "
                            "room for %d in all",
                            request->max_new_tokens, ids.count, capacity);
            zd_fail_help(
                    "max_new_tokens of at most %d", capacity - (int)ids.count);
        }
        token_vector_fini(&ids);
        if (status != ZD_OK && request->count > 1)
            zd_fail_where("prompt %d of %d", i + 1, request->count);
    }
    return status;
}
