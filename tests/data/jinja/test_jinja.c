/* Chat templates of models: the text that Jinja makes of them
 * (tests/reference/make_chat_templates.py), and what is not known here. */
#include "base/file/fs.h"
#include "data/jinja/internal.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static json_t *context_of(json_t *messages)
{
    return json_pack(
            "{s:O, s:s, s:s, s:n, s:b, s:s}", "messages", messages, "bos_token",
            "<s>", "eos_token", "</s>", "tools", "add_generation_prompt", 0,
            "strftime_now", "2026-01-01");
}

/* Parsed and rendered; the text, to be freed, is NULL where either failed. */
static enum jinja_result render(
        const char *source, const json_t *context, char **text_out, char *why,
        size_t why_bytes)
{
    struct jinja_template *template;
    struct jinja_output out = {0};
    enum jinja_result result = jinja_parse(source, &template, why, why_bytes);
    if (result == JINJA_DONE) {
        result = jinja_render(template, context, NULL, &out, why, why_bytes);
        jinja_free(template);
    }
    free(out.spans);
    *text_out = out.text;
    return result;
}

static json_t *fixture(const char *name)
{
    json_t *file = NULL;
    char path[4096];
    ZD_PRINT(path, "%s/%s", ZD_FIXTURES, name);
    cr_assert_eq(json_parse_file(path, 1 << 24, &file), ZD_OK);
    return file;
}

static bool are_spans(const struct jinja_output *out, const json_t *spans)
{
    bool is_good = out->span_count == json_array_size(spans);
    for (size_t i = 0; is_good && i < out->span_count; i++) {
        const json_t *span = json_array_get(spans, i);
        is_good = (json_int_t)out->spans[i].begin ==
                          json_integer_value(json_array_get(span, 0)) &&
                  (json_int_t)out->spans[i].end ==
                          json_integer_value(json_array_get(span, 1));
    }
    return is_good;
}

/* Renders, and compares with a result of the fixture: text and spans, what was
 * raised, or that it failed, with a line. */
static void expect(
        const char *name, const char *source, const json_t *context,
        const json_t *want)
{
    struct jinja_template *template = NULL;
    struct jinja_output out = {0};
    const json_t *text = json_object_get(want, "text");
    const char *raised = json_string_at(want, "raised");
    char why[400];
    enum jinja_result result = jinja_parse(source, &template, why, sizeof why);
    if (result == JINJA_DONE)
        result = jinja_render(template, context, NULL, &out, why, sizeof why);
    cr_expect_eq(
            result,
            text     ? JINJA_DONE
            : raised ? JINJA_RAISED
                     : JINJA_FAILED,
            "%s: %d, %s", name, result, why);
    if (text && result == JINJA_DONE) {
        cr_expect(
                out.bytes == json_string_length(text) &&
                        memcmp(out.text, json_string_value(text), out.bytes) ==
                                0,
                "%s: %s", name, out.text);
        cr_expect(are_spans(&out, json_object_get(want, "spans")), "%s", name);
    }
    if (raised)
        cr_expect_str_eq(why, raised, "%s", name);
    if (json_object_get(want, "failed"))
        cr_expect(strncmp(why, "line ", 5) == 0, "%s: %s", name, why);
    jinja_output_fini(&out);
    jinja_free(template);
}

Test(jinja, templates_make_the_text_that_transformers_makes)
{
    json_t *file = fixture("chat_templates.json");
    json_t *conversations = json_object_get(file, "conversations");
    size_t count = 0;
    JSON_EACH(row, json_object_get(file, "templates")) {
        JSON_MEMBERS(which, want, json_object_get(row, "results")) {
            json_t *context = context_of(json_object_get(conversations, which));
            expect(json_string_at(row, "name"), json_string_at(row, "template"),
                   context, want);
            json_decref(context);
            count++;
        }
    }
    cr_expect_geq(count, 24);
    json_decref(file);
}

static void digest(
        enum jinja_result result, const struct jinja_output *out,
        const char *why, char text[64])
{
    XXH64_state_t *state = XXH64_createState();
    const char *bytes = result == JINJA_DONE ? out->text : why;
    XXH64_reset(state, 0);
    XXH64_update(state, bytes, result == JINJA_DONE ? out->bytes : strlen(why));
    for (size_t i = 0; i < out->span_count; i++)
        XXH64_update(
                state, text,
                (size_t)snprintf(
                        text, 64, " %zu-%zu", out->spans[i].begin,
                        out->spans[i].end));
    snprintf(
            text, 64, "%s%016llx", result == JINJA_RAISED ? "raised " : "",
            (unsigned long long)XXH64_digest(state));
    if (result == JINJA_FAILED)
        strcpy(text, "failed");
    XXH64_freeState(state);
}

/* Conversations with tools, calls, thoughts and odd text. */
Test(jinja, texts_of_a_corpus_have_the_digests_of_transformers)
{
    json_t *file = fixture("chat_templates.json");
    size_t count = 0;
    char why[400], found[64];
    JSON_EACH(row, json_object_get(file, "templates")) {
        struct jinja_template *template = NULL;
        cr_assert_eq(
                jinja_parse(
                        json_string_at(row, "template"), &template, why,
                        sizeof why),
                JINJA_DONE, "%s", why);
        JSON_EACH_AT(k, context, json_object_get(file, "contexts")) {
            struct jinja_output out = {0};
            digest(jinja_render(template, context, NULL, &out, why, sizeof why),
                   &out, why, found);
            cr_expect_str_eq(
                    found,
                    json_string_value(
                            json_array_get(json_object_get(row, "digests"), k)),
                    "%s, context %zu: %s", json_string_at(row, "name"), k,
                    out.text ? out.text : why);
            jinja_output_fini(&out);
            count++;
        }
        jinja_free(template);
    }
    cr_expect_geq(count, 320);
    json_decref(file);
}

Test(jinja, constructs_do_what_they_do_in_python)
{
    json_t *file = fixture("jinja_cases.json");
    const json_t *cases = json_object_get(file, "cases");
    JSON_EACH(row, cases)
        expect(json_string_at(row, "name"), json_string_at(row, "template"),
               json_object_get(file, "context"), row);
    cr_expect_geq(json_array_size(cases), 91);
    json_decref(file);
}

/* A case whose template holds one of these, followed by no letter. */
static bool has_case(const json_t *cases, const char *before, const char *name)
{
    size_t length = strlen(name), skip = strlen(before);
    JSON_EACH(row, cases) {
        const char *at = json_string_at(row, "template");
        while ((at = strstr(at, before))) {
            at += skip;
            if (strncmp(at, name, length) == 0 && !isalnum(at[length]) &&
                at[length] != '_')
                return true;
        }
    }
    return false;
}

Test(jinja, every_filter_test_method_and_function_has_a_case)
{
    json_auto_t *file = fixture("jinja_cases.json");
    const json_t *cases = json_object_get(file, "cases");
    const struct {
        const struct row *rows;
        const char *before[3];
    } tables[] = {
            {jinja_filters, {"|", "| ", "|"}},
            {jinja_tests, {" is ", " is not ", "select('"}},
            {jinja_methods, {".", ".", "."}},
            {jinja_functions, {"{{ ", "in ", "= "}},
    };
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        for (const struct row *row = tables[i].rows; row->name; row++) {
            bool is_covered = false;
            for (int k = 0; k < 3; k++)
                is_covered |= has_case(cases, tables[i].before[k], row->name);
            cr_expect(is_covered, "%s", row->name);
        }
}

/* What is not supported is named, with its line; so is what Python refuses. */
Test(jinja, what_is_not_known_is_said)
{
    static const char signs[] = "=?!";
    static const enum jinja_result results[] = {
            JINJA_DONE, JINJA_UNKNOWN, JINJA_FAILED};
    json_auto_t *messages = json_pack("[{s:s}]", "role", "user");
    char *file, *line, *source = NULL;
    size_t bytes;
    int count = 0;
    cr_assert_eq(
            fs_read_file(
                    ZD_SOURCE "/tests/data/cases/refused_templates.txt",
                    1 << 20, &file, &bytes),
            ZD_OK);
    for (char *rest = file; (line = strsep(&rest, "\n"));) {
        char *text = NULL, why[200];
        for (char *c = line; *line == '-' && *c; c++)
            *c = *c == '~' ? '\n' : *c == '^' ? '\xff' : *c;
        source = *line == '-' ? line + 2 : source;
        const char *sign = *line ? strchr(signs, *line) : NULL;
        if (!sign)
            continue;
        json_t *context = context_of(messages);
        cr_expect_eq(
                render(source, context, &text, why, sizeof why),
                results[sign - signs], "%s: %s", source, why);
        cr_expect(
                strstr(why, line + 1 + (line[1] == ' ')), "%s: %s", source,
                why);
        free(text);
        json_decref(context);
        count++;
    }
    cr_expect_geq(count, 52);
    free(file);
}

/* A date is given by whoever renders; without one there is no such function. */
Test(jinja, dates_come_from_the_context)
{
    char *text, why[200];
    json_t *none = json_object(),
           *wrong = json_pack("{s:s}", "strftime_now", "2026-13-01");
    cr_expect_eq(
            render("{{ strftime_now is defined }}", none, &text, why,
                   sizeof why),
            JINJA_DONE);
    cr_expect_str_eq(text, "False");
    free(text);
    cr_expect_eq(
            render("{{ strftime_now('%Y') }}", wrong, &text, why, sizeof why),
            JINJA_FAILED, "%s", why);
    json_decref(none);
    json_decref(wrong);
}

/* Pieces with tabs between them, each after its number of times; to be freed.
 */
static char *pieces_of(char *line)
{
    char *text = NULL, *piece;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    while ((piece = strsep(&line, "\t"))) {
        long times = strtol(piece, &piece, 10);
        for (; times > 0; times--)
            fputs(piece + 1, out);
    }
    fclose(out);
    return text;
}

/* `says` NULL: it is rendered. */
static void check_budget(const char *source, const char *says)
{
    json_auto_t *messages = json_pack("[{s:s}]", "role", "user");
    json_auto_t *context = context_of(messages);
    char *text = NULL, why[200];
    enum jinja_result result = render(source, context, &text, why, sizeof why);
    cr_expect_eq(
            result, says ? JINJA_OVER : JINJA_DONE, "%.60s: %s", source, why);
    cr_expect(!says || strstr(why, says), "%.60s: %s", source, why);
    free(text);
}

/* A template that wants all of the stack, the time or the memory there is ends
 * as one that is over budget; what is merely long is rendered. */
Test(jinja, nothing_takes_more_than_its_budget)
{
    char *file, *line;
    int count = 0;
    cr_assert_eq(
            fs_read_file(
                    ZD_SOURCE "/tests/data/cases/template_budgets.txt", 1 << 20,
                    &file, NULL),
            ZD_OK);
    for (char *rest = file; (line = strsep(&rest, "\n"));) {
        if (!*line || *line == '#')
            continue;
        char *says = strsep(&line, "\t"), *source = pieces_of(line);
        count++;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
        /* a whole budget takes a minute there; fuzz_jinja has such ones too */
        if (strcmp(says, "levels deep") == 0)
#endif
            check_budget(source, *says == '-' ? NULL : says);
        free(source);
    }
    cr_expect_eq(count, 35);
    free(file);
}
