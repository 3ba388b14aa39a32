/* Whole documents in samples, against the definition and with damaged files. */
#include "tests/data/data_expect.h"

enum { DOCUMENTS = 700, T = 50, MOST = T + 1 };

static struct data_case test;
static int lengths[DOCUMENTS];

/* Documents of 1 to 2 T tokens, all different. */
static void setup(void)
{
    uint16_t tokens[2 * T * DOCUMENTS];
    uint64_t state = 7;
    size_t count = 0;
    for (int d = 0; d < DOCUMENTS; d++) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        lengths[d] = (int)(state >> 40) % (d % 9 ? T : 2 * T) + 1;
        for (int i = 1; i < lengths[d]; i++)
            tokens[count++] = (uint16_t)(d % 256);
        tokens[count++] = 256;
    }
    data_case_init(&test, NULL);
    data_case_file(&test, "a.bin", tokens, count * sizeof *tokens);
    test.entry.format = DATA_NANOGPT;
    test.options.packing = PACKING_DOCUMENTS;
    test.options.cutoff_len = T;
}

static void teardown(void)
{
    data_case_fini(&test);
}

TestSuite(data_pack, .init = setup, .fini = teardown);

/* The definition: each document, the longest first, into the sample with the
 * least room that suffices. */
static int fit(int sample_of[DOCUMENTS])
{
    int room[DOCUMENTS], turn[DOCUMENTS], samples = 0;
    for (int length = MOST; length > 0; length--)
        for (int d = 0; d < DOCUMENTS; d++) {
            int best = -1;
            if ((lengths[d] < MOST ? lengths[d] : MOST) != length)
                continue;
            for (int s = 0; s < samples; s++)
                if (room[s] >= length &&
                    (best < 0 || room[s] < room[best] ||
                     (room[s] == room[best] && turn[s] > turn[best])))
                    best = s;
            if (best < 0)
                room[best = samples++] = MOST;
            room[best] -= length;
            turn[best] = (MOST - length) * DOCUMENTS + d;
            sample_of[d] = best;
        }
    return samples;
}

Test(data_pack, samples_are_those_of_the_definition)
{
    int sample_of[DOCUMENTS], place = 0;
    bool is_done[DOCUMENTS] = {false};
    struct dataset *dataset = must_open(&test);
    const struct token_cache *index = &dataset->parts[0].index;
    cr_assert_eq(dataset_summary(dataset).samples, fit(sample_of));
    cr_assert_eq(index->header.word_count, DOCUMENTS);
    for (int first = 0; first < DOCUMENTS; first++)
        for (int d = first; d < DOCUMENTS && !is_done[first]; d++) {
            if (is_done[d] || sample_of[d] != sample_of[first])
                continue;
            uint32_t word = (uint32_t)d | (d == first ? WORD_FIRST : 0);
            cr_assert_eq(index->words[place++], word, "document %d", d);
            if (d > first)
                is_done[d] = true;
        }
    dataset_close(dataset);
}

Test(data_pack, every_token_of_a_split_document_is_a_target_once)
{
    int64_t want = 0, targets = 0;
    test.options.long_documents = LONG_SPLIT;
    struct dataset *dataset = must_open(&test);
    for (int d = 0; d < DOCUMENTS; d++)
        want += lengths[d] - 1;
    for (int64_t n = 0; n < dataset_summary(dataset).samples; n++) {
        struct sample sample = must_read(dataset, n);
        for (int t = 0; t < T; t++) {
            int32_t target = sample.targets[t];
            targets += target >= 0;
            /* a target is of the document of its input */
            cr_assert(
                    target < 0 || target == 256 || target == sample.tokens[t]);
        }
    }
    cr_expect_eq(targets, want);
    dataset_close(dataset);
}

/* The newest file of the cache: the index of samples. */
static void index_file(char path[PATH_MAX])
{
    struct dataset *dataset = must_open(&test);
    strcpy(path, dataset->parts[0].index.path);
    dataset_close(dataset);
}

/* Change bytes of the index and seal it as a writer would: its samples are
 * read, or refused. */
Test(data_pack, a_forged_index_is_read_safely)
{
    int failed = 0;
    char path[PATH_MAX], *good, *bytes;
    size_t size;
    struct sample sample;
    uint64_t state = 1;
    index_file(path);
    cr_assert_eq(fs_read_file(path, 1 << 20, &good, &size), ZD_OK);
    test.request.depth = DATA_TRUST;
    for (int turn = 0; turn < 500; turn++) {
        bytes = malloc(size);
        memcpy(bytes, good, size);
        struct cache_header *header = (struct cache_header *)bytes;
        for (int i = 0; i < 4; i++) {
            state = state * UINT64_C(6364136223846793005) + 1;
            size_t at = sizeof *header +
                        (state >> 20) % ((size - sizeof *header) / 4) * 4;
            uint32_t value = (uint32_t)(state >> 33) >> (state >> 11) % 32;
            memcpy(bytes + at, &value, sizeof value);
        }
        hash_bytes(
                bytes + sizeof *header, size - sizeof *header, header->digest);
        memset(header->header_digest, 0, sizeof header->header_digest);
        cache_header_seal(header);
        cr_assert_eq(fs_write_file(path, bytes, size), ZD_OK);
        free(bytes);
        struct dataset *dataset = must_open(&test);
        for (int64_t n = 0; n < dataset_summary(dataset).samples; n++) {
            enum zd_status status = read_sample(dataset, n, &sample);
            cr_assert(status == ZD_OK || status == ZD_ERR_DATA);
            failed += status != ZD_OK;
        }
        dataset_close(dataset);
    }
    cr_expect_gt(failed, 0);
    free(good);
}

Test(data_pack, a_damaged_index_is_made_again)
{
    char path[PATH_MAX], *good, *bytes;
    size_t size, again;
    index_file(path);
    cr_assert_eq(fs_read_file(path, 1 << 20, &good, &size), ZD_OK);
    for (size_t at = 3; at < size; at += 97) {
        good[at] ^= 4;
        cr_assert_eq(fs_write_file(path, good, size), ZD_OK);
        good[at] ^= 4;
        index_file(path);
        cr_assert_eq(fs_read_file(path, 1 << 20, &bytes, &again), ZD_OK);
        cr_expect_eq(again, size);
        /* all but the time when it was written */
        cr_expect_eq(
                memcmp(bytes + sizeof(struct cache_header),
                       good + sizeof(struct cache_header),
                       size - sizeof(struct cache_header)),
                0, "byte %zu", at);
        free(bytes);
    }
    free(good);
}
