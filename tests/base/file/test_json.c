#include "base/file/json.h"
#include "base/must.h"
#include "tests/support/scratch_suite.h"

#include <math.h>

TestSuite(json, IN_SCRATCH);

static json_t *json; /* what was parsed last */

static enum zd_status parse(const char *text)
{
    zd_error_clear();
    return json_parse(text, strlen(text), "f.json", ZD_ERR_DATA, &json);
}

Test(json, errors_have_a_position)
{
    cr_expect_eq(parse("{\n  \"a\": 1,\n  \"b\" 2\n}"), ZD_ERR_DATA);
    cr_expect_str_eq(zd_error_get()->where, "f.json:3:7");
    cr_expect_eq(parse("{\n"), ZD_ERR_DATA);
    cr_expect_str_eq(zd_error_get()->where, "f.json:2:1");
}

Test(json, invalid_json_is_refused)
{
    static const char *const texts[] = {
            "",
            "{",
            "{\"a\": 1} x",
            "{\"a\": 01}",
            "{\"a\": nan}",
            "[1,]",
            "{\"a\": \"\xff\"}",
            "{'a': 1}",
            "{\"a\": 1e999}",
            "{\"a\": \"\\ud800\"}"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        cr_expect_eq(parse(texts[i]), ZD_ERR_DATA, "%s", texts[i]);
}

Test(json, duplicate_keys_are_refused)
{
    cr_expect_eq(parse("{\"a\": 1, \"b\": {}, \"a\": 2}"), ZD_ERR_DATA);
    cr_expect_not_null(strstr(zd_error_get()->what, "duplicate key `a`"));
    cr_expect_eq(parse("{\"x\": {\"a\": 1, \"a\": 1}}"), ZD_ERR_DATA);
}

Test(json, values_are_counted_before_a_tree_is_made_of_them)
{
    enum { COUNT = 1000 };
    static const struct {
        const char *one;
        size_t values; /* and keys that one holds */
    } rows[] = {
            {"{}", 1},
            {"[ ]", 1},
            {"1", 1},
            {"{\"a\":[1]}", 4},
            {"\"[,,:{\\\",[\\\\\"", 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[COUNT * 24] = "[";
        for (int n = 0; n < COUNT; n++)
            sprintf(text + strlen(text), "%s%s", n ? "," : "", rows[i].one);
        strcat(text, "]");
        size_t values = 1 + COUNT * rows[i].values, bytes = strlen(text);
        cr_expect_eq(
                json_parse_upto(text, bytes, values, "f", ZD_ERR_DATA, &json),
                ZD_OK, "%s: %s", rows[i].one, zd_error_get()->what);
        json_decref(json);
        cr_expect_eq(
                json_parse_upto(
                        text, bytes, values - 1, "f", ZD_ERR_DATA, &json),
                ZD_ERR_DATA, "%s", rows[i].one);
        cr_expect_str_eq(zd_error_get()->code, "E0713");
        zd_error_clear();
    }
}

Test(json, absurd_depth_is_refused)
{
    enum { DEPTH = 100000 };
    ZD_FREED char *text = malloc(DEPTH);
    memset(text, '[', DEPTH);
    cr_expect_eq(
            json_parse(text, DEPTH, "f", ZD_ERR_CONFIG, &json), ZD_ERR_CONFIG);
}

Test(json, a_byte_order_mark_is_skipped)
{
    MUST(parse("\xef\xbb\xbf{\"a\": 1}"));
    json_decref(json);
}

Test(json, huge_integers_become_reals_and_nothing_else_changes)
{
    MUST(parse("{\"big\": 1000000000000000019884624838656, "
               "\"neg\":-1000000000000000019884624838656,"
               "\"s 1000000000000000019884624838656\": \"\\\" "
               "99999999999999999999\","
               "\"list\": [12345678901234567890123, 7],"
               "\"real\": 0.12345678901234567890123, "
               "\"exp\": 1e-00000000000000000000002, \"int\": 42, "
               "\"far\": 100000000000000000000e2}"));
    cr_expect_eq(
            json_real_value(json_object_get(json, "big")),
            0x1.93e5939a08ceap+99);
    cr_expect_eq(
            json_real_value(json_object_get(json, "neg")),
            -0x1.93e5939a08ceap+99);
    cr_expect_str_eq(
            json_string_at(json, "s 1000000000000000019884624838656"),
            "\" 99999999999999999999");
    cr_expect_eq(
            json_real_value(json_object_get(json, "real")),
            0.12345678901234567890123);
    cr_expect_eq(json_real_value(json_object_get(json, "exp")), 1e-2);
    cr_expect_eq(json_real_value(json_object_get(json, "far")), 1e22);
    cr_expect(json_is_integer(json_object_get(json, "int")));
    cr_expect(
            json_is_integer(json_array_get(json_object_get(json, "list"), 1)));
    json_decref(json);
}

Test(json, a_string_with_nul_is_for_records_alone)
{
    static const char text[] = "{\"a\":\n\"a\\u0000b\"}";
    cr_expect_eq(parse(text), ZD_ERR_DATA);
    cr_expect_str_eq(zd_error_get()->code, "E0711");
    cr_expect(strstr(zd_error_get()->what, "strings with NUL"));
    cr_expect_not(strstr(zd_error_get()->what, "not valid"));
    cr_expect(strstr(zd_error_get()->where, "f.json:2:"));
    zd_error_clear();
    MUST(json_parse_record(text, strlen(text), "f", ZD_ERR_DATA, &json));
    cr_expect_eq(json_string_length(json_object_get(json, "a")), 3);
    json_decref(json);
    cr_expect_eq(parse("{\"a\\u0000b\": 1}"), ZD_ERR_DATA);
    cr_expect(strstr(zd_error_get()->what, "strings with NUL"), "a key");
    zd_error_clear();
}

/* What a reader would call changed: eps, theta, an escaped quote, an integer.
 */
Test(json, written_numbers_are_as_short_as_they_came)
{
    static const char text[] =
            "{\n"
            "  \"eps\": 1e-06,\n"
            "  \"of\": \"1.50 \\\" 9.9999999999999995e-7\",\n"
            "  \"theta\": 500000.0,\n"
            "  \"low\": -0.1,\n"
            "  \"far\": 1e+22,\n"
            "  \"third\": 0.3333333333333333,\n"
            "  \"vocab\": 151936\n"
            "}\n";
    ZD_FREED char *written = NULL;
    size_t bytes;
    MUST(parse(text));
    MUST(json_write_file(scratch_path(&scratch, "f"), json));
    MUST(fs_read_file(scratch.path, 1000, &written, &bytes));
    cr_expect_str_eq(written, text);
    json_decref(json);
}

Test(json, written_numbers_come_back_exactly)
{
    static const double values[] = {0.1,   1.0 / 3, 2e-5,
                                    1e300, 5e-324,  123456789.125};
    json_t *list = json_array(), *back = NULL;
    for (int i = 0; i < 6; i++)
        json_array_append_new(list, json_number_or_null(values[i]));
    json_array_append_new(list, json_number_or_null(NAN));
    MUST(json_write_file(scratch_path(&scratch, "f"), list));
    MUST(json_parse_file(scratch.path, 1000, &back));
    for (int i = 0; i < 6; i++)
        cr_expect_eq(
                json_real_value(json_array_get(back, (size_t)i)), values[i]);
    cr_expect(json_is_null(json_array_get(back, 6)));
    json_decref(list);
    json_decref(back);
    char *text;
    size_t bytes;
    MUST(fs_read_file(scratch.path, 1000, &text, &bytes));
    cr_expect_eq(text[bytes - 1], '\n');
    free(text);
    cr_expect_eq(json_parse_file(scratch.path, bytes - 1, &back), ZD_ERR_DATA);
}
