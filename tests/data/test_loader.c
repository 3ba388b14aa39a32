#include "tests/data/data_expect.h"

enum { B = 2, T = 8, BATCHES = 40 };

struct loading {
    struct data_case test;
    struct dataset *dataset;
    void *memory;
    struct loader *loader;
};

/* As rank 1 of 3 takes them. */
static int64_t sample_of(void *ctx, int64_t batch, int b)
{
    return batch * 3 * B + B + b;
}

static int64_t in_order(void *ctx, int64_t batch, int b)
{
    return batch + b;
}

static void loading_init(struct loading *loading, int64_t first, int prefetch)
{
    char text[1000];
    data_case_init(&loading->test, NULL);
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(' ' + i % 90);
    data_case_file(&loading->test, "a.txt", text, sizeof text);
    loading->test.request.shuffle = true;
    loading->dataset = must_open(&loading->test);
    loading->memory = malloc(loader_bytes(2 * prefetch, B, T));
    cr_assert_eq(
            loader_create(
                    loading->dataset, (struct loader_order){sample_of, NULL},
                    first, BATCHES, B, T, prefetch, prefetch, loading->memory,
                    &loading->loader),
            ZD_OK);
}

static void loading_fini(struct loading *loading)
{
    loader_destroy(loading->loader);
    free(loading->memory);
    dataset_close(loading->dataset);
    data_case_fini(&loading->test);
}

static void expect_row(
        const struct loader_batch *batch, int b, int length,
        const struct sample *sample)
{
    size_t bytes = (size_t)length * sizeof(int32_t);
    cr_expect_arr_eq(batch->tokens + b * length, sample->tokens, bytes);
    cr_expect_arr_eq(batch->targets + b * length, sample->targets, bytes);
    cr_expect_arr_eq(batch->doc_start + b * length, sample->doc_start, bytes);
}

static void expect_batch(
        struct dataset *dataset, int64_t number,
        const struct loader_batch *batch)
{
    int64_t token_count = 0, target_count = 0;
    for (int b = 0; b < B; b++) {
        struct sample sample = must_read(dataset, sample_of(NULL, number, b));
        expect_row(batch, b, T, &sample);
        token_count += sample.count;
        for (int t = 0; t < T; t++)
            target_count += sample.targets[t] >= 0;
    }
    cr_expect_eq(batch->token_count, token_count);
    cr_expect_eq(batch->target_count, target_count);
}

/* Each of the last `prefetch` batches is what it was when it was new. */
Test(data_loader, batches_come_in_order_and_stay_valid_for_prefetch_calls)
{
    static const int prefetches[] = {1, 3, 4};
    for (int p = 0; p < 3; p++) {
        struct loading loading;
        struct loader_batch batches[BATCHES];
        loading_init(&loading, 5, prefetches[p]);
        /* the loader's dataset belongs to its thread */
        struct dataset *same = must_open(&loading.test);
        for (int i = 0; i < BATCHES; i++) {
            cr_assert_eq(loader_next(loading.loader, &batches[i]), ZD_OK);
            for (int back = 0; back < prefetches[p] && back <= i; back++)
                expect_batch(same, 5 + i - back, &batches[i - back]);
        }
        dataset_close(same);
        loading_fini(&loading);
    }
}

/* The longest of both documents has 39 tokens, of 300 that a row may have: rows
 * of 64 tokens, since 300 are cut into at most 16 lengths. */
Test(data_loader, rows_are_as_long_as_the_longest_of_the_batch_needs)
{
    enum { LONG = 300, NEAR = 64 };
    struct data_case test;
    struct loader *loader;
    struct loader_batch batch;
    char text[] = "{\"text\": \"0123456789012345678901234567890123456789\"}\n"
                  "{\"text\": \"abc\"}\n";
    data_case_init(&test, NULL);
    test.options.cutoff_len = LONG;
    test.options.packing = PACKING_NO;
    data_case_file(&test, "a.jsonl", text, sizeof text - 1);
    struct dataset *dataset = must_open(&test), *same = must_open(&test);
    void *memory = malloc(loader_bytes(2, 2, LONG));
    cr_assert_eq(
            loader_create(
                    dataset, (struct loader_order){in_order, NULL}, 0, 1, 2,
                    LONG, 1, 1, memory, &loader),
            ZD_OK);
    cr_assert_eq(loader_next(loader, &batch), ZD_OK);
    cr_expect_eq(batch.T, NEAR, "%d", batch.T);
    for (int b = 0; b < 2; b++) {
        struct sample sample = must_read(same, b);
        expect_row(&batch, b, NEAR, &sample);
    }
    loader_destroy(loader);
    free(memory);
    dataset_close(dataset);
    dataset_close(same);
    data_case_fini(&test);
}

/* Rows of 4 places are those of one, in 8 pieces; what is counted is the whole
 * sample's. */
Test(data_loader, places_share_the_tokens_of_each_row)
{
    enum { PLACES = 4, PIECE = T / (2 * PLACES), OWN = 2 * PIECE };
    _Static_assert(T % (2 * PLACES) == 0, "whole pieces");
    struct data_case test;
    char text[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    data_case_init(&test, NULL);
    data_case_file(&test, "a.txt", text, sizeof text - 1);
    for (int place = 0; place < PLACES; place++) {
        struct dataset *dataset = data_case_open(&test), *same;
        struct loader_order order = {
                .sample_of = in_order, .places = PLACES, .place = place};
        struct loader *loader;
        struct loader_batch batch;
        int32_t tokens[2][T], targets[2][T], starts[2][T];
        int count, all = 0;
        void *memory = malloc(loader_bytes(2, 2, T));
        cr_assert_not_null(dataset);
        cr_assert_eq(dataset_open(&test.request, &same), ZD_OK);
        cr_assert_eq(
                loader_create(
                        dataset, order, 0, 1, 2, T, 1, 1, memory, &loader),
                ZD_OK);
        cr_assert_eq(loader_next(loader, &batch), ZD_OK);
        for (int b = 0; b < 2; b++) {
            cr_assert_eq(
                    dataset_sample(
                            same, b, tokens[b], targets[b], starts[b], &count),
                    ZD_OK);
            all += count;
        }
        cr_expect_eq(batch.token_count, all);
        for (int n = 0; n < 2 * OWN; n++) {
            int b = n / OWN, half = n % OWN / PIECE;
            int piece = half ? 2 * PLACES - 1 - place : place;
            int t = piece * PIECE + n % PIECE;
            cr_expect_eq(batch.tokens[n], tokens[b][t]);
            cr_expect_eq(batch.targets[n], targets[b][t]);
            cr_expect_eq(batch.doc_start[n], starts[b][t]);
        }
        loader_destroy(loader);
        free(memory);
        dataset_close(dataset);
        dataset_close(same);
    }
    data_case_fini(&test);
}

Test(data_loader, an_error_comes_with_its_batch)
{
    struct data_case test;
    struct loader *loader;
    struct loader_batch batch;
    uint16_t tokens[41];
    data_case_init(&test, NULL);
    for (int i = 0; i < 41; i++)
        tokens[i] = i == 30 ? 999 : 'a'; /* in the fourth sample of five */
    data_case_file(&test, "a.bin", tokens, sizeof tokens);
    test.entry.format = DATA_NANOGPT;
    /* opened without the check, as a file above 4 GiB is */
    test.request.depth = DATA_TRUST;
    struct dataset *dataset = must_open(&test);
    void *memory = malloc(loader_bytes(8, 1, T));
    cr_assert_eq(
            loader_create(
                    dataset, (struct loader_order){in_order, NULL}, 0, 5, 1, T,
                    4, 4, memory, &loader),
            ZD_OK);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(loader_next(loader, &batch), ZD_OK);
    for (int again = 0; again < 2; again++) {
        zd_error_clear();
        cr_expect_eq(loader_next(loader, &batch), ZD_ERR_DATA);
        cr_expect(strstr(zd_error_get()->what, "token 30 of"));
    }
    loader_destroy(loader);
    free(memory);
    dataset_close(dataset);
    data_case_fini(&test);
}
