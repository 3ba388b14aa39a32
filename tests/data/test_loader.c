#include "tests/data/data_expect.h"

enum { B = 2, T = 8, BATCHES = 40 };

static struct data_case test;

static void setup(void)
{
    data_case_init(&test, NULL);
}

static void teardown(void)
{
    data_case_fini(&test);
}

TestSuite(data_loader, .init = setup, .fini = teardown);

/* Of a loader; what is compared with it is read from another dataset, since the
 * loader's belongs to its thread. */
struct loading {
    struct dataset *dataset, *same;
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

/* Batches of `rows` rows. */
static struct loading loading_open(
        struct loader_order order, int64_t first, int64_t batches, int rows,
        int prefetch)
{
    int length = test.options.cutoff_len;
    struct loading loading = {
            must_open(&test), must_open(&test),
            malloc(loader_bytes(2 * prefetch, rows, length))};
    cr_assert_eq(
            loader_create(
                    loading.dataset, order, first, batches, rows, length,
                    prefetch, prefetch, loading.memory, &loading.loader),
            ZD_OK);
    return loading;
}

static void loading_close(struct loading *loading)
{
    loader_destroy(loading->loader);
    free(loading->memory);
    dataset_close(loading->dataset);
    dataset_close(loading->same);
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
    char text[1000];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(' ' + i % 90);
    data_case_file(&test, "a.txt", text, sizeof text);
    test.request.shuffle = true;
    for (int p = 0; p < 3; p++) {
        struct loader_batch batches[BATCHES];
        struct loader_order order = {sample_of, NULL};
        struct loading loading =
                loading_open(order, 5, BATCHES, B, prefetches[p]);
        for (int i = 0; i < BATCHES; i++) {
            cr_assert_eq(loader_next(loading.loader, &batches[i]), ZD_OK);
            for (int back = 0; back < prefetches[p] && back <= i; back++)
                expect_batch(loading.same, 5 + i - back, &batches[i - back]);
        }
        loading_close(&loading);
    }
}

/* The longest of both documents has 39 tokens, of 300 that a row may have: rows
 * of 64 tokens, since 300 are cut into at most 16 lengths. */
Test(data_loader, rows_are_as_long_as_the_longest_of_the_batch_needs)
{
    enum { LONG = 300, NEAR = 64 };
    struct loader_batch batch;
    char text[] = "{\"text\": \"0123456789012345678901234567890123456789\"}\n"
                  "{\"text\": \"abc\"}\n";
    test.options.cutoff_len = LONG;
    test.options.packing = PACKING_NO;
    data_case_file(&test, "a.jsonl", text, sizeof text - 1);
    struct loading loading =
            loading_open((struct loader_order){in_order, NULL}, 0, 1, 2, 1);
    cr_assert_eq(loader_next(loading.loader, &batch), ZD_OK);
    cr_expect_eq(batch.T, NEAR, "%d", batch.T);
    for (int b = 0; b < 2; b++) {
        struct sample sample = must_read(loading.same, b);
        expect_row(&batch, b, NEAR, &sample);
    }
    loading_close(&loading);
}

/* Rows of 4 places are those of one, in 8 pieces; what is counted is the whole
 * sample's. */
Test(data_loader, places_share_the_tokens_of_each_row)
{
    enum { PLACES = 4, PIECE = T / (2 * PLACES), OWN = 2 * PIECE };
    _Static_assert(T % (2 * PLACES) == 0, "whole pieces");
    char text[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    data_case_file(&test, "a.txt", text, sizeof text - 1);
    for (int place = 0; place < PLACES; place++) {
        struct loader_order order = {
                .sample_of = in_order, .places = PLACES, .place = place};
        struct loading loading = loading_open(order, 0, 1, 2, 1);
        struct loader_batch batch;
        cr_assert_eq(loader_next(loading.loader, &batch), ZD_OK);
        struct sample samples[2] = {
                must_read(loading.same, 0), must_read(loading.same, 1)};
        cr_expect_eq(batch.token_count, samples[0].count + samples[1].count);
        for (int n = 0; n < 2 * OWN; n++) {
            const struct sample *sample = &samples[n / OWN];
            int half = n % OWN / PIECE;
            int piece = half ? 2 * PLACES - 1 - place : place;
            int t = piece * PIECE + n % PIECE;
            cr_expect_eq(batch.tokens[n], sample->tokens[t]);
            cr_expect_eq(batch.targets[n], sample->targets[t]);
            cr_expect_eq(batch.doc_start[n], sample->doc_start[t]);
        }
        loading_close(&loading);
    }
}

Test(data_loader, an_error_comes_with_its_batch)
{
    struct loader_batch batch;
    uint16_t tokens[41];
    for (int i = 0; i < 41; i++)
        tokens[i] = i == 30 ? 999 : 'a'; /* in the fourth sample of five */
    data_case_file(&test, "a.bin", tokens, sizeof tokens);
    test.entry.format = DATA_NANOGPT;
    /* opened without the check, as a file above 4 GiB is */
    test.request.depth = DATA_TRUST;
    struct loading loading =
            loading_open((struct loader_order){in_order, NULL}, 0, 5, 1, 4);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(loader_next(loading.loader, &batch), ZD_OK);
    for (int again = 0; again < 2; again++) {
        zd_error_clear();
        cr_expect_eq(loader_next(loading.loader, &batch), ZD_ERR_DATA);
        cr_expect(strstr(zd_error_get()->what, "token 30 of"));
    }
    loading_close(&loading);
}
