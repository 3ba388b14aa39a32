#include "train/text/decoder.h"

#include "model/model.h"

#include <string.h>

enum zd_status decoder_encode(
        const struct text *text, const char *prompt, struct token_vector *ids)
{
    int count;
    size_t bad;
    struct encoder *encoder;
    const int32_t *prefix;

    if (!text->tokenizer)
        return ZD_FAIL(
                ZD_ERR_CONFIG, "E0460",
                "a prompt needs a tokenizer and this job has none "
                "(model.tokenizer)");
    prefix = tokenizer_prefix(text->tokenizer, &count);
    ZD_TRY(token_vector_append(ids, prefix, (size_t)count));
    ZD_TRY(encoder_create(text->tokenizer, &encoder));
    enum zd_status status = encoder_encode(
            encoder, prompt, strlen(prompt), ENCODE_ADDED_TOKENS, ids, &bad);
    encoder_destroy(encoder);
    if (status == ZD_OK && ids->count == 0)
        status = ZD_FAIL(
                ZD_ERR_DATA, "E0462",
                "the prompt is empty and the tokenizer puts no token in front");
    return status;
}

static enum zd_status run_prompt(
        const struct decoder *decoder, const int32_t *prompt, int count)
{
    for (int at = 0; at < count;) {
        int take = count - at < decoder->batch ? count - at : decoder->batch;
        ZD_TRY(model_decode(
                decoder->model, prompt + at, take, at, decoder->hooks,
                decoder->logits));
        at += take;
    }
    return ZD_OK;
}

enum zd_status decoder_run(
        const struct decoder *decoder, const int32_t *prompt, int prompt_count,
        int max_new, const struct sampler *sampler,
        enum zd_status (*emit)(void *ctx, const char *bytes, size_t count),
        void *ctx)
{
    int past = prompt_count;
    if (prompt_count > decoder->capacity)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0463",
                "the prompt has %d tokens, there is room for %d", prompt_count,
                decoder->capacity);
    ZD_TRY(run_prompt(decoder, prompt, prompt_count));
    for (int i = 0; i < max_new; i++) {
        const char *bytes;
        size_t count;
        int32_t id = sampler_pick(
                sampler, decoder->logits, decoder->order,
                decoder->config->vocab_size, past);
        comm_goes_on(decoder->comm);
        if (decoder->comm)
            ZD_TRY(comm_broadcast(decoder->comm, &id, sizeof id, 0));
        if (text_ends(decoder->text, decoder->config, id))
            break;
        /* ids beyond the tokenizer (a padded vocabulary) have no text */
        if (id < tokenizer_vocab_size(decoder->text->tokenizer) && emit &&
            tokenizer_token_bytes(
                    decoder->text->tokenizer, id, &bytes, &count) == ZD_OK)
            ZD_TRY(emit(ctx, bytes, count));
        zd_error_clear();
        if (past == decoder->capacity || i + 1 == max_new)
            break;
        ZD_TRY(model_decode(
                decoder->model, &id, 1, past++, decoder->hooks,
                decoder->logits));
    }
    return ZD_OK;
}
