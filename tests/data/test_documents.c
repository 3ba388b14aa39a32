/* Documents of files: post-processors, patterns of paths, several threads. */
#include "base/must.h"
#include "tests/data/data_expect.h"

#include <unistd.h>

/* The tokenizer of a case with `pieces` in its template: 456 is <s>, 457 </s>,
 * the end of text. */
static void put_around(struct data_case *test, const char *pieces)
{
    char path[PATH_MAX], *processor = NULL;
    json_t *file, *json;
    fs_join(path, sizeof path, ZD_FIXTURES "/tokenizers/prefix_space",
            "tokenizer.json");
    cr_assert_eq(json_parse_file(path, 1 << 24, &file), ZD_OK);
    cr_assert(
            asprintf(
                    &processor,
                    "{\"type\": \"TemplateProcessing\", \"single\": [%s], "
                    "\"special_tokens\": {\"<s>\": {\"ids\": [456]}, \"</s>\": "
                    "{\"ids\": [457]}}}",
                    pieces) > 0);
    cr_assert_eq(
            json_parse(processor, strlen(processor), "p", ZD_ERR_BUG, &json),
            ZD_OK);
    json_object_set_new(file, "post_processor", json);
    scratch_path(&test->scratch, "tokenizer.json");
    cr_assert_eq(json_write_file(test->scratch.path, file), ZD_OK);
    tokenizer_close(test->tokenizer);
    cr_assert_eq(
            tokenizer_open(test->scratch.path, &test->tokenizer), ZD_OK, "%s",
            zd_error_get()->what);
    test->request.tokenizer = test->tokenizer;
    json_decref(file);
    free(processor);
}

Test(data_documents, what_the_post_processor_puts_after_a_text_is_trained)
{
#define TEXT "{\"Sequence\": {\"id\": \"A\"}}"
#define BOS  "{\"SpecialToken\": {\"id\": \"<s>\"}}"
#define EOS  "{\"SpecialToken\": {\"id\": \"</s>\"}}"
    static const struct {
        const char *pieces, *file, *content, *expected;
        bool add_eos;
    } rows[] = {
            {BOS "," TEXT "," EOS, "a.txt", " x", "|[<456>] x$", true},
            {BOS "," TEXT "," EOS, "b.txt", " x", "|[<456>] x$", false},
            {TEXT "," EOS "," BOS, "c.txt", " xy", "|[ ]xy$<456>$", true},
            {TEXT "," EOS, "d.jsonl",
             "{\"text\":\" xy\"}\n{\"text\":\" zw\"}\n", "|[ ]xy$|[ ]zw$",
             true},
            {TEXT "," EOS, "e.jsonl",
             "{\"prompt\":\" x\",\"completion\":\" y\"}\n", "|[ x] y$", true},
            /* a template has its own ends */
            {TEXT "," EOS, "f.jsonl",
             "{\"messages\":[{\"role\":\"user\",\"content\":\" x\"},"
             "{\"role\":\"assistant\",\"content\":\" y\"}]}\n",
             "|[ x] y", true},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct data_case test;
        data_case_init(&test, "prefix_space");
        put_around(&test, rows[i].pieces);
        data_case_text(&test, rows[i].file, rows[i].content);
        test.options.add_eos = rows[i].add_eos;
        test.options.chat_template = CHAT_NONE;
        expect_words(&test, rows[i].expected);
        data_case_fini(&test);
    }
#undef TEXT
#undef BOS
#undef EOS
}

static void match(struct data_case *test, const char *pattern, const char *want)
{
    char path[PATH_MAX];
    ZD_PRINT(path, "%s/%s", test->scratch.dir, pattern);
    test->entry.path = path;
    expect_words(test, want);
}

Test(data_documents, a_pattern_descends_and_takes_each_file_once)
{
    struct data_case test;
    char path[PATH_MAX];
    data_case_init(&test, NULL);
    const char *folders[] = {"d", "d/{x}", "d/{x}/z", "d/.h"};
    for (size_t i = 0; i < COUNT(folders); i++) {
        ZD_PRINT(path, "%s/%s", test.scratch.dir, folders[i]);
        cr_assert_eq(fs_make_dirs(path), ZD_OK);
    }
    data_case_text(&test, "d/a.txt", "aa");
    data_case_text(&test, "d/{x}/b.txt", "bb");
    data_case_text(&test, "d/{x}/z/c.txt", "cc");
    data_case_text(&test, "d/.h/e.txt", "ee");
    ZD_PRINT(path, "%s/d/loop", test.scratch.dir);
    cr_assert_eq(symlink("..", path), 0);
    static const char all[] = "|[a]a$|[b]b$|[c]c$";
    match(&test, "d/**/*.txt", all);
    match(&test, "d/**", all);
    match(&test, "**/d/**/**/*.{txt,text}", all);
    match(&test, "d/**/z/*", "|[c]c$");
    match(&test, "d/{a,a,?}.txt", "|[a]a$");
    match(&test, "d/**/none", NULL);
    cr_expect_eq(zd_error_get()->status, ZD_ERR_NO_INPUT);
    zd_error_clear();
    static const char *const wrong[] = {
            "d/**.txt", "d/a**", "{d/**/a.txt,b}", "d/***/a.txt"};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        match(&test, wrong[i], NULL);
        cr_expect_eq(zd_error_get()->status, ZD_ERR_CONFIG, "%s", wrong[i]);
        cr_expect_str_eq(zd_error_get()->code, "E0448");
        zd_error_clear();
    }
    data_case_fini(&test);
}

/* More than one unit of lines, a line longer than a unit, and several threads.
 */
Test(data_documents, the_number_of_threads_changes_nothing)
{
    struct data_case test;
    char digest[2][HASH_HEX];
    size_t bytes = 5 << 20, used = 0;
    ZD_FREED char *text = malloc(bytes);
    data_case_init(&test, NULL);
    for (int i = 0; used + 2200000 < bytes; i++) {
        int length = i == 100 ? 2100000 : i % 5000;
        used += (size_t)sprintf(text + used, "{\"text\":\"%d ", i);
        memset(text + used, 'a' + i % 26, (size_t)length);
        used += (size_t)length;
        used += (size_t)sprintf(text + used, "\"}\n");
    }
    data_case_file(&test, "a.jsonl", text, used);
    for (int i = 0; i < 2; i++) {
        struct corpus corpus;
        test.options.preprocessing_threads = i == 0 ? 1 : 4;
        fs_remove_tree(test.cache);
        cr_assert_eq(
                data_case_corpus(&test, &corpus), ZD_OK, "%s",
                zd_error_get()->what);
        strcpy(digest[i], corpus.digest);
        cr_expect_gt(corpus.cache.header.doc_count, 1000);
        corpus_close(&corpus);
    }
    cr_expect_str_eq(digest[0], digest[1]);
    data_case_fini(&test);
}

/* Whatever thread finds it, and however many there are. */
Test(data_documents, the_first_bad_line_is_the_one_reported)
{
    struct data_case test;
    size_t used = 0;
    ZD_FREED char *text = malloc(12 << 20);
    data_case_init(&test, NULL);
    for (int i = 1; used < 11u << 20; i++) {
        used += (size_t)sprintf(text + used, "{\"text\":\"%d ", i);
        memset(text + used, 'a', 1000);
        used += 1000;
        used += (size_t)sprintf(
                text + used, i == 3333 || i == 9999 ? "\n" : "\"}\n");
    }
    data_case_file(&test, "a.jsonl", text, used);
    test.options.preprocessing_threads = 4;
    cr_expect_null(data_case_open(&test));
    cr_expect(
            strstr(zd_error_get()->where, "a.jsonl:3333:"), "%s",
            zd_error_get()->where);
    data_case_fini(&test);
}
