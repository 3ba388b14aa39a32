/* Paths that name no file, and large files with mistakes: one clear error. */
#include "tests/data/data_case.h"

#include <criterion/criterion.h>
#include <sys/stat.h>

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
