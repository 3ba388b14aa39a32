/* Files that are broken, or ask for what is not supported: one clear error
 * each, and whatever the bytes, never a crash. */
#include "data/tokenizer/tokenizer_internal.h"
#include "tests/support/scratch.h"

#include <criterion/criterion.h>

static const char good[] =
        "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null,\n"
        " \"added_tokens\": [{\"id\": 4, \"content\": \"<s>\", \"single_word\":"
        " false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false,"
        " \"special\": true}, {\"id\": 5, \"content\": \"x\"}],\n"
        " \"normalizer\": null,\n"
        " \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\":"
        " false, \"use_regex\": true},\n"
        " \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\":"
        " [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}},"
        " {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"special_tokens\":"
        " {\"<s>\": {\"id\": \"<s>\", \"ids\": [4], \"tokens\": [\"<s>\"]}}},\n"
        " \"decoder\": {\"type\": \"ByteLevel\"},\n"
        " \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\":"
        " null, \"continuing_subword_prefix\": \"\", \"byte_fallback\": false,"
        " \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"abab\": 3},"
        " \"merges\": [\"a b\", \"ab ab\"]}}";

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
    int count;
    cr_assert_eq(
            open_text(good, strlen(good), NULL, &tokenizer), ZD_OK, "%s",
            zd_error_get()->what);
    cr_expect_eq(tokenizer_vocab_size(tokenizer), 6);
    cr_expect_eq(tokenizer_token_id(tokenizer, "<s>"), 4);
    cr_expect_eq(tokenizer_token_id(tokenizer, "no"), -1);
    cr_expect_eq(tokenizer_eos(tokenizer), -1);
    cr_expect_eq(tokenizer_prefix(tokenizer, &count)[0], 4);
    cr_expect_eq(count, 1);
    encoder = encoder_create(tokenizer);
    cr_assert_eq(
            encoder_encode(
                    encoder, "abab<s>cabx", 11, ENCODE_ADDED_TOKENS, &ids,
                    NULL),
            ZD_OK);
    cr_assert_eq(ids.count, 4); /* no token stands for c */
    cr_expect_arr_eq(ids.ids, expected, sizeof expected);
    token_vector_fini(&ids);
    encoder_destroy(encoder);
    tokenizer_close(tokenizer);
}

Test(tokenizer_broken, every_mistake_has_its_error)
{
    static const struct {
        const char *from, *to;
        const char *code, *what; /* `what`: part of the message */
    } cases[] = {
            /* broken */
            {"\"model\": {", "\"mode\": {", "E0402", "no model"},
            {"\"vocab\": {", "\"vocab\": [], \"v\": {", "E0402", "vocab"},
            {"\"a\": 0, \"b\": 1, \"ab\": 2, \"abab\": 3", "", "E0402",
             "empty"},
            {"\"merges\": [\"a b\", \"ab ab\"]", "\"merges\": 1", "E0402",
             "merges"},
            {"\"ab\": 2", "\"ab\": 1", "E0404", "have one id, 1"},
            {"\"ab\": 2", "\"ab\": 2.0", "E0404", "`ab`"},
            {"\"ab\": 2", "\"ab\": -2", "E0404", "`ab`"},
            {"\"ab\": 2", "\"ab\": \"2\"", "E0404", "`ab`"},
            {"\"ab\": 2", "\"ab\": 2097152", "E0404", "below 2097152"},
            {"\"ab\": 2", "\"ab\": 2097151", "E0404", "added tokens"},
            {"\"ab\": 2", "\"b\": 2", "E0711", "duplicate"},
            {"\"a b\"", "\"a z\"", "E0405", "right part `z`"},
            {"\"a b\"", "\"z b\"", "E0405", "left part `z`"},
            {"\"a b\"", "\"b a\"", "E0405", "result `ba`"},
            {"\"a b\"", "\"ab\"", "E0405", "merge 0"},
            {"\"a b\"", "\"a  b\"", "E0405", "merge 0"},
            {"\"ab ab\"", "[\"ab\", \"ab\"]", "E0405", "merge 1"},
            {"\"a b\"", "[\"a\"]", "E0405", "merge 0"},
            {"\"id\": 4", "\"id\": 5", "E0406", "have one id, 5"},
            {"\"id\": 4, ", "", "E0404", "`<s>`"},
            {"\"content\": \"<s>\", ", "", "E0406", "content"},
            {"\"lstrip\": false", "\"lstrip\": 0", "E0406", "lstrip"},
            {"\"ids\": [4]", "\"ids\": [9]", "E0407", "`<s>`"},
            {"\"ids\": [4]", "\"ids\": 4", "E0407", "`<s>`"},
            {"\"add_prefix_space\": false, ", "", "E0402", "add_prefix_space"},
            /* not supported */
            {"\"BPE\"", "\"WordPiece\"", "E0403", "WordPiece"},
            {"\"BPE\"", "\"Unigram\"", "E0403", "Unigram"},
            {"\"dropout\": null", "\"dropout\": 0.1", "E0403", "dropout"},
            {"\"byte_fallback\": false", "\"byte_fallback\": true", "E0403",
             "byte_fallback"},
            {"\"continuing_subword_prefix\": \"\"",
             "\"continuing_subword_prefix\": \"##\"", "E0403",
             "continuing_subword_prefix"},
            {"\"dropout\": null", "\"end_of_word_suffix\": \"</w>\"", "E0403",
             "end_of_word_suffix"},
            {"\"unk_token\": null", "\"unk_token\": \"a\"", "E0403",
             "unk_token"},
            {"\"normalizer\": null", "\"normalizer\": {\"type\": \"NFKC\"}",
             "E0403", "normalizer NFKC"},
            {"\"ByteLevel\", \"add", "\"Whitespace\", \"add", "E0403",
             "pre_tokenizer Whitespace"},
            {"\"TemplateProcessing\"", "\"BertProcessing\"", "E0407",
             "cls is no pair"},
            {"\"TemplateProcessing\"",
             "\"RobertaProcessing\", \"cls\": [\"<s>\", 4], \"sep\": [\"<s>\", "
             "6]",
             "E0407", "an id of `<s>` is no token"},
            {"\"TemplateProcessing\"", "\"PairProcessing\"", "E0403",
             "post_processor PairProcessing"},
            {"\"decoder\": {\"type\": \"ByteLevel\"",
             "\"decoder\": {\"type\":"
             " \"Metaspace\"",
             "E0403", "decoder Metaspace"},
            {"\"decoder\": {", "\"d\": {", "E0403", "decoder null"},
            {"\"truncation\": null", "\"truncation\": {}", "E0403",
             "truncation"},
            {"\"padding\": null", "\"padding\": {}", "E0403", "padding"},
            {"{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}",
             "{\"Sequence\": {\"id\": \"A\"}}, {\"Sequence\": {\"id\":"
             " \"A\"}}",
             "E0403", "the text once"},
            {"{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}",
             "{\"Sequence\": {\"id\": \"B\"}}", "E0403", "the text once"},
            {"{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}",
             "{\"Sequence\": {\"id\": \"A\"}}, {\"SpecialToken\": {\"id\":"
             " \"</s>\"}}",
             "E0407", "`</s>` has no ids"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tokenizer *tokenizer;
        char *text = replaced(good, cases[i].from, cases[i].to);
        cr_expect_eq(
                open_text(text, strlen(text), NULL, &tokenizer), ZD_ERR_DATA,
                "%s was taken", cases[i].to);
        cr_expect_str_eq(
                zd_error_get()->code, cases[i].code, "%s", cases[i].to);
        cr_expect(
                strstr(zd_error_get()->what, cases[i].what), "`%s` lacks `%s`",
                zd_error_get()->what, cases[i].what);
        cr_expect(strstr(zd_error_get()->where, "tokenizer.json"));
        tokenizer_close(tokenizer);
        free(text);
    }
}

/* A Split in front of ByteLevel: what may stand in the sequence. */
Test(tokenizer_broken, sequences_are_checked)
{
    static const char old[] =
            "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
            "\"use_regex\": true}";
#define SPLIT(pattern, rest)                                                   \
    "{\"type\": \"Split\", \"pattern\": {" pattern "}, " rest "}"
#define BYTES(prefix, regex)                                                   \
    "{\"type\": \"ByteLevel\", \"add_prefix_space\": " prefix                  \
    ", \"use_regex\": " regex "}"
#define SEQUENCE(parts)                                                        \
    "{\"type\": \"Sequence\", \"pretokenizers\": [" parts "]}"
#define ISOLATED "\"behavior\": \"Isolated\", \"invert\": false"
    static const struct {
        const char *part;
        bool is_good;
    } cases[] = {
            {SEQUENCE(SPLIT("\"Regex\": \"a+\"", ISOLATED) ", " BYTES(
                     "false", "false")),
             true},
            {SEQUENCE(SPLIT("\"Regex\": \"\\\\w+\"", ISOLATED) ", " BYTES(
                     "false", "false")),
             false},
            {SEQUENCE(SPLIT("\"String\": \"a\"", ISOLATED) ", " BYTES(
                     "false", "false")),
             false},
            {SEQUENCE(SPLIT(
                     "\"Regex\": \"a+\"",
                     "\"behavior\": \"Removed\"") ", " BYTES("false", "false")),
             false},
            {SEQUENCE(
                     SPLIT("\"Regex\": \"a+\"",
                           "\"behavior\": \"Isolated\", "
                           "\"invert\": true") ", " BYTES("false", "false")),
             false},
            {SEQUENCE(SPLIT("\"Regex\": \"a+\"", ISOLATED) ", " BYTES(
                     "true", "false")),
             false},
            {SEQUENCE(SPLIT("\"Regex\": \"a+\"", ISOLATED) ", " BYTES(
                     "false", "true")),
             false},
            {SEQUENCE(SPLIT("\"Regex\": \"a+\"", ISOLATED)), false},
            {SEQUENCE("{\"type\": \"Digits\"}, " BYTES("false", "false")),
             false},
            {"null", false},
    };
#undef SPLIT
#undef BYTES
#undef SEQUENCE
#undef ISOLATED
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tokenizer *tokenizer;
        char *text = replaced(good, old, cases[i].part);
        cr_expect_eq(
                open_text(text, strlen(text), NULL, &tokenizer),
                cases[i].is_good ? ZD_OK : ZD_ERR_DATA, "%s", cases[i].part);
        tokenizer_close(tokenizer);
        free(text);
    }
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
            cr_expect_eq(tokenizer_eos(tokenizer), cases[i].eos);
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
    int changes = 1 + (int)next_random(state, 3);
    for (int i = 0; i < changes; i++)
        text[next_random(state, (uint32_t)bytes)] =
                interesting[next_random(state, sizeof interesting)];
    if (open_text(text, bytes, NULL, &tokenizer) != ZD_OK)
        return;
    encoder = encoder_create(tokenizer);
    encoder_encode(
            encoder, "ab <s>abab x\xc3\xa9 ab", 16, ENCODE_ADDED_TOKENS, &ids,
            NULL);
    token_vector_fini(&ids);
    encoder_destroy(encoder);
    tokenizer_close(tokenizer);
}

Test(tokenizer_broken, mutated_files_never_crash)
{
    enum { MUTATIONS = 600 };
    const char *more = getenv("ZEROD_FUZZ"); /* how many, for a longer run */
    int mutations = more ? atoi(more) : MUTATIONS;
    uint32_t state = 20261121;
    char text[sizeof good];
    for (int i = 0; i < mutations; i++) {
        memcpy(text, good, sizeof good);
        try_mutation(text, strlen(good), &state);
    }
}
