/* Text that is tokenized while it is read: the same samples as when it is
 * whole. */
#include "data/dataset_internal.h"
#include "data/growth.h"
#include "tests/data/data_case.h"

#include <criterion/criterion.h>
#include <glob.h>
#include <unistd.h>

enum { T = 16, BYTES = 9 << 20, TAKEN = 400 };

/* More than three windows of text, in which every place differs. */
static void init(struct data_case *test, const char *end)
{
    size_t count = 0, room = BYTES + 64;
    char *text = malloc(room);
    for (int i = 0; count < BYTES; i++)
        count += (size_t)snprintf(text + count, room - count, "%d %x\n", i, i);
    count += (size_t)snprintf(text + count, room - count, "%s", end);
    data_case_init(test, NULL);
    data_case_file(test, "a.txt", text, count);
    free(text);
    test->options.cutoff_len = T;
    test->options.shuffle = SHUFFLE_WINDOWS;
    test->request.shuffle = true;
    test->request.may_grow = true;
}

/* Samples from all over an epoch and the next one. */
static void take(struct dataset *dataset, uint64_t sums[TAKEN])
{
    int32_t tokens[T], targets[T], doc_start[T];
    int count;
    for (int64_t i = 0; i < TAKEN; i++) {
        cr_assert_eq(
                dataset_sample(
                        dataset, i * i * 7, tokens, targets, doc_start, &count),
                ZD_OK, "%s", zd_error_get()->what);
        sums[i] = 0;
        for (int t = 0; t < T; t++)
            sums[i] = sums[i] * 257 + (uint64_t)tokens[t];
    }
}

Test(data_growth, samples_do_not_depend_on_how_far_the_text_is)
{
    struct data_case test;
    struct dataset *dataset, *other;
    uint64_t want[TAKEN], sums[TAKEN];
    char digest[HASH_HEX], name[DATASET_GROWTH];
    init(&test, "");
    dataset = data_case_open(&test);
    cr_assert_not_null(dataset, "%s", zd_error_get()->what);
    dataset_growth(dataset, name);
    cr_expect_str_neq(name, "");
    cr_expect_eq(dataset_samples(dataset), 0, "not known");
    cr_expect_str_eq(dataset_order(dataset), "windows");
    strcpy(digest, dataset_digest(dataset));
    /* another rank of the host */
    test.request.growth = name;
    cr_assert_eq(dataset_open(&test.request, &other), ZD_OK);
    take(other, want);
    take(dataset, sums);
    cr_expect_arr_eq(sums, want, sizeof want);
    dataset_close(other);
    dataset_close(dataset);
    /* the next start */
    test.request.growth = NULL;
    dataset = data_case_open(&test);
    cr_assert_not_null(dataset);
    dataset_growth(dataset, name);
    cr_expect_str_eq(name, "");
    cr_expect_gt(dataset_samples(dataset), 0);
    cr_expect_str_eq(dataset_digest(dataset), digest);
    take(dataset, sums);
    cr_expect_arr_eq(sums, want, sizeof want);
    dataset_close(dataset);
    cr_expect_eq(data_case_cached(&test), 1);
    data_case_fini(&test);
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

Test(data_growth, every_epoch_takes_every_sample_once)
{
    struct data_case test;
    init(&test, "");
    test.request.may_grow = false;
    struct dataset *dataset = data_case_open(&test);
    cr_assert_not_null(dataset);
    int64_t M = dataset_samples(dataset), apart = 0, in_order = 0;
    int64_t *taken = calloc((size_t)M, sizeof *taken);
    int32_t tokens[T], targets[T], doc_start[T];
    int count;
    for (int epoch = 0; epoch < 2; epoch++) {
        for (int64_t i = 0; i < M; i++) {
            cr_assert_eq(
                    dataset_sample(
                            dataset, epoch * M + i, tokens, targets, doc_start,
                            &count),
                    ZD_OK);
            uint64_t hash = 0; /* it wraps */
            for (int t = 0; t < T; t++)
                hash = hash * 31 + (uint64_t)tokens[t];
            int64_t sum = (int64_t)hash;
            apart += epoch > 0 && taken[i] != sum;
            if (epoch == 0)
                taken[i] = sum;
        }
    }
    cr_expect_gt(apart, M / 2, "epochs differ");
    qsort(taken, (size_t)M, sizeof *taken, compare);
    for (int64_t i = 1; i < M; i++)
        in_order += taken[i] == taken[i - 1];
    cr_expect_leq(in_order, 2, "%lld samples twice", (long long)in_order);
    free(taken);
    dataset_close(dataset);
    data_case_fini(&test);
}

Test(data_growth, bad_text_is_an_error_where_it_is_needed)
{
    struct data_case test;
    int32_t tokens[T], targets[T], doc_start[T];
    int count;
    init(&test, "\xff");
    struct dataset *dataset = data_case_open(&test);
    cr_assert_not_null(dataset, "%s", zd_error_get()->what);
    cr_expect_eq(
            dataset_sample(dataset, 0, tokens, targets, doc_start, &count),
            ZD_OK);
    cr_expect_eq(
            dataset_sample(
                    dataset, BYTES / T - 1, tokens, targets, doc_start, &count),
            ZD_ERR_DATA);
    cr_expect_str_eq(zd_error_get()->code, "E0435");
    cr_expect(strstr(zd_error_get()->where, "a.txt:"));
    zd_error_clear();
    dataset_close(dataset);
    cr_expect_eq(data_case_cached(&test), 0, "nothing is left behind");
    data_case_fini(&test);
}

Test(data_growth, what_is_stopped_leaves_nothing_behind)
{
    struct data_case test;
    init(&test, "");
    struct dataset *dataset = data_case_open(&test);
    cr_assert_not_null(dataset);
    dataset_close(dataset);
    char pattern[PATH_MAX + 16];
    glob_t found = {0};
    snprintf(pattern, sizeof pattern, "%s/*.tmp-*", test.cache);
    cr_expect_eq(glob(pattern, 0, NULL, &found), GLOB_NOMATCH);
    globfree(&found);
    data_case_fini(&test);
}
