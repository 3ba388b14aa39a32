#include "data/inspect.h"

#include "data/dataset_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Neighbouring tokens of one kind, gathered so that a character whose bytes
 * several tokens share is printed whole. */
struct stretch {
    FILE *out;
    const struct tokenizer *tokenizer;
    bool colour, is_trained;
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

/* C0 controls, DEL, and C1 controls (which UTF-8 writes as C2 80 .. C2 9F). */
static bool is_control(const char *text, size_t left)
{
    unsigned char c = (unsigned char)text[0];
    if (c == '\n' || c == '\t')
        return false;
    if (c < 0x20 || c == 0x7f)
        return true;
    return c == 0xc2 && left > 1 && (unsigned char)text[1] < 0xa0;
}

static void print_text(FILE *out, const char *text, size_t bytes)
{
    while (bytes > 0) {
        size_t valid = utf8_valid_prefix(text, bytes), plain = 0;
        while (plain < valid && !is_control(text + plain, bytes - plain))
            plain++;
        fwrite(text, 1, plain, out);
        if (plain < bytes)
            fprintf(out, "\\x%02x", (unsigned char)text[plain++]);
        /* the second byte of a C1 control is now no UTF-8 by itself and is
         * escaped by the next round */
        text += plain;
        bytes -= plain;
    }
}

static void stretch_flush(struct stretch *stretch)
{
    if (stretch->bytes == 0)
        return;
    const char *before = "", *behind = "";
    if (!stretch->is_trained) {
        before = stretch->colour ? "\033[2m" : "[-";
        behind = stretch->colour ? "\033[22m" : "-]";
    }
    fputs(before, stretch->out);
    print_text(stretch->out, stretch->text, stretch->bytes);
    fputs(behind, stretch->out);
    stretch->bytes = 0;
}

static enum zd_status stretch_token(
        struct stretch *stretch, int32_t id, bool is_trained)
{
    const char *text;
    size_t bytes;
    char number[16];
    if (is_trained != stretch->is_trained)
        stretch_flush(stretch);
    stretch->is_trained = is_trained;
    if (!stretch->tokenizer) {
        bytes = (size_t)snprintf(number, sizeof number, "%d ", id);
        text = number;
    } else if (
            tokenizer_token_bytes(stretch->tokenizer, id, &text, &bytes) !=
            ZD_OK) {
        /* pre-tokenised data may know more ids than this tokenizer */
        zd_error_clear();
        bytes = (size_t)snprintf(number, sizeof number, "<%d>", id);
        text = number;
    }
    return stretch_append(stretch, text, bytes);
}

struct sample {
    int32_t *tokens, *targets, *doc_start; /* (T) each */
    int token_count;
};

static int count_trained(const struct sample *sample, int T)
{
    int count = 0;
    for (int t = 0; t < T; t++)
        count += sample->targets[t] >= 0;
    return count;
}

/* Token t is trained when it is the target of the one before it. */
static enum zd_status print_sample(
        struct stretch *stretch, const struct sample *sample, int T)
{
    for (int t = 0; t < sample->token_count; t++) {
        if (t > 0 && sample->doc_start[t] == t) {
            stretch_flush(stretch);
            fputs("\n--- document ---\n", stretch->out);
        }
        ZD_TRY(stretch_token(
                stretch, sample->tokens[t],
                t > 0 && sample->targets[t - 1] >= 0));
    }
    if (sample->targets[T - 1] >= 0)
        ZD_TRY(stretch_token(stretch, sample->targets[T - 1], true));
    stretch_flush(stretch);
    fputc('\n', stretch->out);
    return ZD_OK;
}

static void print_totals(FILE *out, const struct dataset *dataset)
{
    int64_t documents = 0, trained = 0, tokens = dataset_tokens(dataset);
    for (int i = 0; i < dataset->part_count; i++) {
        int64_t d = corpus_documents(&dataset->parts[i].corpus);
        int64_t t = corpus_trained(&dataset->parts[i].corpus);
        documents = documents < 0 || d < 0 ? -1 : documents + d;
        trained = trained < 0 || t < 0 ? -1 : trained + t;
    }
    if (documents >= 0)
        fprintf(out, "%lld documents, ", (long long)documents);
    fprintf(out, "%lld tokens, %lld samples of %d tokens", (long long)tokens,
            (long long)dataset->samples, dataset->T);
    if (trained >= 0)
        fprintf(out, ", %.1f %% of the tokens trained",
                100.0 * (double)trained / (double)tokens);
    fputc('\n', out);
}

static enum zd_status print_samples(
        struct stretch *stretch, struct dataset *dataset, int64_t count,
        struct sample *sample)
{
    int64_t targets = 0, inputs = 0;
    for (int64_t n = 0; n < count; n++) {
        ZD_TRY(dataset_sample(
                dataset, n, sample->tokens, sample->targets, sample->doc_start,
                &sample->token_count));
        int trained = count_trained(sample, dataset->T);
        fprintf(stretch->out, "\n=== sample %lld: %d tokens, %d trained ===\n",
                (long long)n, sample->token_count, trained);
        ZD_TRY(print_sample(stretch, sample, dataset->T));
        targets += trained;
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
        int64_t count, bool colour)
{
    size_t T = (size_t)dataset->T;
    struct stretch stretch = {
            .out = out, .tokenizer = tokenizer, .colour = colour};
    int32_t *arrays = malloc(3 * T * sizeof *arrays);
    if (!arrays)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602", "out of memory printing samples");
    struct sample sample = {arrays, arrays + T, arrays + 2 * T, 0};
    print_totals(out, dataset);
    if (count > dataset->samples)
        count = dataset->samples;
    enum zd_status status = print_samples(&stretch, dataset, count, &sample);
    if (status == ZD_OK && fflush(out) != 0)
        status =
                ZD_FAIL(ZD_ERR_IO, "E0707", "cannot write the samples: %s",
                        strerror(errno));
    free(stretch.text);
    free(arrays);
    return status;
}
