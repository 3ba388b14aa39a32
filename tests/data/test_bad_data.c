/* Bad input: one clear error with the right status, naming the place. */
#include "tests/data/data_case.h"

#include <criterion/criterion.h>
#include <sys/stat.h>

Test(data_bad, input_has_one_error_that_names_its_place)
{
    data_rows_run("bad.txt", 75);
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
