/* From the stream of words to numbered samples, and their order. */
#include "data/dataset_internal.h"
#include "tests/data/data_case.h"

#include <criterion/criterion.h>

enum { T_MAX = 64 };

struct sample {
    int32_t tokens[T_MAX], targets[T_MAX], doc_start[T_MAX];
    int token_count;
};

static struct sample take(struct dataset *dataset, int64_t n)
{
    struct sample sample;
    cr_assert_eq(
            dataset_sample(
                    dataset, n, sample.tokens, sample.targets, sample.doc_start,
                    &sample.token_count),
            ZD_OK, "%s", zd_error_get()->what);
    return sample;
}

/* "ab." : tokens as characters; . for a masked target or padding, $ for 256 */
static void expect_row(
        const int32_t *row, int T, int32_t none, const char *expected,
        const char *name)
{
    char text[T_MAX + 1] = "";
    for (int t = 0; t < T; t++)
        text[t] = row[t] == none ? '.' : row[t] == 256 ? '$' : (char)row[t];
    cr_expect_str_eq(text, expected, "%s: %s, not %s", name, text, expected);
}

/* `want`: tokens, targets, doc_start and count of tokens. */
static void expect_sample(struct dataset *dataset, int64_t n, const char *want)
{
    struct sample sample = take(dataset, n);
    char tokens[T_MAX + 1], targets[T_MAX + 1], starts[T_MAX + 1];
    char text[T_MAX + 1] = "";
    int T = dataset->T, count;
    cr_assert_eq(
            sscanf(want, "%64s %64s %64s %d", tokens, targets, starts, &count),
            4);
    expect_row(sample.tokens, T, 0, tokens, "tokens");
    expect_row(sample.targets, T, -1, targets, "targets");
    for (int t = 0; t < T; t++)
        text[t] = (char)('0' + sample.doc_start[t]);
    cr_expect_str_eq(text, starts, "doc_start: %s, not %s", text, starts);
    cr_expect_eq(sample.token_count, count);
}

#define TEXT(text) "{\"text\":\"" text "\"}\n"
#define PROMPT(prompt, completion)                                             \
    "{\"prompt\":\"" prompt "\",\"completion\":\"" completion "\"}\n"

Test(data_samples, are_cut_from_the_stream_or_a_document_each)
{
    static const uint16_t tokens[] = {'a', 'b', 256, 'c', 'd',
                                      'e', 256, 'f', 'g', 'h'};
    static const char unequal[] =
            TEXT("ab") TEXT("abcd") TEXT("abcde") TEXT("abc") TEXT("");
    static const struct {
        const char *name, *lines; /* NULL: tokens in a file */
        int T;
        bool packing;
        int samples; /* of an epoch */
        const char *want[5];
    } rows[] = {
            /* abc$defghi$j$: at 0, 4, 8, and the next epoch's first */
            {"packed samples share one token",
             TEXT("abc") TEXT("defghi") TEXT("j"),
             4,
             true,
             3,
             {"abc$ bc$. 0000 4", "defg efgh 0000 4", "hi$j i$.$ 0003 4",
              "abc$ bc$. 0000 4"}},
            {"unpacked ones are a document",
             unequal,
             4,
             false,
             5,
             {"ab$. b$.. 0003 3", "abcd bcd$ 0000 4", "abcd bcde 0000 4",
              "abc$ bc$. 0000 4", "$... .... 0123 1"}},
            {"masked words are masked targets",
             PROMPT("ab", "cd") PROMPT("e", "fgh"),
             8,
             true,
             1,
             {"abcd$efg .cd$.fgh 00000555 8"}},
            {"packed tokens",
             NULL,
             3,
             true,
             3,
             {"ab$ b$. 000 3", "cde de$ 000 3", "$fg .gh 011 3"}},
            {"unpacked tokens",
             NULL,
             3,
             false,
             3,
             {"ab$ b$. 000 3", "cde de$ 000 3", "fgh gh. 000 3"}},
    };
    for (size_t r = 0; r < COUNT(rows); r++) {
        struct data_case test;
        data_case_init(&test, NULL);
        if (rows[r].lines)
            data_case_text(&test, "a.jsonl", rows[r].lines);
        else
            data_case_file(&test, "a.bin", tokens, sizeof tokens);
        test.entry.format = rows[r].lines ? DATA_AUTO : DATA_NANOGPT;
        test.options.cutoff_len = rows[r].T;
        test.options.packing = rows[r].packing;
        struct dataset *dataset = data_case_open(&test);
        cr_assert_not_null(
                dataset, "%s: %s", rows[r].name, zd_error_get()->what);
        cr_expect_eq(dataset_samples(dataset), rows[r].samples);
        for (int n = 0; n < 5 && rows[r].want[n]; n++)
            expect_sample(dataset, n, rows[r].want[n]);
        dataset_close(dataset);
        data_case_fini(&test);
    }
}

Test(data_samples, the_tail_of_the_stream_is_dropped)
{
    static const struct {
        int length; /* of the text; one more with end of text */
        int samples;
    } rows[] = {{3, 0}, {4, 1}, {7, 1}, {8, 2}, {11, 2}, {12, 3}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct data_case test;
        data_case_init(&test, NULL);
        data_case_file(&test, "a.txt", "abcdefghijkl", (size_t)rows[i].length);
        test.options.cutoff_len = 4;
        struct dataset *dataset = data_case_open(&test);
        if (rows[i].samples == 0) {
            cr_expect_null(dataset);
            cr_expect_eq(zd_error_get()->status, ZD_ERR_DATA);
            cr_expect_not_null(strstr(zd_error_get()->what, "a.txt"));
        } else {
            cr_assert_not_null(dataset);
            cr_expect_eq(dataset_samples(dataset), rows[i].samples);
        }
        dataset_close(dataset);
        data_case_fini(&test);
    }
}

/* Two entries of 10 and 4 one-token samples: A..J and a..d. */
struct mixture {
    struct data_case test;
    struct data_entry entries[2];
    char paths[2][PATH_MAX];
};

static void mixture_init(struct mixture *mixture, double first, double second)
{
    static const char *const texts[] = {"ABCDEFGHIJ", "abcd"};
    struct data_case *test = &mixture->test;
    data_case_init(test, NULL);
    for (int e = 0; e < 2; e++) {
        char content[512] = "", name[24];
        for (const char *c = texts[e]; *c; c++)
            sprintf(content + strlen(content), "{\"text\":\"%c\"}\n", *c);
        snprintf(name, sizeof name, "%d.jsonl", e);
        data_case_text(test, name, content);
        strcpy(mixture->paths[e], test->path);
        mixture->entries[e] = data_entry_default();
        mixture->entries[e].path = mixture->paths[e];
        mixture->entries[e].weight = e == 0 ? first : second;
    }
    test->request.entries = mixture->entries;
    test->request.entry_count = 2;
    test->options.packing = false;
    test->options.cutoff_len = 4;
}

/* The samples of one epoch, a character each. */
static void read_epoch(
        struct dataset *dataset, int64_t epoch, char out[T_MAX + 1])
{
    int64_t M = dataset_samples(dataset);
    cr_assert_leq(M, T_MAX);
    for (int64_t i = 0; i < M; i++)
        out[i] = (char)take(dataset, epoch * M + i).tokens[0];
    out[M] = '\0';
}

static int compare_chars(const void *a, const void *b)
{
    return *(const char *)a - *(const char *)b;
}

static void sort(char *text)
{
    qsort(text, strlen(text), 1, compare_chars);
}

Test(data_samples, an_epoch_takes_each_entry_by_its_weight)
{
    static const struct {
        double first, second;
        const char *epoch[2]; /* unshuffled */
    } rows[] = {
            {1, 1, {"ABCDEFGHIJabcd", "ABCDEFGHIJabcd"}},
            {0.5, 2, {"ABCDEabcdabcd", "FGHIJabcdabcd"}},
            {0.3, 1.5, {"ABCabcdab", "DEFcdabcd"}},
            {0.16, 0.4, {"ABab", "CDcd"}}, /* 1.6 each */
            {0.05, 0.1249, {NULL}},        /* 0.5 rounds to 1, 0.4996 to 0 */
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct mixture mixture;
        mixture_init(&mixture, rows[i].first, rows[i].second);
        struct dataset *dataset = data_case_open(&mixture.test);
        cr_expect_eq(dataset == NULL, rows[i].epoch[0] == NULL);
        for (int e = 0; e < 2 && dataset; e++) {
            char text[T_MAX + 1];
            read_epoch(dataset, e, text);
            cr_expect_str_eq(text, rows[i].epoch[e], "%s", text);
        }
        dataset_close(dataset);
        data_case_fini(&mixture.test);
    }
}

Test(data_samples, a_shuffled_epoch_takes_every_sample_once)
{
    struct mixture mixture;
    char epochs[4][T_MAX + 1], again[T_MAX + 1];
    mixture_init(&mixture, 1, 1);
    mixture.test.request.shuffle = true;
    struct dataset *dataset = data_case_open(&mixture.test);
    cr_assert_not_null(dataset);
    for (int e = 0; e < 3; e++)
        read_epoch(dataset, e, epochs[e]);
    read_epoch(dataset, 1, again); /* nothing but n decides */
    cr_expect_str_eq(epochs[1], again);
    dataset_close(dataset);
    mixture.test.request.data_seed = 2;
    dataset = data_case_open(&mixture.test);
    read_epoch(dataset, 0, epochs[3]);
    dataset_close(dataset);
    cr_expect_str_neq(epochs[0], "ABCDEFGHIJabcd");
    for (int e = 0; e < 4; e++)
        for (int other = 0; other < e; other++)
            cr_expect_str_neq(epochs[e], epochs[other]);
    for (int e = 0; e < 4; e++) {
        sort(epochs[e]);
        cr_expect_str_eq(epochs[e], "ABCDEFGHIJabcd");
    }
    data_case_fini(&mixture.test);
}

Test(data_samples, shuffled_weights_go_round_evenly)
{
    struct mixture mixture;
    char all[2 * T_MAX + 1], text[T_MAX + 1];
    mixture_init(&mixture, 0.5, 2.5);
    mixture.test.request.shuffle = true;
    struct dataset *dataset = data_case_open(&mixture.test);
    cr_assert_not_null(dataset);
    cr_expect_eq(dataset_samples(dataset), 15);
    read_epoch(dataset, 0, all);
    read_epoch(dataset, 1, text);
    strcat(all, text);
    sort(all);
    cr_expect_str_eq(all, "ABCDEFGHIJaaaaabbbbbcccccddddd");
    dataset_close(dataset);
    data_case_fini(&mixture.test);
}

Test(data_samples, max_samples_takes_the_first)
{
    struct mixture mixture;
    char text[T_MAX + 1];
    mixture_init(&mixture, 1, 1);
    mixture.entries[0].max_samples = 3;
    mixture.entries[1].max_samples = 40;
    struct dataset *dataset = data_case_open(&mixture.test);
    cr_assert_not_null(dataset);
    read_epoch(dataset, 0, text);
    cr_expect_str_eq(text, "ABCabcd");
    dataset_close(dataset);
    data_case_fini(&mixture.test);
}

Test(data_samples, val_split_cuts_every_entry_in_two)
{
    static const struct {
        double from, to;
        const char *expected;
    } rows[] = {{0, 0.75, "ABCDEFGHabc"}, {0.75, 1, "IJd"}, {0.9, 1, NULL}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct mixture mixture;
        char text[T_MAX + 1];
        mixture_init(&mixture, 1, 1);
        mixture.test.request.from = rows[i].from;
        mixture.test.request.to = rows[i].to;
        mixture.test.options.val_split = 1 - rows[i].from;
        struct dataset *dataset = data_case_open(&mixture.test);
        cr_expect_eq(dataset == NULL, rows[i].expected == NULL);
        if (dataset) {
            read_epoch(dataset, 0, text);
            cr_expect_str_eq(text, rows[i].expected, "%s", text);
        } else {
            cr_expect(strstr(
                    zd_error_get()->what, "data.val_split = 0.1 of 4 samples"));
        }
        dataset_close(dataset);
        data_case_fini(&mixture.test);
    }
}

static void digest_of(struct mixture *mixture, char digest[HASH_HEX])
{
    struct dataset *dataset = data_case_open(&mixture->test);
    strcpy(digest, dataset_digest(dataset));
    dataset_close(dataset);
}

Test(data_samples, the_digest_tells_data_apart)
{
    struct mixture mixture;
    char digest[HASH_HEX], other[HASH_HEX];
    mixture_init(&mixture, 1, 1);
    digest_of(&mixture, digest);
    digest_of(&mixture, other);
    cr_expect_str_eq(digest, other);
    mixture.test.options.cutoff_len = 2; /* compared by its own name */
    digest_of(&mixture, other);
    cr_expect_str_eq(digest, other);
    mixture.entries[0].weight = 2;
    digest_of(&mixture, other);
    cr_expect_str_neq(digest, other);
    mixture.entries[0].weight = 1;
    scratch_file(&mixture.test.scratch, "1.jsonl", "{\"text\":\"abcd\"}", 15);
    digest_of(&mixture, other);
    cr_expect_str_neq(digest, other);
    data_case_fini(&mixture.test);
}
