/* Parquet files by pyarrow (tests/reference/make_parquet.py): their rows, and
 * one error for each kind that is not read or is damaged. */
#include "base/file/fs.h"
#include "base/must.h"
#include "data/parquet/parquet.h"
#include "tests/data/data_case.h"

#include <criterion/criterion.h>
#include <unistd.h>

static void fixture(char path[PATH_MAX], const char *name)
{
    fs_join(path, PATH_MAX, ZD_FIXTURES "/parquet", name);
}

/* Of a file of JSON Lines; NULL: no row. */
static void expect_rows(const char *name, const char *rows)
{
    char path[PATH_MAX], *text, *line;
    struct parquet *parquet;
    const char *row;
    uint64_t bytes;
    size_t text_bytes, row_bytes;
    int fd, count = 0;
    fixture(path, rows ? rows : name);
    cr_assert_eq(fs_read_file(path, 1 << 20, &text, &text_bytes), ZD_OK);
    text[0] = rows ? text[0] : 0;
    fixture(path, name);
    cr_assert_eq(fs_open_read(path, &fd, &bytes), ZD_OK);
    cr_assert_eq(
            parquet_open(fd, path, bytes, &parquet), ZD_OK, "%s",
            zd_error_get()->what);
    for (char *rest = text; (line = strsep(&rest, "\n")) && *line; count++) {
        cr_assert_eq(
                parquet_row(parquet, 1 << 20, &row, &row_bytes), ZD_OK,
                "%s: %s", name, zd_error_get()->what);
        cr_assert_gt(row_bytes, 0, "%s has %d rows", name, count);
        json_auto_t *want = json_loads(line, JSON_ALLOW_NUL, NULL);
        json_auto_t *got = json_loadb(row, row_bytes, JSON_ALLOW_NUL, NULL);
        cr_assert_not_null(want);
        cr_expect(
                json_equal(want, got), "%s, row %d: %.*s", name, count + 1,
                (int)row_bytes, row);
    }
    cr_expect_eq(parquet_row(parquet, 1 << 20, &row, &row_bytes), ZD_OK);
    cr_expect(!row_bytes && (rows ? count > 2 : !count), "%s", name);
    parquet_close(parquet);
    close(fd);
    free(text);
}

Test(data_parquet, rows_are_those_that_were_written)
{
    static const char *const names[] = {
            "plain",   "plain-v2", "snappy",       "snappy-v2", "zstd",
            "gzip-v2", "delta",    "delta-length", "delta-v2",  "pages"};
    char name[64];
    for (size_t i = 0; i < COUNT(names); i++) {
        ZD_PRINT(name, "%s.parquet", names[i]);
        expect_rows(name, "rows.jsonl");
    }
}

Test(data_parquet, a_table_without_rows_is_read)
{
    expect_rows("empty.parquet", NULL);
    expect_rows("empty-plain.parquet", NULL);
}

Test(data_parquet, lists_of_two_levels_are_read)
{
    expect_rows("old.parquet", "old.jsonl");
}

static void expect_error(
        struct data_case *test, const char *code, const char *what)
{
    const struct zd_error *error = zd_error_get();
    cr_expect_null(data_case_open(test));
    cr_expect_eq(error->status, ZD_ERR_DATA);
    cr_expect(
            strcmp(error->code, code) == 0 && strstr(error->what, what) &&
                    (strstr(error->what, ".parquet") ||
                     strstr(error->where, ".parquet:row 1")),
            "%s %s at %s, not %s", error->code, error->what, error->where,
            what);
    zd_error_clear();
}

/* Each case: what its fixture PREFIX-NAME.parquet is called, and what the error
 * says. */
static void expect_errors(
        const char *prefix, const char *const cases[][2], size_t count,
        const char *code)
{
    char name[64];
    for (size_t i = 0; i < count; i++) {
        struct data_case test;
        data_case_init(&test, NULL);
        ZD_PRINT(name, "%s-%s.parquet", prefix, cases[i][0]);
        fixture(test.path, name);
        test.entry.path = test.path;
        expect_error(&test, code, cases[i][1]);
        data_case_fini(&test);
    }
}

Test(data_parquet, what_is_not_read_is_refused_by_its_name)
{
    static const char *const cases[][2] = {
            {"brotli", "the codec BROTLI"},
            {"lz4", "the codec LZ4_RAW"},
            {"split", "the encoding BYTE_STREAM_SPLIT"},
            {"decimal", "the type DECIMAL"},
            {"fixed", "the type FIXED_LEN_BYTE_ARRAY"},
            {"map", "a MAP"}};
    expect_errors("refused", cases, COUNT(cases), "E0453");
}

/* A file that is cut, or whose bytes changed: the place is found by its
 * content, of which there is one. */
Test(data_parquet, a_damaged_file_is_one_error)
{
    static const struct {
        const char *file, *found, *changed, *what;
        size_t bytes; /* of both */
    } cases[] = {
            {"old", "\x02\x00\x02\x01\x02\x00\x02\x00",
             "\x02\x00\x02\x02\x02\x00\x02\x00",
             "a level is missing, or too high", 8},
            {"old", "\x02\x00\x02\x01\x02\x00\x02\x00",
             "\x02\x00\x02\x00\x02\x00\x02\x00", "another number of rows", 8},
            {"old",
             "\x01\x00\x00\x00"
             "a",
             "\x01\x00\x00\x7f"
             "a",
             "fewer values than it says", 5}};
    struct data_case test;
    char path[PATH_MAX], name[64], *data;
    size_t bytes;
    data_case_init(&test, NULL);
    for (size_t i = 0; i < COUNT(cases); i++) {
        ZD_PRINT(name, "%s.parquet", cases[i].file);
        fixture(path, name);
        cr_assert_eq(fs_read_file(path, 1 << 20, &data, &bytes), ZD_OK);
        char *at = memmem(data, bytes, cases[i].found, cases[i].bytes);
        cr_assert_not_null(at, "%zu", i);
        memcpy(at, cases[i].changed, cases[i].bytes);
        data_case_file(&test, name, data, bytes);
        expect_error(&test, "E0452", cases[i].what);
        free(data);
    }
    fixture(path, "snappy.parquet");
    cr_assert_eq(fs_read_file(path, 1 << 20, &data, &bytes), ZD_OK);
    for (size_t cut = 4; cut < bytes; cut += 61) {
        data_case_file(&test, "cut.parquet", data, cut);
        expect_error(&test, "E0452", "");
    }
    free(data);
    data_case_fini(&test);
}

/* What no writer writes, and takes hours if each number is believed. */
Test(data_parquet, a_file_that_lies_is_one_error)
{
    static const char *const cases[][2] = {
            {"lengths", "the lengths or counts of a page cannot be"},
            {"dictionaries", "a dictionary follows its pages"}};
    expect_errors("lying", cases, COUNT(cases), "E0452");
}

Test(data_parquet, its_rows_are_documents_and_errors_name_the_row)
{
    struct data_case test;
    data_case_init(&test, NULL);
    fixture(test.path, "old.parquet");
    test.entry.path = test.path;
    test.entry.field = "bare";
    test.entry.format = DATA_TEXT;
    expect_error(&test, "E0437", "");
    data_case_fini(&test);
    data_case_init(&test, NULL);
    fixture(test.path, "snappy.parquet");
    test.entry.path = test.path;
    test.entry.field = "must";
    test.entry.format = DATA_TEXT;
    ZD_FREED char *words = data_case_words(&test);
    cr_expect(
            words && strncmp(words, "|[\"]quoted\\\"$|[l]ine\nfeed$", 26) == 0,
            "%s %s", words, zd_error_get()->what);
    data_case_fini(&test);
}
