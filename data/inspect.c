#include "data/inspect.h"

#include "base/printable.h"
#include "data/dataset_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Neighbouring tokens of one kind, gathered so that a character whose bytes
 * several tokens share is printed whole. */
struct stretch {
    FILE *out;
    const struct tokenizer *tokenizer;
    bool color, is_trained;
    char *text; /* owned */
    size_t bytes, capacity;
};

static enum zd_status stretch_append(
        struct stretch *stretch, const char *text, size_t bytes)
{
    if (stretch->bytes + bytes > stretch->capacity) {
        size_t capacity = 2 * (stretch->bytes + bytes);
        char *grown = realloc(stretch->text, capacity);
        if (!grown)
            return ZD_FAIL(
                    ZD_ERR_MEMORY, "E0602", "out of memory printing samples");
        stretch->text = grown;
        stretch->capacity = capacity;
    }
    memcpy(stretch->text + stretch->bytes, text, bytes);
    stretch->bytes += bytes;
    return ZD_OK;
}

/* Also into a file: the text is looked at, and marks of ours are in it. */
static void print_text(FILE *out, const char *text, size_t bytes)
{
    struct printable to = {.out = out, .is_terminal = true};
    printable_put(&to, text, bytes);
    printable_end(&to);
}

static void stretch_flush(struct stretch *stretch)
{
    if (stretch->bytes == 0)
        return;
    const char *before = "", *behind = "";
    if (!stretch->is_trained) {
        before = stretch->color ? "\033[2m" : "[-";
        behind = stretch->color ? "\033[22m" : "-]";
    }
    fputs(before, stretch->out);
    print_text(stretch->out, stretch->text, stretch->bytes);
    fputs(behind, stretch->out);
    stretch->bytes = 0;
}

const char *inspect_token_text(
        const struct tokenizer *tokenizer, int32_t id, char number[16],
        size_t *bytes_out)
{
    const char *text;
    if (tokenizer &&
        tokenizer_token_bytes(tokenizer, id, &text, bytes_out) == ZD_OK)
        return text;
    /* pre-tokenized data may know more ids than this tokenizer */
    zd_error_clear();
    *bytes_out = (size_t)snprintf(number, 16, tokenizer ? "<%d>" : "%d ", id);
    return number;
}

static enum zd_status stretch_token(
        struct stretch *stretch, int32_t id, bool is_trained)
{
    char number[16];
    size_t bytes;
    if (is_trained != stretch->is_trained)
        stretch_flush(stretch);
    stretch->is_trained = is_trained;
    const char *text =
            inspect_token_text(stretch->tokenizer, id, number, &bytes);
    return stretch_append(stretch, text, bytes);
}

/* --- one sample --- */

enum zd_status inspect_sample_init(
        struct inspect_sample *sample, const struct dataset *dataset)
{
    size_t T = (size_t)dataset->T;
    int32_t *arrays = malloc(3 * T * sizeof *arrays);
    if (!arrays)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602", "out of memory printing samples");
    *sample = (struct inspect_sample){
            .tokens = arrays,
            .targets = arrays + T,
            .doc_start = arrays + 2 * T};
    return ZD_OK;
}

void inspect_sample_fini(struct inspect_sample *sample)
{
    free(sample->tokens);
}

/* A token is trained when it is a target, that of the one before it. */
enum zd_status inspect_sample_read(
        struct dataset *dataset, int64_t n, struct inspect_sample *sample)
{
    int T = dataset->T;
    ZD_TRY(dataset_sample(
            dataset, n, sample->tokens, sample->targets, sample->doc_start,
            &sample->token_count));
    sample->trained = 0;
    for (int t = 0; t < T; t++)
        sample->trained += sample->targets[t] >= 0;
    sample->shown = sample->token_count + (sample->targets[T - 1] >= 0);
    return ZD_OK;
}

int32_t inspect_sample_token(
        const struct inspect_sample *sample, int t, bool *trained_out,
        bool *begins_out)
{
    bool is_input = t < sample->token_count;
    *trained_out = t > 0 && sample->targets[t - 1] >= 0;
    *begins_out = is_input && t > 0 && sample->doc_start[t] == t;
    return is_input ? sample->tokens[t] : sample->targets[t - 1];
}

static enum zd_status print_sample(
        struct stretch *stretch, const struct inspect_sample *sample)
{
    for (int t = 0; t < sample->shown; t++) {
        bool is_trained, begins;
        int32_t id = inspect_sample_token(sample, t, &is_trained, &begins);
        if (begins) {
            stretch_flush(stretch);
            fputs("\n--- document ---\n", stretch->out);
        }
        ZD_TRY(stretch_token(stretch, id, is_trained));
    }
    stretch_flush(stretch);
    fputc('\n', stretch->out);
    return ZD_OK;
}

/* A line feed within a token would look like the end of its line. */
static bool is_escaped(char c)
{
    return c == '\n' || c == '\t' || c == '\\';
}

static void print_token(
        const struct stretch *stretch, int32_t id, bool is_trained)
{
    char number[16];
    size_t bytes;
    const char *text =
            inspect_token_text(stretch->tokenizer, id, number, &bytes);
    bool dims = stretch->color && !is_trained;
    fprintf(stretch->out, "%s%8d %c ", dims ? "\033[2m" : "", id,
            is_trained ? '+' : '-');
    for (size_t i = 0; stretch->tokenizer && i < bytes;) {
        size_t line = 0;
        while (i + line < bytes && !is_escaped(text[i + line]))
            line++;
        print_text(stretch->out, text + i, line);
        i += line;
        if (i < bytes)
            fprintf(stretch->out, "\\%c",
                    text[i] == '\n'   ? 'n'
                    : text[i] == '\t' ? 't'
                                      : '\\');
        i++;
    }
    fputs(dims ? "\033[22m\n" : "\n", stretch->out);
}

static void print_tokens(
        const struct stretch *stretch, const struct inspect_sample *sample)
{
    for (int t = 0; t < sample->shown; t++) {
        bool is_trained, begins;
        int32_t id = inspect_sample_token(sample, t, &is_trained, &begins);
        if (begins)
            fputs("--- document ---\n", stretch->out);
        print_token(stretch, id, is_trained);
    }
}

/* --- all of it --- */

static enum zd_status print_totals(FILE *out, struct dataset *dataset)
{
    struct dataset_facts facts;
    const char *chat = dataset_chat_template(dataset);
    long long samples = (long long)dataset->samples;
    ZD_TRY(dataset_count(dataset, &facts));
    if (facts.documents >= 0)
        fprintf(out, "%lld document%s, ", (long long)facts.documents,
                facts.documents == 1 ? "" : "s");
    fprintf(out,
            "%lld tokens, %lld sample%s of %d tokens; %.1f %% of the targets "
            "are trained\n",
            (long long)dataset_tokens(dataset), samples,
            samples == 1 ? "" : "s", dataset->T,
            facts.inputs > 0 ? 100 * facts.targets / facts.inputs : 0);
    if (facts.cut_documents > 0)
        fprintf(out,
                "data.cutoff_len cuts %lld document%s; %lld of their %lld "
                "tokens are left out\n",
                (long long)facts.cut_documents,
                facts.cut_documents == 1 ? "" : "s",
                (long long)facts.lost_tokens, (long long)facts.cut_tokens);
    if (facts.split_documents > 0)
        fprintf(out,
                "packing cuts %lld of %lld documents; %.0f of %.0f trained "
                "tokens are in a sample without the beginning of their "
                "document\n",
                (long long)facts.split_documents,
                (long long)facts.packed_documents, facts.split_targets,
                facts.targets);
    if (chat)
        fprintf(out, "chat template %s\n", chat);
    return ZD_OK;
}

static enum zd_status print_samples(
        struct stretch *stretch, struct dataset *dataset,
        const struct inspect_view *view, struct inspect_sample *sample)
{
    int64_t targets = 0, inputs = 0;
    for (int64_t n = 0; n < view->count && n < dataset->samples; n++) {
        ZD_TRY(inspect_sample_read(dataset, n, sample));
        fprintf(stretch->out, "\n=== sample %lld: %d tokens, %d trained ===\n",
                (long long)n, sample->token_count, sample->trained);
        if (view->ids)
            print_tokens(stretch, sample);
        else
            ZD_TRY(print_sample(stretch, sample));
        targets += sample->trained;
        inputs += sample->token_count;
    }
    if (inputs > 0)
        fprintf(stretch->out,
                "\n%lld of the %lld targets shown are trained (%.1f %%)\n",
                (long long)targets, (long long)inputs,
                100.0 * (double)targets / (double)inputs);
    return ZD_OK;
}

enum zd_status dataset_inspect(
        FILE *out, struct dataset *dataset, const struct tokenizer *tokenizer,
        const struct inspect_view *view)
{
    struct stretch stretch = {
            .out = out, .tokenizer = tokenizer, .color = view->color};
    struct inspect_sample sample;
    ZD_TRY(print_totals(out, dataset));
    ZD_TRY(inspect_sample_init(&sample, dataset));
    enum zd_status status = print_samples(&stretch, dataset, view, &sample);
    if (status == ZD_OK && fflush(out) != 0)
        status =
                ZD_FAIL(ZD_ERR_IO, "E0707", "cannot write the samples: %s",
                        strerror(errno));
    free(stretch.text);
    inspect_sample_fini(&sample);
    return status;
}
