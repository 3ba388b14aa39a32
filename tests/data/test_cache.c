/* The tokenized cache: used again, made again, never trusted blindly. */
#include "base/must.h"
#include "tests/data/data_expect.h"

#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct data_case test;
static char path[PATH_MAX]; /* of the cache's file */

static void setup(void)
{
    data_case_init(&test, NULL);
}

static void teardown(void)
{
    data_case_fini(&test);
}

TestSuite(data_cache, .init = setup, .fini = teardown);

static void cache_file(void)
{
    char pattern[PATH_MAX + 16];
    glob_t found = {0};
    snprintf(pattern, sizeof pattern, "%s/*.tokens", test.cache);
    cr_assert_eq(glob(pattern, 0, NULL, &found), 0);
    cr_assert_eq(found.gl_pathc, 1);
    strcpy(path, found.gl_pathv[0]);
    globfree(&found);
}

static ino_t inode(void)
{
    struct stat info;
    cr_assert_eq(stat(path, &info), 0);
    return info.st_ino;
}

#define HELLO "|[h]ello world$"

/* A text that is in the cache, in the file `path`. */
static void init(void)
{
    data_case_text(&test, "a.txt", "hello world");
    expect_words(&test, HELLO);
    cache_file();
}

Test(data_cache, a_second_start_uses_the_same_file)
{
    init();
    ino_t before = inode();
    expect_words(&test, HELLO);
    cr_expect_eq(inode(), before);
    cr_expect_eq(data_case_cached(&test), 1); /* nothing else is left there */
    /* where the file lies and what it is called is not its content */
    data_case_text(&test, "b.txt", "hello world");
    expect_words(&test, HELLO);
    cr_expect_eq(data_case_cached(&test), 1);
}

Test(data_cache, what_changes_tokens_changes_the_key)
{
    int files = 1;
    init();
    test.options.add_eos = false;
    expect_words(&test, "|[h]ello world");
    cr_expect_eq(data_case_cached(&test), ++files);
    data_case_text(&test, "a.txt", "hello earth"); /* as long, as old */
    expect_words(&test, "|[h]ello earth");
    cr_expect_eq(data_case_cached(&test), ++files);
    data_case_text(
            &test, "a.jsonl",
            "{\"messages\":[{\"role\":\"assistant\",\"content\":\"ab\"}]}");
    test.options.chat_template = CHAT_NONE;
    expect_words(&test, "|[a]b");
    cr_expect_eq(data_case_cached(&test), ++files);
    test.options.chat_template = CHAT_CHATML;
    expect_words(&test, "|[<|im_start|>assistant\n]ab<|im_end|>[\n]");
    cr_expect_eq(data_case_cached(&test), ++files);
    test.options.train_on = TRAIN_ON_ALL;
    expect_words(&test, "|[<]|im_start|>assistant\nab<|im_end|>\n");
    cr_expect_eq(data_case_cached(&test), ++files);
    struct tokenizer *bytes = test.tokenizer;
    tokenizer_close(bytes);
    cr_assert_eq(
            tokenizer_open(ZD_FIXTURES "/tokenizers/qwen2", &test.tokenizer),
            ZD_OK);
    test.request.tokenizer = test.tokenizer;
    test.request.vocab_size = 501;
    test.request.eos = 498;
    expect_words(&test, "|[<499>]assistant\nab<500>\n");
    cr_expect_eq(data_case_cached(&test), ++files);
}

Test(data_cache, damage_anywhere_is_found_and_mended)
{
    struct stat info;
    init();
    cr_assert_eq(stat(path, &info), 0);
    for (off_t at = 0; at < info.st_size; at += 5) {
        FILE *file = fopen(path, "r+b");
        fseek(file, at, SEEK_SET);
        int byte = fgetc(file);
        fseek(file, at, SEEK_SET);
        fputc(byte ^ 0x10, file);
        fclose(file);
        ino_t before = inode();
        expect_words(&test, HELLO);
        cr_expect_neq(inode(), before, "byte %ld", (long)at);
    }
    for (off_t size = 0; size < info.st_size; size += 50) {
        cr_assert_eq(truncate(path, size), 0);
        expect_words(&test, HELLO);
    }
    cr_assert_eq(truncate(path, info.st_size + 8), 0);
    expect_words(&test, HELLO);
    cr_expect_eq(data_case_cached(&test), 1);
}

/* What is changed in a file of the cache: a word or a document, and a count. */
struct way {
    enum { NOTHING, A_WORD, A_DOCUMENT } what;
    int at;
    uint64_t value;
    int trained; /* so many more in the header */
};

/* Change it, and seal it as a writer would. */
static void forge(struct way way)
{
    ZD_FREED char *bytes = NULL;
    size_t size;
    cache_file();
    cr_assert_eq(fs_read_file(path, 1 << 20, &bytes, &size), ZD_OK);
    struct cache_header *header = (struct cache_header *)bytes;
    char *words = bytes + sizeof *header;
    char *docs = bytes + cache_docs_offset(header->word_count);
    if (way.what == A_WORD)
        ((uint32_t *)words)[way.at] = (uint32_t)way.value;
    else if (way.what == A_DOCUMENT)
        ((uint64_t *)docs)[way.at] = way.value;
    header->trained_count += (uint64_t)way.trained;
    hash_bytes(words, size - sizeof *header, header->digest);
    memset(header->header_digest, 0, sizeof header->header_digest);
    cache_header_seal(header);
    cr_assert_eq(fs_write_file(path, bytes, size), ZD_OK);
}

static void check_ways(const char *words, const struct way *ways, size_t count)
{
    expect_words(&test, words);
    cache_file();
    for (size_t i = 0; i < count; i++) {
        forge(ways[i]);
        ino_t planted = inode();
        expect_words(&test, words);
        cr_expect_neq(inode(), planted, "way %zu", i);
    }
}

Test(data_cache, what_no_writer_of_ours_wrote_is_made_again)
{
    static const struct way ways[] = {
            {A_WORD, 2, WORD_TRAIN | 257}, /* an id beyond the vocabulary */
            {A_WORD, 2, WORD_TRAIN | WORD_ID},
            {A_WORD, 0, WORD_FIRST | WORD_TRAIN | 'h', .trained = 1},
            {A_DOCUMENT, 0, 7}, /* after the next one */
            {A_DOCUMENT, 1, UINT64_C(1) << 40},
            {A_DOCUMENT, 1, 5}, /* a word too early */
            {A_DOCUMENT, 2, 1012},
            {NOTHING, .trained = 1000}};
    static const struct way of_index[] = {
            {A_DOCUMENT, 0, 3},
            {A_DOCUMENT, 1, UINT64_C(1) << 40},
            {A_DOCUMENT, 3, 1006}};
    static const uint16_t tokens[] = {'a', 256, 'b', 'c', 256, 'd'};
    data_case_text(
            &test, "a.jsonl", "{\"text\":\"hello\"}\n{\"text\":\"world\"}");
    check_ways("|[h]ello$|[w]orld$", ways, COUNT(ways));
    teardown();
    setup();
    data_case_file(&test, "a.bin", tokens, sizeof tokens);
    test.entry.format = DATA_NANOGPT;
    test.options.packing = PACKING_NO;
    check_ways("|[a]$|[b]c$|[d]", of_index, COUNT(of_index));
}

/* Is the file taken by who does not ask for all of it to be read? */
static bool is_taken(void)
{
    const struct cache_limits limits = {
            .ids = 257, .is_shared = test.options.cache_shared};
    struct token_cache cache = {0};
    char key[HASH_HEX];
    snprintf(key, sizeof key, "%s", strrchr(path, '/') + 1);
    cr_assert_eq(token_cache_open(test.cache, key, &limits, &cache), ZD_OK);
    bool found = cache.map != NULL;
    token_cache_close(&cache);
    return found;
}

Test(data_cache, another_users_file_is_used_only_where_the_job_says_so)
{
    if (geteuid() != 0)
        cr_skip("not root: there is no other user");
    init();
    forge((struct way){A_WORD, 2, WORD_TRAIN | 257});
    cr_expect(is_taken(), "ours is not read whole again");
    cr_assert_eq(chown(path, 65534, 65534), 0);
    test.options.cache_shared = true;
    cr_expect(!is_taken(), "it is read whole");
    expect_words(&test, HELLO);
    cr_assert_eq(chown(path, 65534, 65534), 0);
    cr_expect(is_taken(), "a sound one is used");
    test.options.cache_shared = false;
    cr_expect(!is_taken(), "nor a sound one, unasked");
    expect_words(&test, HELLO);
    cr_expect(is_taken(), "ours has taken its place");
}

Test(data_cache, what_is_written_after_it_was_opened_is_an_error)
{
    struct corpus corpus;
    uint32_t words[8], id = WORD_TRAIN | 70000;
    init();
    cr_assert_eq(data_case_corpus(&test, &corpus), ZD_OK);
    cr_expect_eq(corpus_words(&corpus, 0, 8, words), ZD_OK);
    FILE *file = fopen(path, "r+b");
    fseek(file, sizeof(struct cache_header) + 2 * sizeof id, SEEK_SET);
    cr_assert_eq(fwrite(&id, sizeof id, 1, file), 1);
    fclose(file);
    cr_expect_eq(corpus_words(&corpus, 0, 8, words), ZD_ERR_DATA);
    zd_error_clear();
    cr_expect_eq(corpus_words(&corpus, 8, 8, words), ZD_ERR_DATA);
    corpus_close(&corpus);
}

Test(data_cache, leftovers_of_a_killed_process_are_removed)
{
    cr_assert_eq(fs_make_dirs(test.cache), ZD_OK);
    scratch_file(&test.scratch, "cache/old.tokens.tmp-abc123", "x", 1);
    data_case_text(&test, "a.txt", "hello world");
    expect_words(&test, HELLO);
    cr_expect_eq(data_case_cached(&test), 1);
}

Test(data_cache, several_processes_may_build_it_at_once)
{
    enum { PROCESSES = 4 };
    size_t bytes = 300000;
    ZD_FREED char *text = malloc(bytes + 1);
    memset(text, 'x', bytes);
    data_case_file(&test, "a.txt", text, bytes);
    pid_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            struct dataset *dataset = data_case_open(&test);
            _exit(dataset && dataset_summary(dataset).tokens == 300001 ? 0 : 1);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        int how;
        cr_assert_eq(waitpid(children[i], &how, 0), children[i]);
        cr_expect(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    }
    cr_expect_eq(data_case_cached(&test), 1);
}

Test(data_cache, a_failure_leaves_nothing_behind)
{
    data_case_text(&test, "a.txt", "hello \xff world");
    expect_refused(&test, "E0435", "not UTF-8");
    cr_expect_eq(data_case_cached(&test), 0);
}

Test(data_cache, a_full_disk_is_told_and_leaves_nothing_behind)
{
    static char text[200000];
    struct rlimit limit = {100000, 100000};
    memset(text, 'x', sizeof text);
    data_case_file(&test, "a.txt", text, sizeof text);
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_expect_null(data_case_words(&test));
    cr_expect_eq(zd_error_get()->status, ZD_ERR_IO);
    cr_expect(strstr(zd_error_get()->what, test.cache));
    cr_expect_eq(data_case_cached(&test), 0);
}

Test(data_cache, the_folder_is_the_users_cache_unless_named)
{
    struct scratch scratch;
    char folder[PATH_MAX], expected[PATH_MAX];
    scratch_init(&scratch);
    setenv("XDG_CACHE_HOME", scratch.dir, 1);
    cr_expect_eq(token_cache_folder("auto", folder), ZD_OK);
    fs_join(expected, sizeof expected, scratch.dir, "zerod");
    cr_expect_str_eq(folder, expected);
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", scratch.dir, 1);
    cr_expect_eq(token_cache_folder("auto", folder), ZD_OK);
    fs_join(expected, sizeof expected, scratch.dir, ".cache/zerod");
    cr_expect_str_eq(folder, expected);
    cr_expect(fs_is_dir(folder));
    scratch_file(&scratch, "file", "", 0);
    cr_expect_eq(token_cache_folder(scratch.path, folder), ZD_ERR_CREATE);
    zd_error_clear();
    scratch_fini(&scratch);
}

/* A byte of the words is another, and the file's time is what it was. */
static void damage_in_silence(void)
{
    struct stat info;
    char byte;
    cr_assert_eq(stat(path, &info), 0);
    FILE *file = fopen(path, "r+b");
    cr_assert_not_null(file);
    fseek(file, sizeof(struct cache_header), SEEK_SET);
    cr_assert_eq(fread(&byte, 1, 1, file), 1);
    byte ^= 1;
    fseek(file, sizeof(struct cache_header), SEEK_SET);
    cr_assert_eq(fwrite(&byte, 1, 1, file), 1);
    cr_assert_eq(fclose(file), 0);
    const struct timespec times[] = {info.st_atim, info.st_mtim};
    cr_assert_eq(utimensat(AT_FDCWD, path, times, 0), 0);
}

Test(data_cache, a_start_looks_at_times_and_the_whole_is_read_beside_it)
{
    struct sample sample;
    init();
    ino_t before = inode();
    damage_in_silence();
    struct dataset *dataset = must_open(&test);
    cr_expect_eq(inode(), before, "its time is right: it is not read");
    must_read(dataset, 0);
    dataset_check_begin(dataset);
    dataset_check_wait(dataset);
    cr_expect_eq(read_sample(dataset, 0, &sample), ZD_ERR_DATA);
    cr_expect_str_eq(zd_error_get()->code, "E0450");
    zd_error_clear();
    dataset_close(dataset);

    expect_words(&test, HELLO);
    cr_expect_neq(inode(), before, "the next start makes it anew");
    dataset = must_open(&test);
    dataset_check_begin(dataset);
    dataset_check_wait(dataset);
    must_read(dataset, 0);
    dataset_close(dataset);
}

Test(data_cache, bad_rows_are_counted_and_their_reasons_kept)
{
    struct corpus corpus;
    static char text[200 * 16];
    for (int i = 0; i < 200; i++)
        strcat(text, i % 20 == 3 ? "{\"text\":1}\n" : "{\"text\":\"a\"}\n");
    data_case_text(&test, "a.jsonl", text);
    cr_expect_null(data_case_words(&test), "a bad row ends the job");
    cr_expect(strstr(zd_error_get()->where, "a.jsonl:4"));
    zd_error_clear();
    test.options.on_bad_row = BAD_ROW_SKIP;
    for (int turn = 0; turn < 3; turn++) {
        cr_assert_eq(data_case_corpus(&test, &corpus), ZD_OK);
        cr_expect_eq(corpus.notes.of[ROW_BAD].rows, 10);
        cr_expect_eq(corpus_documents(&corpus), 190);
        cr_expect_eq(corpus.notes.of[ROW_BAD].kept, turn < 2 ? ROWS_KEPT : 0);
        cr_expect(
                turn == 2 ||
                strstr(corpus.notes.of[ROW_BAD].first[1], "a.jsonl:24"));
        strcpy(path, corpus.cache.path);
        strcpy(strrchr(path, '.'), ".rows");
        corpus_close(&corpus);
        if (turn == 1) /* without the file the count is known */
            cr_assert_eq(unlink(path), 0);
    }
    test.options.on_bad_row = BAD_ROW_STOP;
    cr_expect_null(data_case_words(&test), "the cache is that of another key");
}
