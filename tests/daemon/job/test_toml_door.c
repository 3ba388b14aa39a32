#include "daemon/job/toml/toml_door.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static enum zd_status parse(
        const char *text, size_t bytes, struct toml_error *error,
        struct toml_node **root)
{
    static struct toml_source source;
    source = (struct toml_source){"t.toml", (char *)text, bytes};
    *root = NULL;
    return toml_parse(&source, error, root);
}

Test(toml_door, keys_and_values_know_where_they_stand)
{
    struct toml_error error;
    struct toml_node *root;
    const char *text = "a = 1\n\n[b]\n  \"k\" = \"v\"\nc = [1.5, true]\n";
    cr_assert_eq(parse(text, strlen(text), &error, &root), ZD_OK);
    cr_assert_eq(root->count, 2);
    const struct toml_node *b = root->items[1];
    cr_expect_eq(b->kind, TOML_TABLE);
    cr_expect_eq(b->items[0]->key_place.line, 4);
    cr_expect_eq(b->items[0]->key_place.column, 3);
    cr_expect_eq(b->items[0]->place.column, 9);
    cr_expect_str_eq(b->items[0]->string, "v");
    cr_expect_eq(b->items[1]->items[0]->real, 1.5);
    cr_expect_eq(b->items[1]->items[1]->place.column, 11);
    toml_free(root);
}

Test(toml_door, a_byte_order_mark_moves_nothing)
{
    struct toml_error error;
    struct toml_node *root;
    const char *text = "\xef\xbb\xbf"
                       "a = 1\nb = 2";
    cr_assert_eq(parse(text, strlen(text), &error, &root), ZD_OK);
    cr_expect_eq(root->items[0]->key_place.line, 1);
    cr_expect_eq(root->items[0]->key_place.column, 1);
    toml_free(root);
}

Test(toml_door, what_is_no_toml_is_told_with_its_place)
{
    static const struct {
        const char *text;
        size_t bytes; /* 0: strlen */
        int line;
    } cases[] = {
            {"a = \n", 0, 1},
            {"a = 1\n[|b]\nc = 2\n", 0, 2},
            {"a = 1\na = 2\n", 0, 2},
            {"[t]\nx=1\n[t]\n", 0, 3},
            {"a = \"\\u0000\"\n", 0, 1},
            {"\"k\\u0000\" = 1\n", 0, 1},
            {"a = 1\nb = \"\x01\"\n", 0, 2},
            {"a = 1\nb = \"\xff\"\n", 0, 2},
            {"a = 1\n\0b = 2\n", 14, 2},
            {"a = 99999999999999999999\n", 0, 1},
            {"a = \"never closed\nb = 1\n", 0, 1},
            {"\xff\xfe"
             "a\0=\0",
             6, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct toml_error error = {.line = -1};
        struct toml_node *root;
        size_t bytes = cases[i].bytes ? cases[i].bytes : strlen(cases[i].text);
        cr_expect_eq(
                parse(cases[i].text, bytes, &error, &root), ZD_ERR_CONFIG,
                "case %zu", i);
        cr_expect_eq(
                error.line, cases[i].line, "case %zu: line %d, %s", i,
                error.line, error.what);
        cr_expect(error.what[0], "case %zu", i);
    }
}

/* `head`, then `count` times `unit`. */
static char *repeat(const char *head, const char *unit, size_t count)
{
    size_t length = strlen(unit), used = strlen(head);
    char *text = malloc(used + length * count + 1);
    memcpy(text, head, used);
    for (size_t i = 0; i < count; i++, used += length)
        memcpy(text + used, unit, length);
    text[used] = '\0';
    return text;
}

Test(toml_door, absurd_nesting_is_refused_before_it_costs_a_stack)
{
    /* What a reader of quotes may take for the middle of a string. */
    static const char astray[] = "s = [\"\"\"a\"\"\"\", '\"\"\"\"\"\"']\n";
    static const struct {
        const char *head, *unit, *tail;
    } cases[] = {
            {"a = ", "[", ""},
            {"a = ", "{a=", ""},
            {"[a", ".a", "]"},
            {"a", ".a", " = 1"},
            {"a = [1, ", "[", ""},
            {"[[a", " . a", "]]"},
            {"a = {b", ".c", "=1}"},
            {"a", ".'a'", ""},
            {"a", ". \"a\" ", "= 1\nb = ["},
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        struct toml_error error;
        struct toml_node *root;
        bool is_astray = i % 2;
        char *body = repeat(cases[i / 2].head, cases[i / 2].unit, 50000);
        char *text = NULL;
        int bytes = asprintf(
                &text, "%s%s%s", is_astray ? astray : "", body,
                cases[i / 2].tail);
        cr_assert(bytes > 0);
        cr_expect_eq(
                parse(text, (size_t)bytes, &error, &root), ZD_ERR_CONFIG,
                "case %zu", i);
        cr_expect(strstr(error.what, "nested"), "case %zu: %s", i, error.what);
        cr_expect_eq(error.line, 1 + is_astray, "case %zu", i);
        free(text);
        free(body);
    }
}

/* A header, a key and brackets that are each within the bound. */
Test(toml_door, depth_is_counted_across_headers_keys_and_brackets)
{
    for (int over = 0; over < 2; over++) {
        struct toml_error error;
        struct toml_node *root;
        char *text = NULL;
        char *header = repeat("[a", ".a", 29), *key = repeat("b", ".b", 29);
        char *open = repeat("", "[", (size_t)(5 + over)),
             *close = repeat("", "]", (size_t)(5 + over));
        int bytes = asprintf(
                &text, "x = 1\n%s]\n%s = %s%s\n", header, key, open, close);
        cr_assert(bytes > 0);
        enum zd_status status = parse(text, (size_t)bytes, &error, &root);
        cr_expect_eq(status, over ? ZD_ERR_CONFIG : ZD_OK, "%d", over);
        if (status == ZD_OK)
            toml_free(root);
        else
            cr_expect_eq(error.line, 3);
        free(text);
        free(header);
        free(key);
        free(open);
        free(close);
    }
}

Test(toml_door, brackets_and_dots_in_strings_and_comments_do_not_nest)
{
    struct toml_error error;
    struct toml_node *root;
    char *dots = repeat("# ", "[.{", 500);
    char *text = NULL;
    cr_assert(
            asprintf(
                    &text, "%s\na = \"%s\"\nb = '''%s'''\nc = [1.5, %s 2]",
                    dots, dots, dots, "1.25, 1.5, 1.75, 2.25, 3.5,") > 0);
    cr_expect_eq(
            parse(text, strlen(text), &error, &root), ZD_OK, "%s", error.what);
    toml_free(root);
    char *list = repeat("a = [", "1.5, ", 10000);
    size_t bytes = strlen(list);
    list[bytes - 2] = ']';
    cr_expect_eq(parse(list, bytes, &error, &root), ZD_OK);
    toml_free(root);
    free(list);
    free(text);
    free(dots);
}
