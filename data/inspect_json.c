#include "base/text_stream.h"
#include "data/dataset_internal.h"
#include "data/inspect.h"

#include <stdlib.h>
#include <string.h>

/* Neighbouring tokens of one kind and one document. */
struct passage {
    bool is_trained, begins;
    char *text; /* owned by `stream` */
    size_t bytes;
    FILE *stream;
    json_t *ids;
};

/* JSON holds text alone: a byte that is no UTF-8 becomes U+FFFD. */
static json_t *text_json(const char *text, size_t bytes)
{
    char *out = NULL;
    size_t out_bytes;
    FILE *stream = text_stream_open(&out, &out_bytes);
    while (bytes > 0) {
        size_t valid = utf8_valid_prefix(text, bytes);
        fwrite(text, 1, valid, stream);
        if (valid < bytes) {
            fputs("\xef\xbf\xbd", stream);
            valid++;
        }
        text += valid;
        bytes -= valid;
    }
    fclose(stream);
    json_t *json = json_stringn(out, out_bytes);
    free(out);
    return json;
}

static void finish(
        struct passage *passage, const struct inspect_view *view,
        json_t *pieces)
{
    if (!passage->stream)
        return;
    fclose(passage->stream);
    json_t *json = json_pack(
            "{s:o, s:b}", "text", text_json(passage->text, passage->bytes),
            "trained", passage->is_trained);
    if (passage->begins)
        json_object_set_new(json, "begins_document", json_true());
    if (view->ids)
        json_object_set(json, "ids", passage->ids);
    json_array_append_new(pieces, json);
    json_decref(passage->ids);
    free(passage->text);
    *passage = (struct passage){0};
}

static json_t *sample_json(
        const struct inspect_sample *sample, int64_t n,
        const struct tokenizer *tokenizer, const struct inspect_view *view)
{
    json_t *pieces = json_array();
    struct passage passage = {0};
    for (int t = 0; t < sample->shown; t++) {
        bool is_trained, begins;
        char number[16];
        size_t bytes;
        int32_t id = inspect_sample_token(sample, t, &is_trained, &begins);
        if (begins || is_trained != passage.is_trained)
            finish(&passage, view, pieces);
        if (!passage.stream) {
            passage = (struct passage){
                    .is_trained = is_trained, .begins = begins};
            passage.ids = json_array();
            passage.stream = text_stream_open(&passage.text, &passage.bytes);
        }
        const char *text = inspect_token_text(tokenizer, id, number, &bytes);
        fwrite(text, 1, bytes, passage.stream);
        json_array_append_new(passage.ids, json_integer(id));
    }
    finish(&passage, view, pieces);
    return json_pack(
            "{s:I, s:i, s:i, s:o}", "sample", (json_int_t)n, "tokens",
            sample->token_count, "trained", sample->trained, "pieces", pieces);
}

enum zd_status dataset_inspect_json(
        struct dataset *dataset, const struct tokenizer *tokenizer,
        const struct inspect_view *view, json_t **json_out)
{
    struct inspect_sample sample;
    struct dataset_facts facts;
    const char *chat = dataset_chat_template(dataset);
    ZD_TRY(dataset_count(dataset, &facts));
    ZD_TRY(inspect_sample_init(&sample, dataset));
    json_t *samples = json_array();
    enum zd_status status = ZD_OK;
    for (int64_t n = 0; n < view->count && n < dataset->samples; n++) {
        status = inspect_sample_read(dataset, n, &sample);
        if (status != ZD_OK)
            break;
        json_array_append_new(
                samples, sample_json(&sample, n, tokenizer, view));
    }
    inspect_sample_fini(&sample);
    json_t *json = json_pack(
            "{s:o, s:I, s:I, s:i, s:o, s:I, s:I, s:I, s:I, s:f, s:s?, s:s?, "
            "s:o}",
            "documents",
            facts.documents < 0 ? json_null() : json_integer(facts.documents),
            "tokens", (json_int_t)dataset_tokens(dataset), "samples",
            (json_int_t)dataset->samples, "cutoff_len", dataset->T,
            "trained_share",
            json_number_or_null(
                    facts.inputs > 0 ? facts.targets / facts.inputs : 0),
            "cut_documents", (json_int_t)facts.cut_documents, "cut_tokens",
            (json_int_t)facts.cut_tokens, "lost_tokens",
            (json_int_t)facts.lost_tokens, "split_documents",
            (json_int_t)facts.split_documents, "split_targets",
            facts.split_targets, "chat_template", chat, "tokenizer",
            tokenizer ? tokenizer_describe(tokenizer) : NULL, "shown", samples);
    if (status != ZD_OK) {
        json_decref(json);
        return status;
    }
    *json_out = json;
    return ZD_OK;
}
