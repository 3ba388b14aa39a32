/* The order of samples, and what tells data apart. */
#include "tests/data/data_expect.h"

enum { T_MAX = 64 };

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
    test->options.packing = PACKING_NO;
    test->options.cutoff_len = 4;
}

/* The samples of one epoch, a character each. */
static void read_epoch(
        struct dataset *dataset, int64_t epoch, char out[T_MAX + 1])
{
    int64_t M = dataset_summary(dataset).samples;
    cr_assert_leq(M, T_MAX);
    for (int64_t i = 0; i < M; i++)
        out[i] = (char)must_read(dataset, epoch * M + i).tokens[0];
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

Test(data_samples, a_shuffled_epoch_takes_every_sample_once)
{
    struct mixture mixture;
    char epochs[4][T_MAX + 1], again[T_MAX + 1];
    mixture_init(&mixture, 0, 0);
    mixture.test.request.shuffle = true;
    struct dataset *dataset = must_open(&mixture.test);
    for (int e = 0; e < 3; e++)
        read_epoch(dataset, e, epochs[e]);
    read_epoch(dataset, 1, again); /* nothing but n decides */
    cr_expect_str_eq(epochs[1], again);
    dataset_close(dataset);
    mixture.test.request.data_seed = 2;
    dataset = must_open(&mixture.test);
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
    char all[5 * T_MAX + 1], text[T_MAX + 1];
    mixture_init(&mixture, 1, 3); /* 4 and 10 of 14: halves of rounds */
    mixture.test.request.shuffle = true;
    struct dataset *dataset = must_open(&mixture.test);
    cr_expect_eq(dataset_summary(dataset).samples, 14);
    read_epoch(dataset, 0, all);
    for (int e = 1; e < 5; e++) {
        read_epoch(dataset, e, text);
        strcat(all, text);
    }
    sort(all); /* 2 rounds of the first entry, 12.5 of the second */
    cr_expect_eq(
            strncmp(all, "AABBCCDDEEFFGGHHIIJJaaaaaaaaaaaa", 32), 0, "%s", all);
    cr_expect_eq(strlen(all), 70);
    cr_expect_eq(dataset_source(dataset, 1).share, 10 / 14.0);
    cr_expect_eq(dataset_source(dataset, 1).samples, 4);
    dataset_close(dataset);
    data_case_fini(&mixture.test);
}

static void digest_of(struct mixture *mixture, char digest[HASH_HEX])
{
    struct dataset *dataset = must_open(&mixture->test);
    strcpy(digest, dataset_summary(dataset).digest);
    dataset_close(dataset);
}

Test(data_samples, the_digest_tells_data_apart)
{
    struct mixture mixture;
    char digest[HASH_HEX], other[HASH_HEX];
    mixture_init(&mixture, 0, 0);
    digest_of(&mixture, digest);
    digest_of(&mixture, other);
    cr_expect_str_eq(digest, other);
    mixture.test.options.cutoff_len = 2; /* compared by its own name */
    digest_of(&mixture, other);
    cr_expect_str_eq(digest, other);
    mixture.entries[0].weight = 2;
    mixture.entries[1].weight = 1;
    digest_of(&mixture, other);
    cr_expect_str_neq(digest, other);
    mixture.entries[0].weight = mixture.entries[1].weight = 0;
    scratch_file(&mixture.test.scratch, "1.jsonl", "{\"text\":\"abcd\"}", 15);
    digest_of(&mixture, other);
    cr_expect_str_neq(digest, other);
    data_case_fini(&mixture.test);
}
