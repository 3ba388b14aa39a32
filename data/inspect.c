#include "data/inspect.h"

#include "base/must.h"
#include "base/printable.h"
#include "base/text_stream.h"
#include "data/dataset_internal.h"
#include "data/tokenizer/utf8.h"

#include <errno.h>
#include <string.h>

/* --- one sample --- */

struct sample { /* in the dataset's words */
    const uint32_t *words;
    const bool *starts;
    int shown; /* words: after the last input, its target if it is trained */
    int inputs, trained;
};

/* When it is a target, that of the one before it. */
static bool is_trained(const struct sample *sample, int t)
{
    return t > 0 && sample->words[t] & WORD_TRAIN;
}

/* A document begins there, within the sample. */
static bool begins(const struct sample *sample, int t)
{
    return t > 0 && t < sample->inputs && sample->starts[t];
}

static enum zd_status sample_read(
        struct dataset *dataset, int64_t n, struct sample *sample)
{
    int count, T = dataset->T;
    ZD_TRY(dataset_words(dataset, n, &count));
    *sample = (struct sample){
            .words = dataset->words,
            .starts = dataset->starts,
            .inputs = count < T ? count : T};
    sample->shown = sample->inputs + (count > T && is_trained(sample, T));
    for (int t = 0; t < sample->shown; t++)
        sample->trained += is_trained(sample, t);
    return ZD_OK;
}

/* The end of the passage that begins at `t`: neighboring tokens that are all
 * trained or all not, of one document. */
static int passage_end(const struct sample *sample, int t)
{
    bool trained = is_trained(sample, t);
    do
        t++;
    while (t < sample->shown && !begins(sample, t) &&
           is_trained(sample, t) == trained);
    return t;
}

struct printer {
    FILE *out;
    const struct tokenizer *tokenizer;
    const struct inspect_view *view;
    struct sample sample;
};

static int32_t token_id(const struct printer *to, int t)
{
    return (int32_t)(to->sample.words[t] & WORD_ID);
}

/* The bytes of a token, or its number where the tokenizer lacks it:
 * pre-tokenized data may have more ids. */
static const char *token_text(
        const struct printer *to, int t, char number[16], size_t *bytes_out)
{
    const char *text;
    int32_t id = token_id(to, t);
    if (to->tokenizer &&
        tokenizer_token_bytes(to->tokenizer, id, &text, bytes_out) == ZD_OK)
        return text;
    zd_error_clear();
    *bytes_out =
            (size_t)snprintf(number, 16, to->tokenizer ? "<%d>" : "%d ", id);
    return number;
}

/* Of words [t, end) in one, so that a character whose bytes several tokens
 * share is whole. The caller frees it. */
static char *passage_text(
        const struct printer *to, int t, int end, size_t *bytes_out)
{
    char *text = NULL, number[16];
    FILE *stream = text_stream_open(&text, bytes_out);
    for (; t < end; t++) {
        size_t bytes;
        const char *part = token_text(to, t, number, &bytes);
        fwrite(part, 1, bytes, stream);
    }
    fclose(stream);
    return text;
}

/* --- as text --- */

/* Also into a file: the text is looked at, and marks of ours are in it. */
static void print_text(FILE *out, const char *text, size_t bytes)
{
    struct printable to = {.out = out, .is_terminal = true};
    printable_put(&to, text, bytes);
    printable_end(&to);
}

static void print_passage(const struct printer *to, int t, int end)
{
    size_t bytes;
    ZD_FREED char *text = passage_text(to, t, end, &bytes);
    const char *before = "", *after = "";
    if (!is_trained(&to->sample, t)) {
        before = to->view->color ? "\033[2m" : "[-";
        after = to->view->color ? "\033[22m" : "-]";
    }
    if (begins(&to->sample, t))
        fputs("\n--- document ---\n", to->out);
    if (bytes > 0) {
        fputs(before, to->out);
        print_text(to->out, text, bytes);
        fputs(after, to->out);
    }
}

/* A line feed within a token would look like the end of its line. */
static void print_line_text(FILE *out, const char *text, size_t bytes)
{
    static const char escaped[] = "\n\t\\", letters[] = "nt\\";
    for (size_t i = 0; i < bytes; i++) {
        size_t plain = 0;
        while (i + plain < bytes && !memchr(escaped, text[i + plain], 3))
            plain++;
        print_text(out, text + i, plain);
        i += plain;
        if (i < bytes)
            fprintf(out, "\\%c", letters[strchr(escaped, text[i]) - escaped]);
    }
}

static void print_token(const struct printer *to, int t)
{
    char number[16];
    size_t bytes;
    const char *text = token_text(to, t, number, &bytes);
    bool trained = is_trained(&to->sample, t);
    bool dims = to->view->color && !trained;
    if (begins(&to->sample, t))
        fputs("--- document ---\n", to->out);
    fprintf(to->out, "%s%8d %c ", dims ? "\033[2m" : "", token_id(to, t),
            trained ? '+' : '-');
    if (to->tokenizer)
        print_line_text(to->out, text, bytes);
    fputs(dims ? "\033[22m\n" : "\n", to->out);
}

static void print_sample(const struct printer *to)
{
    for (int t = 0, end; t < to->sample.shown; t = end) {
        end = to->view->ids ? t + 1 : passage_end(&to->sample, t);
        if (to->view->ids)
            print_token(to, t);
        else
            print_passage(to, t, end);
    }
    if (!to->view->ids)
        fputc('\n', to->out);
}

static void print_notes(FILE *out, const struct row_notes *notes)
{
    const struct noted *untrained = &notes->of[ROW_UNTRAINED];
    const struct noted *bad = &notes->of[ROW_BAD];
    const struct noted *special = &notes->of[ROW_SPECIALS];
    if (untrained->rows > 0)
        fprintf(out, "%lld document%s nothing that is trained (first: %s)\n",
                untrained->rows, untrained->rows == 1 ? " has" : "s have",
                untrained->first[0]);
    if (bad->rows > 0)
        fprintf(out, "%lld bad row%s left out (data.on_bad_row)\n", bad->rows,
                bad->rows == 1 ? " is" : "s are");
    if (special->count > 0)
        fprintf(out,
                "%lld special token%s written in messages of %lld row%s "
                "(first: %s)\n",
                special->count, special->count == 1 ? " is" : "s are",
                special->rows, special->rows == 1 ? "" : "s",
                special->first[0]);
}

static enum zd_status print_totals(FILE *out, struct dataset *dataset)
{
    const struct row_notes notes = dataset_notes(dataset);
    struct dataset_facts facts;
    const char *chat = dataset_summary(dataset).chat_template;
    long long samples = (long long)dataset->samples;
    ZD_TRY(dataset_count(dataset, &facts));
    if (facts.documents >= 0)
        fprintf(out, "%lld document%s, ", facts.documents,
                facts.documents == 1 ? "" : "s");
    fprintf(out,
            "%lld tokens, %lld sample%s of %d tokens; %.1f %% of the targets "
            "are trained\n",
            (long long)dataset_summary(dataset).tokens, samples,
            samples == 1 ? "" : "s", dataset->T,
            facts.inputs > 0 ? 100 * facts.targets / facts.inputs : 0);
    if (facts.held_out > 0)
        fprintf(out,
                "data.val_split keeps %lld of the %lld samples for "
                "evaluation\n",
                facts.held_out, facts.samples);
    facts_write_long(&facts, dataset->T, out);
    if (facts.split_documents > 0 && facts.packed_documents > 0)
        fprintf(out,
                "packing cuts %lld of %lld documents; %.0f of %.0f trained "
                "tokens are in a sample without the beginning of their "
                "document\n",
                facts.split_documents, facts.packed_documents,
                facts.split_targets, facts.targets);
    print_notes(out, &notes);
    if (chat)
        fprintf(out, "chat template %s\n", chat);
    return ZD_OK;
}

static enum zd_status print_samples(struct printer *to, struct dataset *dataset)
{
    const struct sample *sample = &to->sample;
    int64_t targets = 0, inputs = 0;
    for (int64_t n = 0; n < to->view->count && n < dataset->samples; n++) {
        ZD_TRY(sample_read(dataset, n, &to->sample));
        fprintf(to->out, "\n=== sample %lld: %d tokens, %d trained ===\n",
                (long long)n, sample->inputs, sample->trained);
        print_sample(to);
        targets += sample->trained;
        inputs += sample->inputs;
    }
    if (inputs > 0)
        fprintf(to->out,
                "\n%lld of the %lld targets shown are trained (%.1f %%)\n",
                (long long)targets, (long long)inputs,
                100.0 * (double)targets / (double)inputs);
    return ZD_OK;
}

enum zd_status dataset_inspect(
        FILE *out, struct dataset *dataset, const struct tokenizer *tokenizer,
        const struct inspect_view *view)
{
    struct printer to = {out, tokenizer, view, {NULL}};
    ZD_TRY(print_totals(out, dataset));
    ZD_TRY(print_samples(&to, dataset));
    return fflush(out) == 0
                   ? ZD_OK
                   : ZD_FAIL(ZD_ERR_IO, "E0707", "cannot write the samples: %s",
                             strerror(errno));
}

/* --- as JSON --- */

static json_t *passage_json(const struct printer *to, int t, int end)
{
    size_t bytes;
    ZD_FREED char *text = passage_text(to, t, end, &bytes);
    json_t *json = json_pack(
            "{s:o, s:b}", "text", utf8_json(text, bytes, true), "trained",
            is_trained(&to->sample, t));
    if (begins(&to->sample, t))
        json_object_set_new(json, "begins_document", json_true());
    if (!to->view->ids)
        return json;
    json_t *ids = json_array();
    for (; t < end; t++)
        json_array_append_new(ids, json_integer(token_id(to, t)));
    json_object_set_new(json, "ids", ids);
    return json;
}

static json_t *sample_json(const struct printer *to, int64_t n)
{
    const struct sample *sample = &to->sample;
    json_t *pieces = json_array();
    for (int t = 0, end; t < sample->shown; t = end) {
        end = passage_end(sample, t);
        json_array_append_new(pieces, passage_json(to, t, end));
    }
    return json_pack(
            "{s:I, s:i, s:i, s:o}", "sample", (json_int_t)n, "tokens",
            sample->inputs, "trained", sample->trained, "pieces", pieces);
}

static json_t *totals_json(
        const struct dataset *dataset, const struct dataset_facts *facts,
        const struct tokenizer *tokenizer)
{
    const struct row_notes notes = dataset_notes(dataset);
    json_t *rows = row_notes_json(&notes), *first = json_array();
    const struct {
        const char *key;
        long long value;
    } counts[] = {
            {"documents", facts->documents},
            {"tokens", dataset_summary(dataset).tokens},
            {"samples", dataset->samples},
            {"held_out_samples", facts->held_out},
            {"cutoff_len", dataset->T},
            {"cut_documents", facts->cut_documents},
            {"cut_tokens", facts->cut_tokens},
            {"lost_tokens", facts->lost_tokens},
            {"split_documents", facts->split_documents},
            {"dropped_documents", facts->dropped_documents},
            {"dropped_tokens", facts->dropped_tokens},
            {"empty_documents", notes.of[ROW_UNTRAINED].rows},
            {"bad_rows", notes.of[ROW_BAD].rows},
            {"special_tokens", notes.of[ROW_SPECIALS].count}};
    if (notes.of[ROW_BAD].kept > 0) /* of which the reason is known */
        json_array_extend(
                first, json_object_get(json_object_get(rows, "bad"), "first"));
    json_t *json = json_object();
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        json_object_set_new(
                json, counts[i].key,
                counts[i].value < 0 ? json_null() /* not counted */
                                    : json_integer(counts[i].value));
    json_object_update_new(
            json,
            json_pack(
                    "{s:o, s:f, s:s, s:s?, s:s?, s:o, s:o}", "trained_share",
                    json_number_or_null(
                            facts->inputs > 0 ? facts->targets / facts->inputs
                                              : 0),
                    "split_targets", facts->split_targets, "packing",
                    dataset_summary(dataset).packing, "chat_template",
                    dataset_summary(dataset).chat_template, "tokenizer",
                    tokenizer ? tokenizer_facts(tokenizer)->describe : NULL,
                    "first_bad_rows", first, "rows", rows));
    return json;
}

enum zd_status dataset_inspect_json(
        struct dataset *dataset, const struct tokenizer *tokenizer,
        const struct inspect_view *view, json_t **json_out)
{
    struct printer to = {NULL, tokenizer, view, {NULL}};
    struct dataset_facts facts;
    ZD_TRY(dataset_count(dataset, &facts));
    json_auto_t *samples = json_array();
    for (int64_t n = 0; n < view->count && n < dataset->samples; n++) {
        ZD_TRY(sample_read(dataset, n, &to.sample));
        json_array_append_new(samples, sample_json(&to, n));
    }
    *json_out = totals_json(dataset, &facts, tokenizer);
    json_object_set(*json_out, "shown", samples);
    return ZD_OK;
}

/* --- as a page --- */

static const char head[] =
        "<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n"
        "<title>zerod data inspect</title>\n"
        "<style>body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;"
        "padding:0 1em}td{padding:0 1em 0 0;vertical-align:top}"
        "pre{white-space:pre-wrap;overflow-wrap:anywhere;border:1px solid "
        "#ccc;padding:.8em}.t{background:#cdeccd}.m{color:#777}"
        "hr{border:0;border-top:1px dashed #999}</style>\n"
        "<h1>Data</h1>\n<p><span class=\"t\">The loss counts this text.</span> "
        "<span class=\"m\">It does not count this text.</span> A dashed line "
        "is where a document begins.</p>\n";

/* Text of the data: it can contain anything. */
static void put(FILE *out, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte == '&' || byte == '<' || byte == '>' || byte == '"')
            fprintf(out, "&#%d;", byte);
        else if (byte < ' ' && byte != '\n' && byte != '\t')
            fprintf(out, "\\x%02x", byte); /* HTML has no such character */
        else
            fputc(byte, out);
    }
}

static void put_json(FILE *out, const json_t *value)
{
    ZD_FREED char *text =
            json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    if (json_is_string(value))
        put(out, json_string_value(value), json_string_length(value));
    else if (text)
        put(out, text, strlen(text));
}

static void put_totals(FILE *out, const json_t *json)
{
    fputs("<table>\n", out);
    JSON_MEMBERS(key, value, json) {
        if (json_is_array(value) || json_is_object(value) ||
            json_is_null(value))
            continue;
        fprintf(out, "<tr><td>%s<td>", key);
        put_json(out, value);
        fputc('\n', out);
    }
    JSON_MEMBERS(key, note, json_object_get(json, "rows")) {
        JSON_EACH(row, json_object_get(note, "first")) {
            fprintf(out, "<tr><td>row: %s<td>", key);
            put_json(out, row);
            fputc('\n', out);
        }
    }
    fputs("</table>\n", out);
}

static void put_piece(FILE *out, const json_t *piece)
{
    bool is_trained = json_is_true(json_object_get(piece, "trained"));
    const json_t *ids = json_object_get(piece, "ids");
    if (json_object_get(piece, "begins_document"))
        fputs("<hr>", out);
    fprintf(out, "<span class=\"%c\"", is_trained ? 't' : 'm');
    if (ids) {
        fputs(" title=\"", out);
        put_json(out, ids);
        fputc('"', out);
    }
    fputc('>', out);
    put_json(out, json_object_get(piece, "text"));
    fputs("</span>", out);
}

void inspect_html(FILE *out, const json_t *json)
{
    fputs(head, out);
    put_totals(out, json);
    JSON_EACH(sample, json_object_get(json, "shown")) {
        fprintf(out, "<h2>Sample %lld: %lld tokens, %lld trained</h2>\n<pre>",
                (long long)json_integer_at(sample, "sample"),
                (long long)json_integer_at(sample, "tokens"),
                (long long)json_integer_at(sample, "trained"));
        JSON_EACH(piece, json_object_get(sample, "pieces"))
            put_piece(out, piece);
        fputs("</pre>\n", out);
    }
    fputs("</html>\n", out);
}
