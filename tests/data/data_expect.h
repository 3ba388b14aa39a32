/* data_expect.h - what tests of data ask for again and again. */
#pragma once

#include "data/dataset_internal.h"
#include "tests/data/data_case.h"

#include <criterion/criterion.h>

struct sample {
    int32_t tokens[512], targets[512], doc_start[512];
    int count;
};

static inline enum zd_status read_sample(
        struct dataset *dataset, int64_t n, struct sample *out)
{
    cr_assert_leq(dataset->T, 512);
    return dataset_sample(
            dataset, n, out->tokens, out->targets, out->doc_start, &out->count);
}

static inline struct sample must_read(struct dataset *dataset, int64_t n)
{
    struct sample sample;
    cr_assert_eq(
            read_sample(dataset, n, &sample), ZD_OK, "%s",
            zd_error_get()->what);
    return sample;
}

static inline struct dataset *must_open(struct data_case *test)
{
    struct dataset *dataset = data_case_open(test);
    cr_assert_not_null(dataset, "%s", zd_error_get()->what);
    return dataset;
}

/* Of the entry; the error is cleared. `words` NULL: it fails. */
static inline void expect_words(struct data_case *test, const char *words)
{
    char *got = data_case_words(test);
    if (words)
        cr_expect_str_eq(
                got, words, "%s: %s", test->entry.path,
                got ? got : zd_error_get()->what);
    else
        cr_expect_null(got, "%s: %s", test->entry.path, got);
    free(got);
}

/* It does not open: this code, and this in what is said; the error is cleared.
 */
static inline void expect_refused(
        struct data_case *test, const char *code, const char *says)
{
    const struct zd_error *error = zd_error_get();
    cr_expect_null(data_case_open(test));
    cr_expect_str_eq(error->code, code, "%s", error->what);
    cr_expect(strstr(error->what, says), "%s: %s", says, error->what);
    zd_error_clear();
}
