/* Bad input: one clear error with the right status, naming the place. */
#include "tests/data/data_case.h"

#include <criterion/criterion.h>
#include <sys/stat.h>


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
            {"DPO", "a.jsonl",
             "{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":\"c\"}\n", 0,
             DATA_AUTO, "E0437", "a preference row, with \"chosen\"",
             "a.jsonl:1"},
            {"DPO, called chat", "a.jsonl",
             "{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":\"c\"}\n", 0,
             DATA_CHAT, "E0437", "a preference row, with \"chosen\"",
             "a.jsonl:1"},
            {"DPO beside messages", "a.jsonl",
             "{\"messages\":[],\"chosen\":[1],\"rejected\":[2]}\n", 0,
             DATA_AUTO, "E0437", "a preference row, with \"chosen\"",
             "a.jsonl:1"},
            {"KTO", "a.jsonl",
             "{\"prompt\":\"a\",\"completion\":\"b\",\"label\":true}\n", 0,
             DATA_COMPLETION, "E0437", "a preference row, with a KTO",
             "a.jsonl:1"},
    };
    check_rows(rows, COUNT(rows));
}

/* Each was read one way without a word about the other. */
Test(data_bad, records_that_fit_two_forms_name_both)
{
    static const struct row rows[] = {
            {"text and messages", "a.jsonl",
             "{\"text\":\"a\"}\n{\"text\":\"b\",\"messages\":[{\"role\":"
             "\"user\",\"content\":\"c\"}]}\n",
             0, DATA_AUTO, "E0431", "\"text\" and \"messages\"", "a.jsonl:2"},
            {"alpaca with text", "a.jsonl",
             "{\"instruction\":\"a\",\"output\":\"b\",\"text\":\"ab\"}\n", 0,
             DATA_AUTO, "E0431", "\"text\" and \"instruction\"", "a.jsonl:1"},
            {"messages and conversations", "a.jsonl",
             "{\"messages\":[1],\"conversations\":[1]}\n", 0, DATA_AUTO,
             "E0431", "\"messages\" and \"conversations\"", "a.jsonl:1"},
            {"alpaca and completion", "a.jsonl",
             "{\"instruction\":\"a\",\"output\":\"b\",\"prompt\":\"a\","
             "\"completion\":\"b\"}\n",
             0, DATA_AUTO, "E0431", "\"instruction\" and \"prompt\"",
             "a.jsonl:1"},
    };
    check_rows(rows, COUNT(rows));
}

#define TURN(rest)                                                             \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"                    \
    "{\"role\":\"assistant\",\"content\":\"b\"" rest "}]}\n"
#define RECORD(rest) "{\"text\":\"abcd\"" rest "}\n"

/* Each was dropped, and the model trained as if it had not been there. */
Test(data_bad, keys_that_are_not_heeded_are_named)
{
    static const struct row rows[] = {
            {"tool calls", "a.jsonl",
             TURN("") TURN(",\"tool_calls\":[{\"id\":\"1\"}]"), 0, DATA_AUTO,
             "E0437", "\"tool_calls\" of message 2", "a.jsonl:2"},
            {"tool calls and no content", "a.jsonl",
             "{\"messages\":[{\"role\":\"assistant\",\"content\":null,"
             "\"tool_calls\":[1]}]}\n",
             0, DATA_AUTO, "E0437", "\"tool_calls\" of message 1", "a.jsonl:1"},
            {"a function call", "a.jsonl",
             TURN(",\"function_call\":{\"name\":\"f\"}"), 0, DATA_AUTO, "E0437",
             "\"function_call\"", "a.jsonl:1"},
            {"reasoning_content", "a.jsonl",
             TURN(",\"reasoning_content\":\"h\""), 0, DATA_CHAT, "E0437",
             "\"reasoning_content\"", "a.jsonl:1"},
            {"reasoning", "a.jsonl", TURN(",\"reasoning\":\"h\""), 0, DATA_AUTO,
             "E0437", "\"reasoning\"", "a.jsonl:1"},
            {"thinking", "a.jsonl", TURN(",\"thinking\":\"h\""), 0, DATA_AUTO,
             "E0437", "\"thinking\"", "a.jsonl:1"},
            {"a mask by another name", "a.jsonl", TURN(",\"train\":false"), 0,
             DATA_AUTO, "E0437", "\"train\" of message 2", "a.jsonl:1"},
            {"half a weight", "a.jsonl", TURN(",\"weight\":0.5"), 0, DATA_AUTO,
             "E0437", "\"weight\" of message 2 is neither 0 nor 1",
             "a.jsonl:1"},
            {"a weight that is none", "a.jsonl", TURN(",\"weight\":\"0\""), 0,
             DATA_AUTO, "E0437", "\"weight\" of message 2", "a.jsonl:1"},
            {"tools", "a.jsonl",
             "{\"tools\":[{\"name\":\"f\"}],\"messages\":[{\"role\":\"user\","
             "\"content\":\"c\"}]}\n",
             0, DATA_AUTO, "E0437", "\"tools\"", "a.jsonl:1"},
            {"tools of sharegpt", "a.jsonl",
             "{\"tools\":\"[]x\",\"conversations\":[{\"from\":\"gpt\","
             "\"value\":\"c\"}]}\n",
             0, DATA_AUTO, "E0437", "\"tools\"", "a.jsonl:1"},
            {"labels", "a.jsonl", RECORD("") RECORD(",\"labels\":[1]"), 0,
             DATA_AUTO, "E0437", "\"labels\"", "a.jsonl:2"},
            {"a row's weight", "a.jsonl", RECORD(",\"weight\":2"), 0, DATA_AUTO,
             "E0437", "\"weight\" of a record", "a.jsonl:1"},
            {"images", "a.jsonl", RECORD(",\"images\":[\"a.png\"]"), 0,
             DATA_AUTO, "E0437", "\"images\"", "a.jsonl:1"},
            {"two systems", "a.jsonl",
             "{\"system\":\"s\",\"conversations\":[{\"from\":\"system\","
             "\"value\":\"c\"}]}\n",
             0, DATA_AUTO, "E0437", "begins with a system message",
             "a.jsonl:1"},
            {"a system of another kind", "a.jsonl",
             "{\"system\":[1],\"conversations\":[{\"from\":\"gpt\","
             "\"value\":\"c\"}]}\n",
             0, DATA_AUTO, "E0437", "\"system\" is not a string", "a.jsonl:1"},
            {"a NUL in a role", "a.jsonl",
             "{\"messages\":[{\"role\":\"assistant\\u0000x\","
             "\"content\":\"c\"}]}\n",
             0, DATA_AUTO, "E0438", "\"assistant\\u0000", "a.jsonl:1"},
            {"a NUL in a key", "a.jsonl", "{\"text\\u0000x\":\"c\"}\n", 0,
             DATA_AUTO, "E0711", "NUL", "a.jsonl:1:"},
    };
    check_rows(rows, COUNT(rows));
}

/* What stands under keys that say nothing is no reason to refuse a record. */
Test(data_bad, keys_that_say_nothing_are_fine)
{
    static const char *const lines[] = {
            TURN(",\"tool_calls\":null,\"reasoning_content\":\"\",\"weight\":1,"
                 "\"name\":\"n\""),
            TURN(",\"tool_calls\":[],\"weight\":null"),
            RECORD(",\"messages\":null,\"weight\":1.0,\"label\":3,\"id\":9"),
    };
    for (size_t i = 0; i < COUNT(lines); i++) {
        struct data_case test;
        data_case_init(&test, NULL);
        data_case_text(&test, "a.jsonl", lines[i]);
        test.options.chat_template = CHAT_NONE;
        char *words = data_case_words(&test);
        cr_expect(words, "%s: %s", lines[i], zd_error_get()->what);
        free(words);
        data_case_fini(&test);
    }
}

Test(data_bad, conversations_with_roles_say_which_key_would_do)
{
    struct data_case test;
    data_case_init(&test, NULL);
    data_case_text(
            &test, "a.jsonl",
            "{\"conversations\":[{\"role\":\"user\",\"content\":\"hello\"},"
            "{\"role\":\"assistant\",\"content\":\"answer\"}]}\n");
    test.options.chat_template = CHAT_NONE;
    cr_expect_null(data_case_open(&test));
    cr_expect_str_eq(zd_error_get()->code, "E0437");
    cr_expect(
            strstr(zd_error_get()->help, "messages_field = \"conversations\""));
    zd_error_clear();
    test.entry.messages_field = "conversations";
    char *words = data_case_words(&test);
    cr_expect_str_eq(words, "|[hello]answer");
    free(words);
    data_case_fini(&test);
}

/* Bytes that were trained on as text, and names that say nothing. */
Test(data_bad, files_that_are_no_text_say_what_they_are)
{
    static const struct row rows[] = {
            {"parquet", "a.parquet", "PAR1....PAR1", 0, DATA_AUTO, "E0431",
             "a.parquet is a Parquet table", ""},
            {"parquet by another name", "a.txt", "PAR1....PAR1", 0, DATA_AUTO,
             "E0431", "Parquet", ""},
            {"parquet that is to be text", "a.parquet", "PAR1....PAR1", 0,
             DATA_TEXT, "E0431", "Parquet", ""},
            {"zstd", "a.jsonl.zst", "\x28\xb5\x2f\xfd....", 0, DATA_AUTO,
             "E0431", "compressed by zstd", ""},
            {"gzip", "a.jsonl.gz", "\x1f\x8b\x08....", 0, DATA_CHAT, "E0431",
             "compressed by gzip", ""},
            {"arrow", "a.arrow", "ARROW1..", 0, DATA_AUTO, "E0431",
             "Arrow file", ""},
            {"a pointer", "a.jsonl",
             "version https://git-lfs.github.com/spec/v1\noid sha256:0\n", 0,
             DATA_AUTO, "E0431", "pointer of Git LFS", ""},
    };
    check_rows(rows, COUNT(rows));
}

Test(data_bad, names_that_say_nothing_need_a_format)
{
    static const char *const names[] = {
            "a.csv", "a.yaml", "a.md", "a", "a.tsv"};
    for (size_t i = 0; i < COUNT(names); i++) {
        struct data_case test;
        data_case_init(&test, NULL);
        data_case_text(&test, names[i], "one,two,three,four");
        cr_expect_null(data_case_open(&test), "%s", names[i]);
        cr_expect_eq(zd_error_get()->status, ZD_ERR_CONFIG, "%s", names[i]);
        cr_expect_str_eq(zd_error_get()->code, "E0431");
        cr_expect(strstr(zd_error_get()->help, "format = \"text\""));
        zd_error_clear();
        test.entry.format = DATA_TEXT;
        char *words = data_case_words(&test);
        cr_expect(words, "%s", names[i]);
        free(words);
        data_case_fini(&test);
    }
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

/* Each trained nothing, exported, and ended with 0. */
Test(data_bad, data_of_which_nothing_is_trained_is_refused)
{
    static const struct {
        const char *content;
        enum train_on train_on;
        bool packing, is_good;
    } rows[] = {
            {"{\"messages\":[{\"role\":\"user\",\"content\":\"long "
             "enough\"}]}\n",
             TRAIN_ON_ASSISTANT, true, false},
            {"{\"messages\":[{\"role\":\"user\",\"content\":\"long "
             "enough\"}]}\n",
             TRAIN_ON_ALL, true, true},
            {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"long "
             "enough\",\"weight\":0}]}\n",
             TRAIN_ON_ALL, true, false},
            /* cut before the answer */
            {"{\"prompt\":\"123456789\",\"completion\":\"a\"}\n",
             TRAIN_ON_ASSISTANT, false, false},
            {"{\"prompt\":\"12345678\",\"completion\":\"a\"}\n",
             TRAIN_ON_ASSISTANT, false, true},
            /* in the tail that fills no sample */
            {"{\"prompt\":\"123456789\",\"completion\":\"a\"}\n",
             TRAIN_ON_ASSISTANT, true, false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct data_case test;
        data_case_init(&test, NULL);
        data_case_text(&test, "a.jsonl", rows[i].content);
        test.options.chat_template = CHAT_NONE;
        test.options.train_on = rows[i].train_on;
        test.options.packing = rows[i].packing;
        struct dataset *dataset = data_case_open(&test);
        cr_expect_eq(dataset != NULL, rows[i].is_good, "row %zu", i);
        if (!rows[i].is_good) {
            cr_expect_eq(zd_error_get()->status, ZD_ERR_DATA);
            cr_expect_str_eq(zd_error_get()->code, "E0449");
            zd_error_clear();
            test.request.may_be_masked = true;
            dataset = data_case_open(&test);
            cr_expect_not_null(dataset, "row %zu: to look at", i);
        }
        dataset_close(dataset);
        data_case_fini(&test);
    }
}
