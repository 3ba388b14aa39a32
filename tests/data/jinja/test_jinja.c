/* Chat templates of models: the text that Jinja makes of them
 * (tests/reference/make_chat_templates.py), and what is not known here. */
#include "data/jinja/jinja.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

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
        result = jinja_render(template, context, &out, why, why_bytes);
        jinja_free(template);
    }
    free(out.spans);
    *text_out = out.text;
    return result;
}

Test(jinja, templates_make_the_text_that_jinja_makes)
{
    json_t *file, *row, *expected;
    size_t i, count = 0;
    const char *which;
    cr_assert_eq(
            json_parse_file(ZD_FIXTURES "/chat_templates.json", 1 << 20, &file),
            ZD_OK);
    json_t *conversations = json_object_get(file, "conversations");
    json_array_foreach(json_object_get(file, "templates"), i, row)
    {
        const char *name = json_string_value(json_object_get(row, "name"));
        json_object_foreach(json_object_get(row, "results"), which, expected)
        {
            const char *want =
                    json_string_value(json_object_get(expected, "text"));
            const char *raised =
                    json_string_value(json_object_get(expected, "raised"));
            json_t *context = context_of(json_object_get(conversations, which));
            char *text = NULL, why[200];
            enum jinja_result result =
                    render(json_string_value(json_object_get(row, "template")),
                           context, &text, why, sizeof why);
            cr_expect_eq(
                    result, raised ? JINJA_RAISED : JINJA_DONE, "%s, %s: %s",
                    name, which, why);
            if (raised)
                cr_expect_str_eq(why, raised);
            else if (text)
                cr_expect_str_eq(text, want, "%s, %s: %s", name, which, text);
            free(text);
            json_decref(context);
            count++;
        }
    }
    cr_expect_geq(count, 21);
    json_decref(file);
}

/* Whatever the text: an answer, no crash, no endless loop. */
Test(jinja, what_is_not_known_is_said)
{
    static const char *const rows[][2] = {
            {"{% macro m() %}{% endmacro %}", "macro"},
            {"{{ messages | selectattr('role') }}", "selectattr"},
            {"{{ 'a'.title() }}", ".title()"},
            {"{{ lipsum() }}", "lipsum()"},
            {"{% for m in messages if m %}{% endfor %}", "condition"},
            {"{% for m in messages %}", "without its end"},
            {"{% if true %}", "without its end"},
            {"{{ 'a' ", "without its end"},
            {"{{ }}", "ends early"},
            {"{{ 1 1 }}", "`1"},
            {"{{ absent.a.b }}", "undefined"},
            {"{{ 4000000000 * 4000000000 }}", "64 bits"},
            {"{{ 99999999999999999999 }}", "64 bits"},
            {"{{ 'ab' * 3 }}", "a product"},
            {"{{ 3 % 0 }}", "a product"},
            {"{% set a %}b{% endset %}", "set"},
            {"{{ 1 is odd }}", "the test odd"},
            {"{% if true %}{% endfor %}", "endfor"},
            {"{% else %}", "else"},
            {"{% set m.x = 1 %}", "no namespace"},
            {"{% set n = namespace(a=1) %}{% set m = [n] %}", "namespace n"},
            {"{% set n = namespace() %}{% set n.x = n %}", "namespace n"},
    };
    json_t *messages = json_pack("[{s:s}]", "role", "user");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_t *context = context_of(messages);
        char *text = NULL, why[200];
        cr_expect_eq(
                render(rows[i][0], context, &text, why, sizeof why),
                JINJA_UNKNOWN, "%s", rows[i][0]);
        cr_expect(strstr(why, rows[i][1]), "%s: %s", rows[i][0], why);
        free(text);
        json_decref(context);
    }
    json_decref(messages);
}

/* `count` times `part` in front of `end`; to be freed. */
static char *repeat(const char *part, size_t count, const char *end)
{
    size_t bytes = strlen(part);
    char *text = malloc(count * bytes + strlen(end) + 1);
    for (size_t i = 0; i < count; i++)
        memcpy(text + i * bytes, part, bytes);
    strcpy(text + count * bytes, end);
    return text;
}

#define THIRTY(x) x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x

/* A template that wants all of the stack, the time or the memory there is ends
 * as one that is over budget; what is merely long is rendered. */
Test(jinja, nothing_takes_more_than_its_budget)
{
    static const struct {
        const char *part;
        size_t count;
        const char *end, *says; /* NULL: rendered */
    } rows[] =
            {
                    {"{{ (", 1, "1) }}", NULL},
                    {"(", 13000, "1", "levels deep"},
                    {"[", 13000, "1", "levels deep"},
                    {"{'a':", 13000, "1", "levels deep"},
                    {"not ", 13000, "1", NULL},
                    {"not ", 3000000, "1", "steps"},
                    {"1 if 1 else ", 13000, "1", "levels deep"},
                    {"x[", 13000, "1", "levels deep"},
                    {"f(", 13000, "1", "levels deep"},
                    {"-(", 13000, "1", "levels deep"},
                    {"{% if 1 %}", 13000, "", "levels deep"},
                    {"{% if 1 %}{% endif %}", 50000, "", NULL},
                    {"{{ 1 }}{{ 2 }}", 2048, "{% if 0 %}", "without its end"},
                    {"{{ 1 }}{{ 2 }}", 2047, "a{% if 0 %}", "without its end"},
                    {"{{ 1 }}", 3000000, "", "steps"},
                    {"{% for i in range(90000) %}", 2,
                     "x{% endfor %}{% endfor %}", "steps"},
                    {"{% set n = namespace(s='ab') %}{% for i in range(99) %}"
                     "{% set n.s = n.s ~ n.s %}{% endfor %}",
                     1, "", "MiB"},
                    {"{% set n = namespace(s='a') %}{% for i in range(40) %}{% "
                     "set n.s "
                     "= n.s.replace('a', 'aa') %}{% endfor %}",
                     1, "", "steps"},
                    /* 2^60 values in two lists of 60 */
                    {"{% set n = namespace(a=[1], b=[1]) %}{% for i in "
                     "range(60) %}"
                     "{% set n.a = [n.a, n.a] %}{% set n.b = [n.b, n.b] %}{% "
                     "endfor %}"
                     "{{ n.a == n.b }}",
                     1, "", "steps"},
                    {"{% set n = namespace(a=[1]) %}{% for i in range(60) %}"
                     "{% set n.a = [n.a, n.a] %}{% endfor %}{{ n.a }}",
                     1, "", "steps"},
                    {"{% set n = namespace(a={}) %}{% for i in range(60) %}"
                     "{% set n.a = {'x': n.a, 'y': n.a} %}{% endfor %}"
                     "{{ n.a | tojson }}",
                     1, "", "steps"},
                    /* deep values, compared, printed and freed */
                    {"{% set n = namespace(a=1, b=1) %}{% for i in "
                     "range(20000) %}"
                     "{% set n.a = [n.a] %}{% set n.b = [n.b] %}{% endfor %}",
                     1, "{{ n.a == n.b }}", "levels deep"},
                    {"{% set n = namespace(a=1) %}{% for i in range(20000) %}"
                     "{% set n.a = [n.a] %}{% endfor %}",
                     1, "{{ n.a in [n.a] }}", NULL},
                    {"{% set n = namespace(a=1) %}{% for i in range(20000) %}"
                     "{% set n.a = [n.a] %}{% endfor %}{% set n = 1 %}",
                     1, "", NULL},
                    {"{{ ", 1, "range(90000000) }}", "MiB"},
                    {"{{ ", 1, THIRTY(THIRTY("' ' ~ ")) "1 }}", NULL},
                    {"{% for i in range(99999) %}{{ '", 1,
                     THIRTY(THIRTY("long text of a template, read anew each "
                                   "time")) "' == 'b' }}{% endfor %}",
                     "steps"},
                    {"{% for i in range(99999) %}{{", 1,
                     THIRTY(THIRTY("                                           "
                                   " ")) "1 }}{% endfor %}",
                     "steps"},
            };
    json_t *messages = json_pack("[{s:s}]", "role", "user");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_t *context = context_of(messages);
        char *text = NULL, why[200];
        bool is_bare = rows[i].part[0] != '{' || rows[i].part[1] == '\'';
        char *source = repeat(rows[i].part, rows[i].count, rows[i].end);
        char *whole = NULL;
        cr_assert_geq(
                asprintf(
                        &whole, "%s%s%s", is_bare ? "{{ " : "", source,
                        is_bare ? " }}" : ""),
                0);
        enum jinja_result result =
                render(whole, context, &text, why, sizeof why);
        const char *says = rows[i].says;
        cr_expect_eq(
                result,
                !says                             ? JINJA_DONE
                : strcmp(says, "without its end") ? JINJA_OVER
                                                  : JINJA_UNKNOWN,
                "%zu %s: %s", i, rows[i].part, why);
        cr_expect(
                !says || strstr(why, says), "%zu %s: %s", i, rows[i].part, why);
        free(text);
        free(whole);
        free(source);
        json_decref(context);
    }
    json_decref(messages);
}

/* Every beginning of a template, and every byte of it left out. */
Test(jinja, broken_templates_end)
{
    static const char whole[] =
            "{%- for m in messages[1:] %}{{ m.role|upper ~ [1, {'a': 2}]['x'] "
            "}}{% if m is mapping and not 'b' in m %}{{- m['a'].split(',')[-1] "
            "}}{% else %}c{% endif %}{# d #}{% endfor %}{% set a.b = -1 %}";
    json_t *messages = json_pack("[{s:s}, {s:s}]", "a", "b,c", "a", "d");
    char text[sizeof whole], why[200];
    for (size_t i = 0; i < sizeof whole; i++)
        for (int leaves_out = 0; leaves_out < 2; leaves_out++) {
            json_t *context = context_of(messages);
            char *out = NULL;
            memcpy(text, whole, sizeof whole);
            if (leaves_out)
                memmove(text + i, whole + i + (i + 1 < sizeof whole),
                        sizeof whole - i - (i + 1 < sizeof whole));
            else
                text[i] = '\0';
            render(text, context, &out, why, sizeof why);
            free(out);
            json_decref(context);
        }
    json_decref(messages);
}

/* Byte ranges, also where text holds several bytes a character. */
Test(jinja, generation_blocks_are_told_as_spans)
{
    static const char *const parts[] = {"b\303\251", "cc"};
    struct jinja_template *template;
    struct jinja_output out = {0};
    char why[200];
    json_t *context = context_of(json_null());
    cr_assert_eq(
            jinja_parse(
                    "\303\251a{% generation %}{{ 'b\303\251' }}{% "
                    "endgeneration %}"
                    "{% for x in [1] %}{%- generation -%} cc {%- "
                    "endgeneration %}d{% endfor %}",
                    &template, why, sizeof why),
            JINJA_DONE, "%s", why);
    cr_assert_eq(
            jinja_render(template, context, &out, why, sizeof why), JINJA_DONE);
    cr_expect_str_eq(out.text, "\303\251ab\303\251ccd");
    cr_assert_eq(out.span_count, 2);
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(out.spans[i].end - out.spans[i].begin, strlen(parts[i]));
        cr_expect_eq(
                memcmp(out.text + out.spans[i].begin, parts[i],
                       strlen(parts[i])),
                0);
    }
    jinja_output_fini(&out);
    jinja_free(template);
    json_decref(context);
}
