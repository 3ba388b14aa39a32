/* fuzz_jinja.c - templates that somebody broke, or made to harm.
 *
 *   fuzz_jinja CASES.json SECONDS [SEED]    mutations of the cases' templates
 *
 * Beside what the sanitizers see: a text is UTF-8 and its spans are in it, a
 * refusal says why, no template takes 5 seconds, and text with words in place
 * of marks is that of the words where a rendering says so (struct jinja_watch).
 */
#include "data/jinja/jinja.h"

#include "base/clock.h"
#include "tests/support/fuzz.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX = 8192 };

static void need(bool is_good, const char *what, const char *source)
{
    if (is_good)
        return;
    fprintf(stderr, "fuzz_jinja: %s\n%s\n", what, source);
    abort();
}

enum { WORDS_MAX = 8 };

/* A mark in place of what each message says. */
static json_t *marked_context(const json_t *context, const char *words[])
{
    json_t *marked = json_deep_copy(context);
    size_t count = 0;
    JSON_EACH_AT(i, message, json_object_get(marked, "messages")) {
        const json_t *content = json_object_get(message, "content");
        char mark[JINJA_MARK_BYTES];
        if (json_string_length(content) == 0 || count == WORDS_MAX)
            continue;
        words[count] = json_string_at(
                json_array_get(json_object_get(context, "messages"), i),
                "content");
        jinja_write_mark(count++, mark);
        json_object_set_new(
                message, "content", json_stringn(mark, sizeof mark));
    }
    return marked;
}

static void render_marked(
        const struct jinja_template *template, const char *source,
        const json_t *context, const struct jinja_output *wanted)
{
    const char *words[WORDS_MAX] = {0};
    bool quoted[WORDS_MAX] = {0};
    struct jinja_watch watch = {.is_quoted = quoted, .word_count = WORDS_MAX};
    struct jinja_limits limits = {
            .steps = SIZE_MAX, .bytes = SIZE_MAX, .watch = &watch};
    struct jinja_output out = {0};
    char why[300];
    json_auto_t *marked = marked_context(context, words);
    bool allows =
            jinja_render(template, marked, &limits, &out, why, sizeof why) ==
            JINJA_DONE;
    for (size_t i = 0; i < WORDS_MAX && words[i]; i++)
        allows &= jinja_watch_allows(&watch, i, words[i], strlen(words[i]));
    size_t at = 0;
    for (size_t i = 0; allows && i < out.bytes; at++) {
        bool is = jinja_is_mark(out.text + i, out.bytes - i);
        const char *piece =
                is ? words[jinja_mark_word(out.text + i)] : out.text + i;
        size_t bytes = is ? strlen(piece) : 1;
        need(bytes <= wanted->bytes - at &&
                     memcmp(piece, wanted->text + at, bytes) == 0,
             "other text than that of the words", source);
        i += is ? JINJA_MARK_BYTES : 1;
        at += bytes - 1;
    }
    need(!allows || at == wanted->bytes, "more text than is told", source);
    jinja_output_fini(&out);
}

static void render(const char *source, const json_t *context)
{
    struct jinja_template *template = NULL;
    struct jinja_output out = {0};
    char why[300];
    clock_t start = clock();
    enum jinja_result result = jinja_parse(source, &template, why, sizeof why);
    if (result == JINJA_DONE)
        result = jinja_render(template, context, NULL, &out, why, sizeof why);
    need(result == JINJA_DONE || result == JINJA_RAISED || why[0],
         "a refusal without a reason", source);
    if (result == JINJA_DONE) {
        json_auto_t *text = json_stringn(out.text, out.bytes);
        need(text != NULL, "text that is not UTF-8", source);
    }
    for (size_t i = 0; i < out.span_count; i++)
        need(out.spans[i].begin <= out.spans[i].end &&
                     out.spans[i].end <= out.bytes,
             "a span out of the text", source);
#ifndef __SANITIZE_ADDRESS__
    need(clock() - start < 5 * CLOCKS_PER_SEC, "5 seconds", source);
#endif
    (void)start;
    if (result == JINJA_DONE)
        render_marked(template, source, context, &out);
    jinja_output_fini(&out);
    jinja_free(template);
}

/* A byte changed, bytes taken out, or a piece of another template put in. */
static void mutate(char *text, const json_t *cases, uint64_t *state)
{
    /* each ends with a line feed */
    static const char words[] =
            "{{\n}}\n{%\n%}\n{#\n-%}\n|\n is \n(\n)\n[::-1]\n[\n'\n\\\n~\n"
            "9223372036854775807\n**\n%\n in \nloop\nmessages\nrange(99999)\n"
            "\xc3\n,\n\xc3\xa9\n if \ntojson(indent=9)\n";
    enum { WORDS = 27 };
    size_t bytes = strlen(text), at = bytes ? fuzz_next(state) % bytes : 0;
    const char *other = json_string_at(
            json_array_get(cases, fuzz_next(state) % json_array_size(cases)),
            "template");
    size_t from = fuzz_next(state) % (strlen(other) + 1);
    size_t length = fuzz_next(state) % (strlen(other) - from + 1);
    const char *piece = other + from;
    uint64_t kind = fuzz_next(state) % 5;
    if (kind == 0 && bytes) {
        text[at] = (char)(text[at] ^ 1 << fuzz_next(state) % 7);
        text[at] = text[at] ? text[at] : ' ';
    } else if (kind == 1 && bytes) {
        size_t cut = 1 + fuzz_next(state) % 12;
        cut = cut < bytes - at ? cut : bytes - at;
        memmove(text + at, text + at + cut, bytes - at - cut + 1);
    } else {
        if (kind < 4) {
            piece = words;
            for (uint64_t n = fuzz_next(state) % WORDS; n > 0; n--)
                piece = strchr(piece, '\n') + 1;
            length = strcspn(piece, "\n");
        }
        if (bytes + length >= MAX)
            return;
        memmove(text + at + length, text + at, bytes - at + 1);
        memcpy(text + at, piece, length);
    }
}

/* The n-th text in quotes becomes what a message says. */
static void take_literal(char *text, json_t *context, uint64_t n)
{
    static const char name[] = "messages[1].content";
    char *begin = text, *end = NULL;
    for (begin = strchr(begin, '\''); begin; begin = strchr(end + 1, '\'')) {
        end = strchr(begin + 1, '\'');
        if (!end || n-- == 0)
            break;
    }
    size_t bytes = begin && end ? (size_t)(end - begin) - 1 : 0;
    json_t *literal = json_stringn(begin ? begin + 1 : "", bytes);
    if (bytes == 0 || !literal || memchr(begin, '\\', bytes + 1) ||
        (unsigned char)begin[1] <= ' ' || (unsigned char)end[-1] <= ' ' ||
        strlen(text) + sizeof name >= MAX) {
        json_decref(literal);
        return;
    }
    json_object_set_new(
            json_array_get(json_object_get(context, "messages"), 1), "content",
            literal);
    memmove(begin + sizeof name - 1, end + 1, strlen(end + 1) + 1);
    memcpy(begin, name, sizeof name - 1);
}

int main(int argc, char **argv)
{
    json_auto_t *file = NULL;
    char text[MAX];
    if (argc < 3 || json_parse_file(argv[1], 1 << 24, &file) != ZD_OK)
        return 1;
    json_t *cases = json_object_get(file, "cases");
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1, state = seed;
    double end = clock_seconds() + strtod(argv[2], NULL);
    size_t inputs = 0;
    for (; clock_seconds() < end; inputs++) {
        const char *source = json_string_at(
                json_array_get(cases, inputs % json_array_size(cases)),
                "template");
        ZD_PRINT(text, "%s", source);
        for (uint64_t n = fuzz_next(&state) % 6; n-- > 0;)
            mutate(text, cases, &state);
        json_auto_t *context = json_deep_copy(json_object_get(file, "context"));
        take_literal(text, context, fuzz_next(&state) % 8);
        render(text, context);
    }
    printf("1..1\nok 1 - %zu inputs, seed %llu\n", inputs,
           (unsigned long long)seed);
    return 0;
}
