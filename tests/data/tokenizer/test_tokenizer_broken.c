/* Files that are broken, or ask for what is not supported: one clear error
 * each, and whatever the bytes, never a crash. */
#include "base/must.h"
#include "data/tokenizer/tokenizer_internal.h"
#include "tests/support/scratch.h"

#include <criterion/criterion.h>

#define CASES ZD_SOURCE "/tests/data/cases/"

/* A tokenizer.json that opens. */
static char *good;

static void read_good(void)
{
    size_t bytes;
    cr_assert_eq(
            fs_read_file(CASES "tokenizer.json", 1 << 20, &good, &bytes),
            ZD_OK);
    good[bytes - 1] = '\0'; /* a line feed */
}

static void free_good(void)
{
    free(good);
}

TestSuite(tokenizer_broken, .init = read_good, .fini = free_good);

/* `text` with its one `from` turned into `to`; the caller frees it. */
static char *replaced(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    cr_assert_not_null(at, "`%s` is not in the file", from);
    char *out = malloc(strlen(text) + strlen(to) + 1);
    sprintf(out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return out;
}

static enum zd_status open_text(
        const void *text, size_t bytes, const char *config,
        struct tokenizer **out)
{
    struct scratch scratch;
    scratch_init(&scratch);
    scratch_file(&scratch, "tokenizer.json", text, bytes);
    if (config)
        scratch_file(&scratch, "tokenizer_config.json", config, strlen(config));
    *out = NULL;
    zd_error_clear();
    enum zd_status status = tokenizer_open(scratch.dir, out);
    scratch_fini(&scratch);
    return status;
}

Test(tokenizer_broken, the_unbroken_file_opens)
{
    struct tokenizer *tokenizer;
    struct token_vector ids = {0};
    struct encoder *encoder;
    static const int32_t expected[] = {3, 4, 2, 5};
    cr_assert_eq(
            open_text(good, strlen(good), NULL, &tokenizer), ZD_OK, "%s",
            zd_error_get()->what);
    cr_expect_eq(tokenizer_facts(tokenizer)->vocab_size, 6);
    cr_expect_eq(tokenizer_token_id(tokenizer, "<s>"), 4);
    cr_expect_eq(tokenizer_token_id(tokenizer, "no"), -1);
    cr_expect_eq(tokenizer_facts(tokenizer)->eos, -1);
    cr_expect_eq(tokenizer_facts(tokenizer)->prefix.ids[0], 4);
    cr_expect_eq(tokenizer_facts(tokenizer)->prefix.count, 1);
    encoder = encoder_create(tokenizer);
    cr_assert_eq(
            encoder_encode(encoder, "abab<s>cabx", 11, false, &ids), ZD_OK);
    cr_assert_eq(ids.count, 4); /* no token stands for c */
    cr_expect_arr_eq(ids.ids, expected, sizeof expected);
    token_vector_fini(&ids);
    encoder_destroy(encoder);
    tokenizer_close(tokenizer);
}

/* `error` NULL: it opens. */
static void check_change(const char *from, const char *to, const char *error)
{
    struct tokenizer *tokenizer;
    const struct zd_error *told = zd_error_get();
    ZD_FREED char *text = replaced(good, from, to);
    cr_expect_eq(
            open_text(text, strlen(text), NULL, &tokenizer),
            error ? ZD_ERR_DATA : ZD_OK, "%s", to);
    if (error) {
        cr_expect(strncmp(told->code, error, 5) == 0, "%s: %s", to, told->code);
        cr_expect(strstr(told->what, error + 6), "%s: %s", to, told->what);
        cr_expect(strstr(told->where, "tokenizer.json"));
    }
    tokenizer_close(tokenizer);
}

Test(tokenizer_broken, every_mistake_has_its_error)
{
    char *text, *line;
    const char *from = "", *to = "";
    size_t bytes;
    int count = 0;
    cr_assert_eq(
            fs_read_file(CASES "tokenizer.txt", 1 << 20, &text, &bytes), ZD_OK);
    for (char *rest = text; (line = strsep(&rest, "\n"));) {
        char *value = line[0] && line[1] ? line + 2 : line + strlen(line);
        if (*line == '-')
            from = value;
        else if (*line == '+')
            to = value;
        else if (*line == '!' || *line == '=')
            check_change(from, to, *line == '!' ? value : NULL);
        count += *line == '!' || *line == '=';
    }
    cr_expect_geq(count, 52);
    free(text);
}

Test(tokenizer_broken, every_truncation_is_refused)
{
    for (size_t bytes = 0; bytes < strlen(good); bytes += 7) {
        struct tokenizer *tokenizer;
        cr_expect_eq(open_text(good, bytes, NULL, &tokenizer), ZD_ERR_DATA);
        tokenizer_close(tokenizer);
    }
}

Test(tokenizer_broken, a_missing_file_is_no_input)
{
    struct tokenizer *tokenizer;
    zd_error_clear();
    cr_expect_eq(
            tokenizer_open("/nonexistent/tokenizer.json", &tokenizer),
            ZD_ERR_NO_INPUT);
    zd_error_clear();
    cr_expect_eq(tokenizer_open("/", &tokenizer), ZD_ERR_NO_INPUT);
}

Test(tokenizer_broken, end_of_text_is_named_by_the_config)
{
    static const struct {
        const char *config;
        enum zd_status status;
        int eos;
    } cases[] = {
            {"{}", ZD_OK, -1},
            {"{\"eos_token\": null}", ZD_OK, -1},
            {"{\"eos_token\": \"<s>\"}", ZD_OK, 4},
            {"{\"eos_token\": {\"content\": \"<s>\"}}", ZD_OK, 4},
            {"{\"eos_token\": \"</s>\"}", ZD_ERR_DATA, -1},
            {"{\"eos_token\": 4}", ZD_ERR_DATA, -1},
            {"{\"eos_token\": \"<s>\"", ZD_ERR_DATA, -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tokenizer *tokenizer;
        cr_expect_eq(
                open_text(good, strlen(good), cases[i].config, &tokenizer),
                cases[i].status, "%s", cases[i].config);
        if (tokenizer)
            cr_expect_eq(tokenizer_facts(tokenizer)->eos, cases[i].eos);
        tokenizer_close(tokenizer);
    }
}

/* Added tokens get the ids that the library gives, whatever the file says. */
Test(tokenizer_broken, added_ids_follow_the_library)
{
    struct tokenizer *tokenizer;
    char *text = replaced(good, "\"id\": 5", "\"id\": 11");
    cr_assert_eq(open_text(text, strlen(text), NULL, &tokenizer), ZD_OK);
    cr_expect_eq(tokenizer_token_id(tokenizer, "x"), 5);
    tokenizer_close(tokenizer);
    free(text);
    text = replaced(good, "\"content\": \"x\"", "\"content\": \"ab\"");
    cr_assert_eq(open_text(text, strlen(text), NULL, &tokenizer), ZD_OK);
    cr_expect_eq(tokenizer_token_id(tokenizer, "ab"), 2);
    tokenizer_close(tokenizer);
    free(text);
}

/* ---- mutations ---- */

static uint32_t next_random(uint32_t *state, uint32_t limit)
{
    *state = *state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)*state * limit >> 32);
}

static void try_mutation(char *text, size_t bytes, uint32_t *state)
{
    static const char interesting[] = "\"\"{}[],:0123456789-.etrue\\u<> ab\xff";
    struct tokenizer *tokenizer;
    struct encoder *encoder;
    struct token_vector ids = {0};
    static const char words[] =
            "ab <s>abab x\xc3\xa9 12\xd9\xa3 HTTPServer's e\xcc\x81/\n\n ab";
    /* what comes before the vocabulary, or all of it */
    enum { FRONT = 2000 };
    size_t most = next_random(state, 2) && bytes > FRONT ? FRONT : bytes;
    int changes = 1 + (int)next_random(state, 3);
    for (int i = 0; i < changes; i++)
        text[next_random(state, (uint32_t)most)] =
                interesting[next_random(state, sizeof interesting)];
    if (open_text(text, bytes, NULL, &tokenizer) != ZD_OK)
        return;
    encoder = encoder_create(tokenizer);
    encoder_encode(encoder, words, strlen(words), false, &ids);
    token_vector_fini(&ids);
    encoder_destroy(encoder);
    tokenizer_close(tokenizer);
}

Test(tokenizer_broken, mutated_files_never_crash)
{
    static const char *const files[] = {
            CASES "tokenizer.json",
            ZD_FIXTURES "/tokenizers/ministral3/tokenizer.json",
            ZD_FIXTURES "/tokenizers/granite/tokenizer.json",
            ZD_FIXTURES "/tokenizers/stages/tokenizer.json",
            ZD_FIXTURES "/tokenizers/gemma/tokenizer.json",
            ZD_FIXTURES "/tokenizers/metaspace_split/tokenizer.json"};
    enum { MUTATIONS = 900, FILES = sizeof files / sizeof *files };
    const char *more = getenv("ZEROD_FUZZ"); /* how many, for a longer run */
    int mutations = more ? atoi(more) : MUTATIONS;
    uint32_t state = 20261121;
    for (int i = 0; i < mutations; i++) {
        ZD_FREED char *text = NULL;
        size_t bytes;
        cr_assert_eq(
                fs_read_file(files[i % FILES], 1 << 20, &text, &bytes), ZD_OK);
        try_mutation(text, bytes, &state);
    }
}
