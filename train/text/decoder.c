#include "train/text/decoder.h"

#include "base/must.h"
#include "base/number/rng.h"
#include "data/tokenizer/utf8.h"
#include "model/model.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void decoder_text_fini(struct decoder_text *text)
{
    token_vector_fini(&text->prompt);
    free(text->bytes);
}

json_t *decoder_text_json(const struct decoder_text *text, const char *prompt)
{
    return json_pack(
            "{s:o, s:o}", "prompt", utf8_json(prompt, strlen(prompt), false),
            "text", utf8_json(text->bytes, text->count, false));
}

enum zd_status decoder_flush(FILE *out)
{
    if (fflush(out) != 0 || ferror(out))
        return ZD_FAIL(
                ZD_ERR_IO, "E0732", "cannot write the text: %s",
                strerror(errno));
    return ZD_OK;
}

enum zd_status decoder_encode(
        const struct text *text, const char *prompt, struct token_vector *ids)
{
    if (!text->tokenizer)
        return ZD_FAIL(
                ZD_ERR_CONFIG, "E0460",
                "a prompt needs a tokenizer and this job has none "
                "(model.tokenizer)");
    const struct token_vector *prefix =
            &tokenizer_facts(text->tokenizer)->prefix;
    token_vector_append(ids, prefix->ids, prefix->count);
    struct encoder *encoder = encoder_create(text->tokenizer);
    enum zd_status status =
            encoder_encode(encoder, prompt, strlen(prompt), false, ids);
    encoder_destroy(encoder);
    if (status == ZD_OK && ids->count == 0)
        status = ZD_BAD(
                "E0462",
                "the prompt is empty, and the tokenizer adds no token to it");
    return status;
}

/* The unfinished texts: each one's next run and token. */
struct growing {
    const struct decoder *decoder;
    struct decoder_text *texts;
    int count;
    struct decode_run *runs; /* (count), one token each */
    int32_t *ids;            /* (count) */
};

static enum zd_status run_prompt(
        const struct decoder *decoder, const struct decoder_text *text,
        struct decode_run *run, float *logits)
{
    int count = (int)text->prompt.count;
    if (count > decoder->capacity)
        return ZD_BAD(
                "E0463", "the prompt has %d tokens, there is room for %d",
                count, decoder->capacity);
    while (run->past < count) {
        int left = count - run->past;
        run->count = left < decoder->batch ? left : decoder->batch;
        ZD_TRY(model_decode(
                decoder->model, text->prompt.ids + run->past, run, 1,
                decoder->hooks, logits));
        run->past += run->count;
    }
    run->count = 1;
    return ZD_OK;
}

static enum zd_status emit(
        const struct decoder *decoder, struct decoder_text *text, int32_t id)
{
    const struct tokenizer *tokenizer = decoder->text->tokenizer;
    const char *bytes;
    size_t count;
    /* ids beyond the tokenizer (a padded vocabulary) have no text */
    if (id >= tokenizer_facts(tokenizer)->vocab_size ||
        tokenizer_token_bytes(tokenizer, id, &bytes, &count) != ZD_OK) {
        zd_error_clear();
        return ZD_OK;
    }
    text->bytes = zd_grow(text->bytes, &text->capacity, text->count + count, 1);
    if (count > 0)
        memcpy(text->bytes + text->count, bytes, count);
    text->count += count;
    if (!text->live)
        return ZD_OK;
    printable_put(text->live, bytes, count);
    return decoder_flush(text->live->out);
}

/* Picks and emits a token for each text; moves unfinished ones to the front. */
static enum zd_status pick(
        struct growing *growing, const struct sampler *sampler, bool is_last)
{
    const struct decoder *decoder = growing->decoder;
    size_t V = (size_t)decoder->config->vocab_size;
    int picked = growing->count;
    for (int i = 0; i < picked; i++) {
        struct sampler own = *sampler;
        own.stream = growing->texts[growing->runs[i].text].stream;
        growing->ids[i] = sampler_pick(
                &own, decoder->logits + (size_t)i * V, decoder->order, (int)V,
                growing->runs[i].past);
    }
    comm_goes_on(decoder->comm);
    if (decoder->comm)
        ZD_TRY(comm_broadcast(
                decoder->comm, growing->ids,
                (size_t)picked * sizeof *growing->ids, 0));
    growing->count = 0;
    for (int i = 0; i < picked; i++) {
        struct decode_run run = growing->runs[i];
        int32_t id = growing->ids[i];
        if (text_ends(decoder->text, decoder->config, id))
            continue;
        ZD_TRY(emit(decoder, &growing->texts[run.text], id));
        if (run.past == decoder->capacity || is_last)
            continue;
        growing->runs[growing->count] = run;
        growing->ids[growing->count++] = id;
    }
    return ZD_OK;
}

static enum zd_status grow(
        struct growing *growing, int max_new, const struct sampler *sampler)
{
    const struct decoder *decoder = growing->decoder;
    size_t V = (size_t)decoder->config->vocab_size;
    for (int i = 0; i < growing->count; i++) {
        growing->runs[i] = (struct decode_run){.text = i};
        ZD_TRY(run_prompt(
                decoder, &growing->texts[i], &growing->runs[i],
                decoder->logits + (size_t)i * V));
    }
    for (int made = 0; made < max_new && growing->count; made++) {
        ZD_TRY(pick(growing, sampler, made + 1 == max_new));
        if (!growing->count)
            break;
        ZD_TRY(model_decode(
                decoder->model, growing->ids, growing->runs, growing->count,
                decoder->hooks, decoder->logits));
        for (int i = 0; i < growing->count; i++)
            growing->runs[i].past++;
    }
    return ZD_OK;
}

enum zd_status decoder_run(
        const struct decoder *decoder, struct decoder_text *texts,
        int text_count, int max_new, const struct sampler *sampler)
{
    size_t count = (size_t)text_count;
    ZD_FREED struct decode_run *runs = zd_array(count, sizeof *runs);
    ZD_FREED int32_t *ids = zd_array(count, sizeof *ids);
    struct growing growing = {decoder, texts, text_count, runs, ids};
    return grow(&growing, max_new, sampler);
}

/* --- the next token --------------------------------------------------------
 */

static int32_t argmax(const float *logits, int V)
{
    int32_t best = 0;
    for (int32_t i = 1; i < V; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* The most likely first; equal ones by id. */
static int likelier(const void *a, const void *b, void *probabilities)
{
    const float *p = probabilities;
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return p[x] != p[y] ? (p[x] > p[y] ? -1 : 1) : (x > y) - (x < y);
}

/* Turns logits into unnormalized probabilities; returns their sum. */
static void softmax(float *logits, int V, double temperature)
{
    double sum = 0;
    float top = logits[argmax(logits, V)];
    for (int i = 0; i < V; i++) {
        logits[i] = (float)exp(((double)logits[i] - top) / temperature);
        sum += logits[i];
    }
    for (int i = 0; i < V; i++)
        logits[i] = (float)(logits[i] / sum);
}

int32_t sampler_pick(
        const struct sampler *sampler, float *logits, int32_t *order, int V,
        int64_t position)
{
    if (sampler->temperature <= 0)
        return argmax(logits, V);
    softmax(logits, V, sampler->temperature);
    for (int32_t i = 0; i < V; i++)
        order[i] = i;
    qsort_r(order, (size_t)V, sizeof *order, likelier, logits);
    double mass = 0;
    int count = 0; /* tokens in the nucleus */
    while (count < V && (count == 0 || mass < sampler->top_p))
        mass += logits[order[count++]];
    double u = mass *
               rng_uniform(sampler->seed, sampler->stream, (uint64_t)position);
    for (int i = 0; i + 1 < count; i++) {
        u -= logits[order[i]];
        if (u < 0)
            return order[i];
    }
    return order[count - 1];
}
