#include "base/must.h"
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

enum { IS_TOML = -1, NO_PLACE = 0 };

/* IS_TOML, or an error that stands at `line` and says `says`. */
static void expect(const char *text, size_t bytes, int line, const char *says)
{
    struct toml_error error = {.line = -1};
    struct toml_node *root;
    enum zd_status status = parse(text, bytes, &error, &root);
    cr_expect_eq(
            status, line == IS_TOML ? ZD_OK : ZD_ERR_CONFIG, "%.60s: %s", text,
            error.what);
    if (status == ZD_OK)
        toml_free(root);
    else
        cr_expect(
                error.line == line && error.what[0] && strstr(error.what, says),
                "%.60s: line %d, %s", text, error.line, error.what);
}

/* `head`, then `count` times `unit`, then `tail`. Owned. */
static char *repeat(
        const char *head, const char *unit, size_t count, const char *tail)
{
    char *text = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&text, &bytes);
    fputs(head, stream);
    while (count--)
        fputs(unit, stream);
    fputs(tail, stream);
    fclose(stream);
    return text;
}

Test(toml_door, what_is_no_toml_is_told_with_its_place)
{
    static const struct {
        const char *text;
        int line;
    } cases[] = {
            {"a = \n", 1},
            {"a = 1\n[|b]\nc = 2\n", NO_PLACE},
            {"a = 1\na = 2\n", 2},
            {"[t]\nx=1\n[t]\n", 3},
            {"a = \"\\u0000\"\n", 1},
            {"\"k\\u0000\" = 1\n", 1},
            {"a = 1\nb = \"\x01\"\n", 2},
            {"a = 1\nb = \"\xff\"\n", 2},
            {"a = 99999999999999999999\n", 1},
            {"a = \"never closed\nb = 1\n", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect(cases[i].text, strlen(cases[i].text), cases[i].line, "");
    expect("a = 1\n\0b = 2\n", 14, 2, "");
    expect("\xff\xfe"
           "a\0=\0",
           6, 1, "");
}

Test(toml_door, absurd_nesting_is_refused_before_it_costs_a_stack)
{
    /* What a reader of quotes may take for the middle of a string. */
    static const char astray[] = "s = [\"\"\"a\"\"\"\", '\"\"\"\"\"\"']\n";
    static const struct {
        const char *head, *unit, *tail;
        bool has_place;
    } cases[] = {
            {"a = ", "[", "", true},
            {"a = ", "{a=", "", true},
            {"[a", ".a", "]"},
            {"a", ".a", " = 1"},
            {"a = [1, ", "[", "", true},
            {"[[a", " . a", "]]"},
            {"a = {b", ".c", "=1}"},
            {"a", ".'a'", ""},
            {"a", ". \"a\" ", "= 1\nb = ["},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ZD_FREED char *text =
                repeat(cases[i].head, cases[i].unit, 50000, cases[i].tail);
        ZD_FREED char *after = repeat(astray, text, 1, "");
        expect(text, strlen(text), cases[i].has_place, "nested");
        expect(after, strlen(after), 2 * cases[i].has_place, "nested");
    }
}

/* A header, a key and brackets that are each within the bound. */
Test(toml_door, depth_is_counted_across_headers_keys_and_brackets)
{
    for (size_t brackets = 5; brackets < 7; brackets++) {
        ZD_FREED char *header = repeat("x = 1\n[a", ".a", 29, "]\nb");
        ZD_FREED char *key = repeat(header, ".b", 29, " = ");
        ZD_FREED char *open = repeat(key, "[", brackets, "");
        char *text = repeat(open, "]", brackets, "\n");
        expect(text, strlen(text), brackets == 5 ? IS_TOML : 3, "");
        free(text);
    }
}

Test(toml_door, brackets_and_dots_in_strings_and_comments_do_not_nest)
{
    ZD_FREED char *dots = repeat("# ", "[.{", 500, "");
    ZD_FREED char *comment = repeat("", dots, 1, "\na = \"");
    ZD_FREED char *string = repeat(comment, dots, 1, "\"\nb = '''");
    ZD_FREED char *text = repeat(
            string, dots, 1, "'''\nc = [1.5, 1.25, 1.5, 1.75, 2.25, 3.5, 2]");
    ZD_FREED char *list = repeat("a = [", "1.5, ", 10000, "2]");
    expect(text, strlen(text), IS_TOML, "");
    expect(list, strlen(list), IS_TOML, "");
}
