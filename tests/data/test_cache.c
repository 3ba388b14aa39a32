/* The tokenised cache: used again, made again, never trusted blindly. */
#include "data/dataset_internal.h"
#include "tests/data/data_case.h"

#include <criterion/criterion.h>
#include <glob.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void cache_file(const struct data_case *test, char path[PATH_MAX])
{
    char pattern[PATH_MAX + 16];
    glob_t found = {0};
    snprintf(pattern, sizeof pattern, "%s/*.tokens", test->cache);
    cr_assert_eq(glob(pattern, 0, NULL, &found), 0);
    cr_assert_eq(found.gl_pathc, 1);
    strcpy(path, found.gl_pathv[0]);
    globfree(&found);
}

static ino_t inode(const char *path)
{
    struct stat info;
    cr_assert_eq(stat(path, &info), 0);
    return info.st_ino;
}

static void expect_words(struct data_case *test, const char *expected)
{
    char *words = data_case_words(test);
    cr_assert_not_null(words, "%s", zd_error_get()->what);
    cr_expect_str_eq(words, expected);
    free(words);
}

Test(data_cache, a_second_start_uses_the_same_file)
{
    struct data_case test;
    char path[PATH_MAX];
    data_case_init(&test, NULL);
    data_case_text(&test, "a.txt", "hello world");
    expect_words(&test, "|[h]ello world$");
    cache_file(&test, path);
    ino_t before = inode(path);
    expect_words(&test, "|[h]ello world$");
    cr_expect_eq(inode(path), before);
    cr_expect_eq(data_case_cached(&test), 1); /* nothing else is left there */
    /* where the file lies and what it is called is not its content */
    data_case_text(&test, "b.txt", "hello world");
    expect_words(&test, "|[h]ello world$");
    cr_expect_eq(data_case_cached(&test), 1);
    data_case_fini(&test);
}

Test(data_cache, what_changes_tokens_changes_the_key)
{
    struct data_case test;
    int files = 1;
    data_case_init(&test, NULL);
    data_case_text(&test, "a.txt", "hello world");
    expect_words(&test, "|[h]ello world$");
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
    data_case_fini(&test);
}

Test(data_cache, damage_anywhere_is_found_and_mended)
{
    struct data_case test;
    char path[PATH_MAX];
    struct stat info;
    data_case_init(&test, NULL);
    data_case_text(&test, "a.txt", "hello world");
    expect_words(&test, "|[h]ello world$");
    cache_file(&test, path);
    cr_assert_eq(stat(path, &info), 0);
    for (off_t at = 0; at < info.st_size; at += 5) {
        FILE *file = fopen(path, "r+b");
        fseek(file, at, SEEK_SET);
        int byte = fgetc(file);
        fseek(file, at, SEEK_SET);
        fputc(byte ^ 0x10, file);
        fclose(file);
        ino_t before = inode(path);
        expect_words(&test, "|[h]ello world$");
        cr_expect_neq(inode(path), before, "byte %ld", (long)at);
    }
    for (off_t size = 0; size < info.st_size; size += 50) {
        cr_assert_eq(truncate(path, size), 0);
        expect_words(&test, "|[h]ello world$");
    }
    cr_assert_eq(truncate(path, info.st_size + 8), 0);
    expect_words(&test, "|[h]ello world$");
    cr_expect_eq(data_case_cached(&test), 1);
    data_case_fini(&test);
}

Test(data_cache, an_index_is_checked_as_well)
{
    struct data_case test;
    char path[PATH_MAX];
    static const uint16_t tokens[] = {'a', 256, 'b', 'c', 256, 'd'};
    data_case_init(&test, NULL);
    data_case_file(&test, "a.bin", tokens, sizeof tokens);
    test.entry.format = DATA_NANOGPT;
    test.options.packing = false;
    expect_words(&test, "|[a]$|[b]c$|[d]");
    cache_file(&test, path);
    FILE *file = fopen(path, "r+b");
    fseek(file, 256 + 8, SEEK_SET);
    fputc(1, file);
    fclose(file);
    expect_words(&test, "|[a]$|[b]c$|[d]");
    data_case_fini(&test);
}

Test(data_cache, leftovers_of_a_killed_process_are_removed)
{
    struct data_case test;
    data_case_init(&test, NULL);
    cr_assert_eq(fs_make_dirs(test.cache), ZD_OK);
    scratch_file(&test.scratch, "cache/old.tokens.tmp-abc123", "x", 1);
    data_case_text(&test, "a.txt", "hello world");
    expect_words(&test, "|[h]ello world$");
    cr_expect_eq(data_case_cached(&test), 1);
    data_case_fini(&test);
}

Test(data_cache, several_processes_may_build_it_at_once)
{
    enum { PROCESSES = 4 };
    struct data_case test;
    size_t bytes = 300000;
    char *text = malloc(bytes + 1);
    data_case_init(&test, NULL);
    memset(text, 'x', bytes);
    data_case_file(&test, "a.txt", text, bytes);
    pid_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            struct dataset *dataset = data_case_open(&test);
            _exit(dataset && dataset_tokens(dataset) == 300001 ? 0 : 1);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        int how;
        cr_assert_eq(waitpid(children[i], &how, 0), children[i]);
        cr_expect(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    }
    cr_expect_eq(data_case_cached(&test), 1);
    free(text);
    data_case_fini(&test);
}

Test(data_cache, open_builds_what_prepare_did_not)
{
    struct data_case test;
    struct dataset *dataset;
    data_case_init(&test, NULL);
    data_case_text(&test, "a.txt", "hello world");
    cr_assert_eq(dataset_open(&test.request, &dataset), ZD_OK);
    cr_expect_eq(dataset_tokens(dataset), 12);
    dataset_close(dataset);
    data_case_fini(&test);
}

Test(data_cache, a_failure_leaves_nothing_behind)
{
    struct data_case test;
    data_case_init(&test, NULL);
    data_case_text(&test, "a.txt", "hello \xff world");
    cr_expect_null(data_case_words(&test));
    cr_expect_eq(zd_error_get()->status, ZD_ERR_DATA);
    cr_expect_eq(data_case_cached(&test), 0);
    data_case_fini(&test);
}

Test(data_cache, a_full_disk_is_told_and_leaves_nothing_behind)
{
    struct data_case test;
    static char text[200000];
    struct rlimit limit = {100000, 100000};
    data_case_init(&test, NULL);
    memset(text, 'x', sizeof text);
    data_case_file(&test, "a.txt", text, sizeof text);
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_expect_null(data_case_words(&test));
    cr_expect_eq(zd_error_get()->status, ZD_ERR_IO);
    cr_expect(strstr(zd_error_get()->what, test.cache));
    cr_expect_eq(data_case_cached(&test), 0);
    data_case_fini(&test);
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
