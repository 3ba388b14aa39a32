/* Bad input: one clear error with the right status, naming the place. */
#include "tests/data/data_case.h"

#include <criterion/criterion.h>
#include <sys/stat.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

struct row {
    const char *name, *file, *content;
    size_t bytes; /* 0: strlen */
    enum data_format format;
    const char *code, *what, *where;
};

static void check_rows(const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct row *row = &rows[i];
        const struct zd_error *error = zd_error_get();
        struct data_case test;
        data_case_init(&test, NULL);
        data_case_file(
                &test, row->file, row->content,
                row->bytes ? row->bytes : strlen(row->content));
        test.entry.format = row->format;
        test.options.chat_template = CHAT_NONE;
        test.options.preprocessing_threads = 2;
        cr_expect_null(data_case_open(&test), "%s", row->name);
        cr_expect_eq(error->status, ZD_ERR_DATA, "%s", row->name);
        cr_expect_str_eq(
                error->code, row->code, "%s: %s", row->name, error->what);
        cr_expect(
                strstr(error->what, row->what), "%s: %s", row->name,
                error->what);
        const char *where = strrchr(error->where, '/');
        where = where ? where + 1 : "";
        /* a column follows a colon at the end */
        size_t length = strlen(row->where);
        bool has_column = length > 0 && row->where[length - 1] == ':';
        cr_expect(
                has_column ? strncmp(where, row->where, length) == 0 &&
                                     atoi(where + length) > 0
                           : strcmp(where, row->where) == 0,
                "%s: %s", row->name, error->where);
        data_case_fini(&test);
    }
}

Test(data_bad, bytes_that_are_not_utf8_name_line_and_offset)
{
    static const struct row rows[] = {
            {"first byte", "a.txt", "\xff", 0, DATA_AUTO, "E0435",
             "byte 0xff in line 1, at byte offset 0 of", "a.txt:1"},
            {"third line", "a.txt", "ab\ncd\n\xe9t\xe9\n", 0, DATA_AUTO,
             "E0435", "0xe9 in line 3, at byte offset 6 of", "a.txt:3"},
            {"behind a mark", "a.txt", "\xef\xbb\xbfxyz \xc0\x80", 0, DATA_AUTO,
             "E0435", "line 1, at byte offset 7 of", "a.txt:1"},
            {"cut at the end", "a.txt", "ab\n\xe2\x82", 0, DATA_AUTO, "E0435",
             "line 2, at byte offset 3 of", "a.txt:2"},
            {"a surrogate", "a.txt", "\xed\xa0\x80", 0, DATA_AUTO, "E0435",
             "offset 0 ", "a.txt:1"},
            {"in a string", "a.jsonl",
             "{\"text\":\"ab\"}\n{\"text\":\"\xff\"}\n", 0, DATA_AUTO, "E0435",
             "0xff in line 2, at byte offset 23 of", "a.jsonl:2"},
            {"not in a string", "a.jsonl", "{\"text\":\"ab\"}\n\x80\n", 0,
             DATA_AUTO, "E0435", "line 2, at byte offset 14 of", "a.jsonl:2"},
            {"in the first line", "a.jsonl", "{\"text\":\"\xff\"}\n", 0,
             DATA_AUTO, "E0435", "line 1, at byte offset 9 of", "a.jsonl:1"},
    };
    check_rows(rows, COUNT(rows));
}

Test(data_bad, broken_json_names_file_and_line)
{
    static const struct row rows[] = {
            {"cut", "a.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"a\n", 0,
             DATA_AUTO, "E0711", "not valid JSON", "a.jsonl:2:"},
            {"first line", "a.jsonl", "{text}\n", 0, DATA_AUTO, "E0711",
             "not valid JSON", "a.jsonl:1:"},
            {"twice", "a.jsonl", "{\"text\":\"a\"}\n{\"text\":1,\"text\":2}\n",
             0, DATA_AUTO, "E0711", "duplicate", "a.jsonl:2:"},
            {"two in a line", "a.jsonl", "{\"text\":\"a\"} {\"text\":\"b\"}\n",
             0, DATA_AUTO, "E0711", "not valid JSON", "a.jsonl:1:"},
            {"an array", "a.jsonl", "{\"text\":\"a\"}\n[1]\n", 0, DATA_AUTO,
             "E0436", "not a JSON object", "a.jsonl:2"},
            {"all over several lines", "a.json", "[\n{\"text\":\"a\"}\n]\n", 0,
             DATA_AUTO, "E0711", "not valid JSON", "a.json:1:"},
            {"blank inside", "a.jsonl", "{\"text\":\"a\"}\n\n{\"text\":\"b\"}",
             0, DATA_AUTO, "E0436", "line 2 of", "a.jsonl:2"},
            {"blank first", "a.jsonl", " \n{\"text\":\"a\"}\n", 0, DATA_AUTO,
             "E0436", "line 1 of", "a.jsonl:1"},
            {"lone surrogate", "a.jsonl", "{\"text\":\"\\ud800\"}\n", 0,
             DATA_AUTO, "E0711", "not valid JSON", "a.jsonl:1:"},
    };
    check_rows(rows, COUNT(rows));
}

Test(data_bad, records_that_do_not_fit_name_file_and_line)
{
    static const struct row rows[] = {
            {"no text", "a.jsonl", "{\"text\":\"a\"}\n{\"body\":\"b\"}\n", 0,
             DATA_AUTO, "E0437", "no \"text\"", "a.jsonl:2"},
            {"no string", "a.jsonl", "{\"text\":\"a\"}\n{\"text\":7}\n", 0,
             DATA_AUTO, "E0437", "not a string", "a.jsonl:2"},
            {"nothing known", "a.jsonl", "{\"body\":\"b\"}\n", 0, DATA_AUTO,
             "E0431", "no known format", "a.jsonl:1"},
            {"no messages", "a.jsonl", "{\"text\":\"b\"}\n", 0, DATA_CHAT,
             "E0437", "no \"messages\"", "a.jsonl:1"},
            {"no list", "a.jsonl", "{\"messages\":{}}\n", 0, DATA_AUTO, "E0437",
             "not a list", "a.jsonl:1"},
            {"empty list", "a.jsonl", "{\"messages\":[]}\n", 0, DATA_AUTO,
             "E0437", "not a list", "a.jsonl:1"},
            {"a string for a message", "a.jsonl", "{\"messages\":[\"hi\"]}\n",
             0, DATA_AUTO, "E0437", "message 1", "a.jsonl:1"},
            {"null content", "a.jsonl",
             "{\"messages\":[{\"role\":\"user\",\"content\":null}]}\n", 0,
             DATA_AUTO, "E0437", "\"content\"", "a.jsonl:1"},
            {"no role", "a.jsonl", "{\"messages\":[{\"content\":\"a\"}]}\n", 0,
             DATA_AUTO, "E0437", "\"role\"", "a.jsonl:1"},
            {"misspelt role", "a.jsonl",
             "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
             "{\"role\":\"asistant\",\"content\":\"b\"}]}\n",
             0, DATA_AUTO, "E0438", "message 2", "a.jsonl:1"},
            {"no completion", "a.jsonl", "{\"prompt\":\"a\"}\n", 0,
             DATA_COMPLETION, "E0437", "\"completion\"", "a.jsonl:1"},
            {"no output", "a.jsonl", "{\"instruction\":\"a\"}\n", 0,
             DATA_ALPACA, "E0437", "\"output\"", "a.jsonl:1"},
            {"a number as input", "a.jsonl",
             "{\"instruction\":\"a\",\"input\":1,\"output\":\"b\"}\n", 0,
             DATA_AUTO, "E0437", "\"input\"", "a.jsonl:1"},
            {"history", "a.jsonl",
             "{\"instruction\":\"a\",\"output\":\"b\",\"history\":[[1]]}\n", 0,
             DATA_AUTO, "E0437", "\"history\"", "a.jsonl:1"},
    };
    check_rows(rows, COUNT(rows));
}

Test(data_bad, files_without_a_sample_are_named)
{
    static const struct row rows[] = {
            {"too short", "a.txt", "abcd", 0, DATA_AUTO, "E0439",
             "a.txt has 5 tokens, but one sample takes 9", ""},
            {"too short lines", "a.jsonl", "{\"text\":\"a\"}\n", 0, DATA_AUTO,
             "E0439", "a.jsonl has 2 tokens", ""},
            {"only a mark", "a.txt", "\xef\xbb\xbf", 0, DATA_AUTO, "E0439",
             "a.txt holds no document", ""},
            {"only blank lines", "a.jsonl", "\n \n", 0, DATA_TEXT, "E0439",
             "a.jsonl holds no document", ""},
            {"too few ids", "a.bin", "a\0b\0", 4, DATA_NANOGPT, "E0439",
             "a.bin has 2 tokens", ""},
    };
    check_rows(rows, COUNT(rows));
}

Test(data_bad, empty_files_are_refused_even_among_others)
{
    struct data_case test;
    char pattern[PATH_MAX];
    static const char *const names[] = {"b.txt", "b.jsonl", "b.bin"};
    for (size_t i = 0; i < COUNT(names); i++) {
        data_case_init(&test, NULL);
        data_case_text(&test, "a.txt", "more than enough text");
        data_case_text(&test, names[i], "");
        snprintf(pattern, sizeof pattern, "%s/*.*", test.scratch.dir);
        test.entry.path = pattern;
        cr_expect_null(data_case_open(&test));
        cr_expect_eq(zd_error_get()->status, ZD_ERR_DATA);
        cr_expect(strstr(zd_error_get()->what, names[i]));
        data_case_fini(&test);
    }
}

static void expect_status(struct data_case *test, enum zd_status status)
{
    cr_expect_null(data_case_open(test));
    cr_expect_eq(
            zd_error_get()->status, status, "%s: %s", test->entry.path,
            zd_error_get()->what);
    cr_expect(strstr(zd_error_get()->what, test->entry.path));
    zd_error_clear();
}

Test(data_bad, paths_that_are_no_file_are_an_error_at_once)
{
    struct data_case test;
    char path[PATH_MAX];
    data_case_init(&test, NULL);
    test.entry.path = path;
    snprintf(path, sizeof path, "%s/none.txt", test.scratch.dir);
    expect_status(&test, ZD_ERR_NO_INPUT);
    snprintf(path, sizeof path, "%s/*.jsonl", test.scratch.dir);
    expect_status(&test, ZD_ERR_NO_INPUT);
    snprintf(path, sizeof path, "%s", test.scratch.dir);
    expect_status(&test, ZD_ERR_DATA);
    snprintf(path, sizeof path, "%s/pipe.txt", test.scratch.dir);
    cr_assert_eq(mkfifo(path, 0600), 0);
    expect_status(&test, ZD_ERR_DATA);
    snprintf(path, sizeof path, "/dev/zero");
    expect_status(&test, ZD_ERR_DATA);
    data_case_fini(&test);
}

Test(data_bad, text_and_tokens_do_not_mix)
{
    struct data_case test;
    char pattern[PATH_MAX];
    data_case_init(&test, NULL);
    data_case_text(&test, "a.bin", "abcdabcdabcd");
    data_case_text(&test, "a.idx", "abcd");
    data_case_text(&test, "b.txt", "abcd");
    snprintf(pattern, sizeof pattern, "%s/[ab].*", test.scratch.dir);
    test.entry.path = pattern;
    cr_expect_null(data_case_open(&test));
    cr_expect_eq(zd_error_get()->status, ZD_ERR_CONFIG);
    cr_expect_str_eq(zd_error_get()->code, "E0432");
    data_case_fini(&test);
}

Test(data_bad, a_tokenizer_that_does_not_fit_the_model)
{
    struct data_case test;
    data_case_init(&test, NULL);
    data_case_text(&test, "a.txt", "more than enough text");
    test.request.vocab_size = 256; /* one too few */
    cr_expect_null(data_case_open(&test));
    cr_expect_eq(zd_error_get()->status, ZD_ERR_DATA);
    cr_expect_str_eq(zd_error_get()->code, "E0447");
    zd_error_clear();
    test.request.vocab_size = 300;
    test.request.eos = 300;
    cr_expect_null(data_case_open(&test));
    cr_expect_eq(zd_error_get()->status, ZD_ERR_DATA);
    zd_error_clear();
    test.request.eos = 256;
    test.request.tokenizer = NULL;
    cr_expect_null(data_case_open(&test));
    cr_expect_eq(zd_error_get()->status, ZD_ERR_CONFIG);
    data_case_fini(&test);
}

/* Whatever thread finds it, and however many there are. */
Test(data_bad, the_first_bad_line_is_the_one_reported)
{
    struct data_case test;
    size_t used = 0;
    char *text = malloc(12 << 20);
    data_case_init(&test, NULL);
    for (int i = 1; used < 11u << 20; i++) {
        used += (size_t)sprintf(text + used, "{\"text\":\"%d ", i);
        memset(text + used, 'a', 1000);
        used += 1000;
        used += (size_t)sprintf(
                text + used, i == 3333 || i == 9999 ? "\n" : "\"}\n");
    }
    data_case_file(&test, "a.jsonl", text, used);
    test.options.preprocessing_threads = 4;
    cr_expect_null(data_case_open(&test));
    cr_expect(
            strstr(zd_error_get()->where, "a.jsonl:3333:"), "%s",
            zd_error_get()->where);
    free(text);
    data_case_fini(&test);
}
