/* fuzz_jinja.c - templates that somebody broke, or made to harm.
 *
 *   fuzz_jinja CASES.json SECONDS [SEED]    mutations of the cases' templates
 *
 * Beside what the sanitizers see: a text is UTF-8 and its spans are in it, a
 * refusal says why, and no template takes 5 seconds. */
#include "data/jinja/jinja.h"

#include "base/clock.h"

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
        json_t *text = json_stringn(out.text, out.bytes);
        need(text != NULL, "text that is not UTF-8", source);
        json_decref(text);
    }
    for (size_t i = 0; i < out.span_count; i++)
        need(out.spans[i].begin <= out.spans[i].end &&
                     out.spans[i].end <= out.bytes,
             "a span out of the text", source);
#ifndef __SANITIZE_ADDRESS__
    need(clock() - start < 5 * CLOCKS_PER_SEC, "5 seconds", source);
#endif
    (void)start;
    jinja_output_fini(&out);
    jinja_free(template);
}

static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 20;
}

/* A byte changed, bytes taken out, or a piece of another template put in. */
static void mutate(char *text, const json_t *cases, uint64_t *state)
{
    static const char *const words[] = {
            "{{",
            "}}",
            "{%",
            "%}",
            "{#",
            "-%}",
            "|",
            " is ",
            "(",
            ")",
            "[::-1]",
            "[",
            "'",
            "\\",
            "~",
            "9223372036854775807",
            "**",
            "%",
            " in ",
            "loop",
            "messages",
            "range(99999)",
            "\xc3",
            ",",
            "\xc3\xa9",
            " if ",
            "tojson(indent=9)"};
    size_t bytes = strlen(text), at = bytes ? next(state) % bytes : 0;
    const char *other = json_string_at(
            json_array_get(cases, next(state) % json_array_size(cases)),
            "template");
    size_t from = next(state) % (strlen(other) + 1);
    size_t length = next(state) % (strlen(other) - from + 1);
    const char *piece = other + from;
    uint64_t kind = next(state) % 5;
    if (kind == 0 && bytes) {
        text[at] = (char)(text[at] ^ 1 << next(state) % 7);
        text[at] = text[at] ? text[at] : ' ';
    } else if (kind == 1 && bytes) {
        size_t cut = 1 + next(state) % 12;
        cut = cut < bytes - at ? cut : bytes - at;
        memmove(text + at, text + at + cut, bytes - at - cut + 1);
    } else {
        if (kind < 4) {
            piece = words[next(state) % (sizeof words / sizeof words[0])];
            length = strlen(piece);
        }
        if (bytes + length >= MAX)
            return;
        memmove(text + at + length, text + at, bytes - at + 1);
        memcpy(text + at, piece, length);
    }
}

int main(int argc, char **argv)
{
    json_t *file = NULL;
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
        snprintf(text, sizeof text, "%s", source);
        for (uint64_t n = next(&state) % 6; n-- > 0;)
            mutate(text, cases, &state);
        render(text, json_object_get(file, "context"));
    }
    printf("1..1\nok 1 - %zu inputs, seed %llu\n", inputs,
           (unsigned long long)seed);
    json_decref(file);
    return 0;
}
