/* Text that is tokenized while it is read: the same samples as when it is
 * whole. */
#include "base/must.h"
#include "tests/data/data_expect.h"

#include <glob.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum { T = 16, BYTES = 9 << 20, TAKEN = 400 };

static struct data_case test;

/* More than three windows of text, in which every place differs. */
static void init(const char *end)
{
    size_t count = 0, room = BYTES + 64;
    char *text = malloc(room);
    for (int i = 0; count < BYTES; i++)
        count += (size_t)snprintf(text + count, room - count, "%d %x\n", i, i);
    count += (size_t)snprintf(text + count, room - count, "%s", end);
    data_case_init(&test, NULL);
    data_case_file(&test, "a.txt", text, count);
    free(text);
    test.options.cutoff_len = T;
    test.options.shuffle = SHUFFLE_WINDOWS;
    test.request.shuffle = true;
    test.request.growth = "test";
    test.request.begins_growth = true;
}

static void setup(void)
{
    init("");
}

static void teardown(void)
{
    data_case_fini(&test);
}

TestSuite(data_growth, .init = setup, .fini = teardown);

/* Samples from all over an epoch and the next one. */
static void take(struct dataset *dataset, uint64_t sums[TAKEN])
{
    for (int64_t i = 0; i < TAKEN; i++) {
        struct sample sample = must_read(dataset, i * i * 7);
        sums[i] = 0;
        for (int t = 0; t < T; t++)
            sums[i] = sums[i] * 257 + (uint64_t)sample.tokens[t];
    }
}

Test(data_growth, samples_do_not_depend_on_how_far_the_text_is)
{
    struct dataset *dataset, *other;
    uint64_t want[TAKEN], sums[TAKEN];
    char digest[HASH_HEX];
    dataset = must_open(&test);
    cr_expect_not_null(dataset->parts->corpus.growth);
    cr_expect_eq(dataset_summary(dataset).samples, 0, "not known");
    cr_expect_str_eq(dataset_summary(dataset).order, "windows");
    strcpy(digest, dataset_summary(dataset).digest);
    /* another rank of the host */
    test.request.begins_growth = false;
    other = must_open(&test);
    take(other, want);
    take(dataset, sums);
    cr_expect_arr_eq(sums, want, sizeof want);
    dataset_close(other);
    dataset_close(dataset);
    /* the next start */
    test.request.begins_growth = true;
    dataset = must_open(&test);
    cr_expect_null(dataset->parts->corpus.growth);
    cr_expect_gt(dataset_summary(dataset).samples, 0);
    cr_expect_str_eq(dataset_summary(dataset).digest, digest);
    take(dataset, sums);
    cr_expect_arr_eq(sums, want, sizeof want);
    dataset_close(dataset);
    cr_expect_eq(data_case_cached(&test), 1);
}

/* Several sources, each known by its letter: text, records, compressed ones,
 * prompts and answers. */
enum { SOURCES = 4, TURNS = 8000 };

struct mixture {
    struct data_entry entries[SOURCES];
    char paths[SOURCES][PATH_MAX];
};

static size_t write_source(int source, char *text, size_t bytes)
{
    static const char *const lines[SOURCES] = {
            "%c%d\n", "{\"text\":\"%c%d\"}\n", "%c%d\n",
            "{\"prompt\":\"%c\",\"completion\":\"%d\"}\n"};
    size_t used = 0;
    for (int i = 0; used < bytes; i++) {
        used += (size_t)sprintf(text + used, lines[source], 'a' + source, i);
        if (source == 3 && i == 70000)
            used += (size_t)sprintf(text + used, "{\"prompt\":1}\n");
    }
    return used;
}

static void mixture_init(struct mixture *mixture, const double *weights)
{
    static const char *const names[SOURCES] = {
            "a.txt", "b.jsonl.zst", "c.txt.gz", "d.jsonl"};
    static const size_t bytes[SOURCES] = {3 << 20, 5 << 20, 1 << 20, 3 << 20};
    char *text = malloc(10 << 20), *packed = malloc(10 << 20);
    for (int i = 0; i < SOURCES; i++) {
        size_t count = write_source(i, text, bytes[i]);
        if (i == 1) {
            count = ZSTD_compress(packed, 10 << 20, text, count, 1);
            memcpy(text, packed, count);
        }
        data_case_file(&test, names[i], text, count);
        strcpy(mixture->paths[i], test.path);
        if (i == 2) {
            gzFile file = gzopen(mixture->paths[i], "wb1");
            cr_assert_eq(gzwrite(file, text, (unsigned)count), (int)count);
            gzclose(file);
        }
        mixture->entries[i] = data_entry_default();
        mixture->entries[i].path = mixture->paths[i];
        mixture->entries[i].weight = weights ? weights[i] : 0;
    }
    mixture->entries[2].max_samples = 30000;
    test.options.on_bad_row = BAD_ROW_SKIP;
    test.request.entries = mixture->entries;
    test.request.entry_count = SOURCES;
    free(packed);
    free(text);
}

/* Which share of the first samples is each source's? */
static void expect_shares(struct dataset *dataset, const double *weights)
{
    int of[SOURCES] = {0};
    for (int64_t n = 0; n < TURNS; n++) {
        struct sample sample = must_read(dataset, n);
        int t = 0;
        while (t + 1 < T &&
               (sample.tokens[t] < 'a' || sample.tokens[t] >= 'a' + SOURCES))
            t++;
        of[sample.tokens[t] - 'a']++;
    }
    for (int i = 0; i < SOURCES; i++)
        cr_expect_float_eq(
                of[i], weights[i] * TURNS, 2, "%c: %d", 'a' + i, of[i]);
}

Test(data_growth, several_sources_take_turns_whatever_is_tokenized)
{
    static const double weights[] = {0.5, 0.2, 0.003, 0.297};
    for (int is_weighted = 0; is_weighted < 2; is_weighted++) {
        struct mixture mixture;
        uint64_t want[TAKEN], sums[TAKEN];
        mixture_init(&mixture, is_weighted ? weights : NULL);
        struct dataset *dataset = must_open(&test);
        cr_expect_str_eq(dataset_summary(dataset).order, "windows");
        for (int i = 0; i < SOURCES; i++)
            cr_expect_not_null(dataset->parts[i].corpus.growth);
        if (is_weighted)
            expect_shares(dataset, weights);
        take(dataset, want);
        cr_expect_eq(dataset_summary(dataset).bad_rows, 1);
        dataset_close(dataset);
        test.request.growth = NULL; /* all are whole */
        dataset = must_open(&test);
        cr_expect_eq(dataset->parts[2].count, 30000, "max_samples");
        cr_expect_eq(dataset_summary(dataset).bad_rows, 1);
        cr_expect(
                strstr(dataset->parts[3].corpus.notes.of[ROW_BAD].first[0],
                       "d.jsonl:70002"));
        take(dataset, sums);
        cr_expect_arr_eq(sums, want, sizeof want);
        dataset_close(dataset);
        teardown();
        setup();
    }
}

Test(data_growth, whole_documents_have_no_windows)
{
    data_case_text(
            &test, "a.jsonl", "{\"prompt\":\"a\",\"completion\":\"b\"}\n");
    test.options.packing = PACKING_AUTO;
    expect_refused(&test, "E0213", "a.jsonl are packed whole");
    test.options.shuffle = SHUFFLE_AUTO;
    struct dataset *dataset = must_open(&test);
    cr_expect_str_eq(dataset_summary(dataset).order, "true");
    dataset_close(dataset);
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

Test(data_growth, every_epoch_takes_every_sample_once)
{
    test.request.growth = NULL;
    struct dataset *dataset = must_open(&test);
    int64_t M = dataset_summary(dataset).samples, apart = 0, in_order = 0;
    ZD_FREED int64_t *taken = calloc((size_t)M, sizeof *taken);
    for (int epoch = 0; epoch < 2; epoch++) {
        for (int64_t i = 0; i < M; i++) {
            struct sample sample = must_read(dataset, epoch * M + i);
            uint64_t hash = 0; /* it wraps */
            for (int t = 0; t < T; t++)
                hash = hash * 31 + (uint64_t)sample.tokens[t];
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
    dataset_close(dataset);
}

Test(data_growth, bad_text_is_an_error_where_it_is_needed)
{
    struct sample sample;
    teardown();
    init("\xff");
    struct dataset *dataset = must_open(&test);
    must_read(dataset, 0);
    cr_expect_eq(read_sample(dataset, BYTES / T - 1, &sample), ZD_ERR_DATA);
    cr_expect_str_eq(zd_error_get()->code, "E0435");
    cr_expect(strstr(zd_error_get()->where, "a.txt:"));
    zd_error_clear();
    dataset_close(dataset);
    cr_expect_eq(data_case_cached(&test), 0, "nothing is left behind");
}

static int64_t same_order(void *ctx, int64_t batch, int b)
{
    (void)ctx;
    (void)b;
    return batch;
}

/* As a slow tokenizer would: this test writes what another rank reads. */
Test(data_growth, a_wait_for_words_goes_on_as_long_as_they_come)
{
    enum { WINDOW = 1 << 20 };
    struct cache_writer *writer;
    struct loader *loader;
    struct loader_batch batch;
    struct progress progress = {0};
    char key[HASH_HEX];
    struct dataset *dataset = must_open(&test);
    strcpy(key, dataset->parts->corpus.key);
    dataset_close(dataset);
    ZD_FREED uint32_t *words = calloc(WINDOW, sizeof *words);
    ZD_FREED int32_t *memory = malloc(loader_bytes(2, 1, T));
    cr_assert_eq(
            cache_writer_create(test.cache, key, "test-0", NULL, &writer),
            ZD_OK);
    test.request.begins_growth = false;
    dataset = must_open(&test);
    cr_assert_eq(
            loader_create(
                    dataset, (struct loader_order){.sample_of = same_order}, 0,
                    1, 1, T, 1, 1, memory, &loader),
            ZD_OK);
    progress_use(&progress);
    cr_expect_not(loader_wait(loader, 20));
    cr_expect_eq(progress.completed, 0, "nothing has come");
    for (int part = 0; part < 2; part++) {
        cr_assert_eq(
                cache_writer_words(writer, words, WINDOW / 2 + part), ZD_OK);
        for (int i = 0; i < 1000 && progress.completed == 0; i++)
            loader_wait(loader, 20);
        cr_expect_gt(progress.completed, 0);
        progress.completed = 0;
    }
    cache_writer_words(writer, words, WINDOW / 4); /* past the buffer */
    cr_expect(loader_wait(loader, 60000));
    cr_expect_eq(loader_next(loader, &batch), ZD_OK);
    progress_use(NULL);
    loader_destroy(loader);
    cache_writer_abandon(writer);
    dataset_close(dataset);
}

static size_t peak_bytes(void)
{
    char line[128];
    size_t kib = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (fgets(line, sizeof line, file) &&
           sscanf(line, "VmHWM: %zu kB", &kib) != 1)
        ;
    fclose(file);
    return kib << 10;
}

enum { TEXT = 64 << 20 };

/* The windows of zstd are the largest; `record`: bytes of one, 0: a text. */
static void write_packed(size_t record)
{
    size_t room = 16 << 20, bytes, used = 0;
    char *line = malloc(8 << 20), *packed = malloc(room);
    ZSTD_CCtx *z = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(z, ZSTD_c_windowLog, 27);
    ZSTD_CCtx_setParameter(z, ZSTD_c_compressionLevel, 1);
    ZSTD_outBuffer out = {packed, room, 0};
    for (int i = 0; used < TEXT; i++, used += bytes) {
        bytes = record ? record : 1 << 20;
        memset(line, 'a' + i % 26, bytes);
        for (size_t at = 40; at < bytes - 3; at += 41)
            line[at] = ' ';
        if (record) {
            memcpy(line, "{\"text\":\"", 9);
            memcpy(line + bytes - 3, "\"}\n", 3);
        }
        ZSTD_inBuffer in = {line, bytes, 0};
        cr_assert_not(ZSTD_isError(ZSTD_compressStream2(z, &out, &in, 0)));
    }
    ZSTD_inBuffer none = {0};
    cr_assert_eq(ZSTD_compressStream2(z, &out, &none, ZSTD_e_end), 0);
    data_case_file(
            &test, record ? "a.jsonl.zst" : "a.txt.zst", packed, out.pos);
    ZSTD_freeCCtx(z);
    free(line);
    free(packed);
}

/* The words of bytes are the longest. */
static void expect_planned(size_t record)
{
    uint64_t count;
    bool is_whole = false;
    atomic_bool stop = false;
    struct progress progress = {0};
    const char *waits;
    teardown();
    setup();
    write_packed(record);
    test.options.preprocessing_threads = 16;
    test.options.train = &test.entry;
    test.options.train_count = 1;
    uint64_t planned = dataset_growth_bytes(&test.options, false, &waits);
    cr_expect_null(waits);
    cr_expect_leq(planned, 200 * 1000 * 1000);
    FILE *clear = fopen("/proc/self/clear_refs", "w"); /* the peak */
    cr_assert(clear && fputs("5", clear) >= 0 && fclose(clear) == 0);
    size_t before = peak_bytes();
    struct dataset *dataset = must_open(&test);
    cr_assert_eq(
            growth_wait(
                    dataset->parts->corpus.growth, UINT64_MAX, &stop, &progress,
                    &count, &is_whole),
            ZD_OK);
    cr_expect(is_whole);
    cr_expect_geq(count, TEXT);
    size_t taken = peak_bytes() - before;
    cr_expect_leq(taken, planned, "%zu of %zu", taken, (size_t)planned);
    cr_expect_geq(taken, TEXT, "the window, it is measured");
    dataset_close(dataset);
}

Test(data_growth, takes_no_more_memory_than_is_planned)
{
#ifdef __SANITIZE_ADDRESS__
    cr_skip("the sanitizer takes more");
#endif
    expect_planned(0);
    expect_planned(GROWTH_RECORD_BYTES - 1);
}

Test(data_growth, a_record_longer_than_is_planned_is_an_error)
{
    struct sample sample;
    write_packed(GROWTH_RECORD_BYTES + 100);
    struct dataset *dataset = must_open(&test);
    cr_expect_eq(read_sample(dataset, 0, &sample), ZD_ERR_DATA);
    cr_expect_str_eq(zd_error_get()->code, "E0440");
    cr_expect(strstr(zd_error_get()->help, "data inspect"));
    zd_error_clear();
    dataset_close(dataset);
    test.request.growth = NULL;
    dataset_close(must_open(&test));
}

static int count_files(const char *pattern)
{
    char path[PATH_MAX + 16];
    glob_t found = {0};
    ZD_PRINT(path, "%s/%s", test.cache, pattern);
    glob(path, 0, NULL, &found);
    int count = (int)found.gl_pathc;
    globfree(&found);
    return count;
}

/* Words that a stopped run has left, with other ids than the text's. */
static void leave_part(const char *key)
{
    enum { UNITS = 3 };
    struct cache_writer *writer;
    struct row_notes notes = {0};
    ZD_FREED uint32_t *words = calloc(UNITS * UNIT_BYTES, sizeof *words);
    for (int i = 0; i < UNITS * UNIT_BYTES; i++)
        words[i] = 'Z' | WORD_TRAIN;
    words[0] = 'Z' | WORD_FIRST;
    cr_assert_eq(
            cache_writer_create(test.cache, key, NULL, NULL, &writer), ZD_OK);
    cr_assert_eq(
            cache_writer_words(writer, words, UNITS * UNIT_BYTES - 77), ZD_OK);
    row_notes_add(&notes, ROW_SPECIALS, 2, "a.txt:1");
    cr_assert_eq(cache_writer_keep(writer, UNITS, &notes), ZD_OK);
    cr_assert_eq(cache_writer_finish(writer, 0), ZD_OK);
}

Test(data_growth, what_is_stopped_is_continued)
{
    char key[HASH_HEX], path[PATH_MAX + 80];
    struct dataset *dataset = must_open(&test);
    strcpy(key, dataset->parts->corpus.key);
    uint64_t sums[TAKEN];
    take(dataset, sums); /* it is whole then */
    dataset_close(dataset);
    for (int is_damaged = 0; is_damaged < 2; is_damaged++) {
        uint32_t word;
        ZD_PRINT(path, "%s/%s.tokens", test.cache, key);
        cr_assert_eq(unlink(path), 0);
        leave_part(key);
        ZD_PRINT(path, "%s/%s.part.tokens", test.cache, key);
        FILE *file = fopen(path, "r+b");
        cr_assert_not_null(file);
        fseek(file, 4096, SEEK_SET);
        if (is_damaged)
            fputc(1, file);
        fclose(file);
        dataset = must_open(&test);
        take(dataset, sums);
        dataset_close(dataset);
        test.request.growth = NULL;
        dataset = must_open(&test);
        const struct corpus *corpus = &dataset->parts->corpus;
        uint64_t at = is_damaged ? 0 : 3 * UNIT_BYTES - 77 - 1;
        corpus_words(&dataset->parts->corpus, at, 1, &word);
        cr_expect_eq(word & WORD_ID, is_damaged ? '0' : 'Z');
        cr_expect_eq(corpus->cache.header.doc_count, 1);
        cr_expect_eq(corpus->cache.header.trained_count + 1, corpus->count);
        cr_expect_eq(corpus->notes.of[ROW_SPECIALS].count, is_damaged ? 0 : 2);
        dataset_close(dataset);
        test.request.growth = "test";
    }
}

Test(data_growth, what_is_stopped_leaves_its_words_alone)
{
    struct progress progress = {0};
    atomic_bool stop = false;
    uint64_t count;
    bool is_whole;
    for (int start = 0; start < 2; start++) {
        struct dataset *dataset = must_open(&test);
        struct growth *growth = dataset->parts->corpus.growth;
        if (growth) /* else the thread was faster */
            cr_expect_eq(
                    growth_wait(growth, 1, &stop, &progress, &count, &is_whole),
                    ZD_OK);
        dataset_close(dataset);
        cr_expect_eq(count_files("*.tmp-*"), 0);
        cr_expect_eq(count_files("*.tokens"), 1);
    }
}
