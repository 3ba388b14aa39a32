/* A long text tokenized in parts has the ids of the whole. */
#include "base/must.h"
#include "base/number/rng.h"
#include "tests/data/data_case.h"

#include <criterion/criterion.h>

static struct token_vector encode(
        struct encoder *encoder, const char *text, size_t bytes, bool continues,
        struct token_vector ids)
{
    cr_assert_eq(
            encoder_encode(encoder, text, bytes, continues, &ids), ZD_OK, "%s",
            zd_error_get()->what);
    return ids;
}

/* Words, numbers, marks, spaces, contractions, markers in a random order. */
static size_t make_text(char *text, size_t bytes, uint64_t seed)
{
    /* each ends with ~ */
    static const char parts[] =
            "a~the~X's~'ll~1234~ ~ ~ ~\n~\n\n~  ~\t~.~?!~(~caf\xc3\xa9~"
            "e\xcc\x81~\xe6\x97\xa5\xe6\x9c\xac~\xe3\x80\x82~\xc2\xa0~"
            "\xed\x95\x9c~\xe0\xa5\x98~\xe1\x84\x92\xe1\x85\xa1~\xcc\x81~"
            "<|endoftext|>~<|eot_id|>~<|im_end|>~foobar~\xc2\xbd~"
            "\xf0\x9f\x98\x80~"
            "\xe2\x96\x81~<s>~</s>~the ~\r\n~";
    const char *begins[sizeof parts];
    size_t count = 0;
    for (const char *at = parts; *at; at = strchr(at, '~') + 1)
        begins[count++] = at;
    size_t used = 0;
    for (uint64_t i = 0;; i++) {
        const char *part = begins[rng_u64(seed, 0, i) % count];
        size_t length = strcspn(part, "~");
        if (used + length > bytes)
            return used;
        memcpy(text + used, part, length);
        used += length;
    }
}

static int check_cuts(const char *path, uint64_t seed)
{
    char text[160];
    struct tokenizer *tokenizer;
    struct encoder *encoder;
    int cuts = 0;
    cr_assert_eq(
            path ? tokenizer_open(path, &tokenizer)
                 : tokenizer_open_bytes(&tokenizer),
            ZD_OK, "%s", zd_error_get()->what);
    encoder = encoder_create(tokenizer);
    for (int round = 0; round < 50; round++) {
        struct token_vector none = {0};
        size_t bytes =
                make_text(text, sizeof text, seed * 50 + (uint64_t)round);
        struct token_vector whole = encode(encoder, text, bytes, false, none);
        size_t before = 0;
        for (size_t end = 1; end < bytes; end++) {
            size_t at = tokenizer_cut(tokenizer, text, end);
            cr_assert_lt(at, end);
            if (at == before)
                continue;
            before = at;
            cuts++;
            struct token_vector ids = encode(encoder, text, at, false, none);
            ids = encode(encoder, text + at, bytes - at, true, ids);
            cr_assert_eq(ids.count, whole.count, "%.*s|", (int)at, text);
            cr_assert_arr_eq(
                    ids.ids, whole.ids, ids.count * sizeof *ids.ids, "%.*s|",
                    (int)at, text);
            token_vector_fini(&ids);
        }
        token_vector_fini(&whole);
    }
    encoder_destroy(encoder);
    tokenizer_close(tokenizer);
    return cuts;
}

Test(data_cut, both_parts_have_the_ids_of_the_whole)
{
    static const struct {
        const char *name;
        bool is_cut; /* tokens with spaces, or an unknown pattern: never */
    } fixtures[] = {{"gpt2", true},          {"llama3", true},
                    {"qwen2", true},         {"prefix_space", true},
                    {"added_tokens", false}, {"gemma", true},
                    {"llama2", true},        {"metaspace_split", true},
                    {"mistral", true},       {"phi3", true},
                    {"ministral3", true},    {"phi4_mini", true},
                    {"granite", true},       {"stages", false}};
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) {
        char path[PATH_MAX];
        ZD_PRINT(path, "%s/tokenizers/%s", ZD_FIXTURES, fixtures[i].name);
        int cuts = check_cuts(path, i);
        cr_expect(
                fixtures[i].is_cut ? cuts > 60 : cuts == 0, "%s: %d cuts",
                fixtures[i].name, cuts);
    }
    cr_expect_gt(check_cuts(NULL, 99), 200);
}

Test(data_cut, places_that_only_look_like_borders_are_passed_over)
{
    struct tokenizer *tokenizer;
    static const struct {
        const char *text;
        size_t place;
    } rows[] = {
            {"ab \xff c", 2},
            {"\x80\x80\x80\x80\x80 c", 0},
            {"ab \xf0\x9f c", 2},
            /* a letter that NFC makes a letter and a mark, which takes the
             * newline */
            {"ab \xe0\xa5\x98\nx", 2},
            {"ab \xe0\xa4\x95\nx", 6},
            {"", 0},
            {" ", 0}};
    cr_assert_eq(
            tokenizer_open(ZD_FIXTURES "/tokenizers/qwen2", &tokenizer), ZD_OK);
    for (size_t i = 0; i < COUNT(rows); i++)
        cr_expect_eq(
                tokenizer_cut(tokenizer, rows[i].text, strlen(rows[i].text)),
                rows[i].place, "row %zu", i);
    tokenizer_close(tokenizer);
}

/* `begin`, `end`: the ids around a text. */
static void check_units(const char *folder, int32_t begin, int32_t end)
{
    struct data_case test;
    struct corpus corpus;
    struct encoder *encoder;
    struct token_vector whole = {0};
    size_t bytes = 3500000;
    ZD_FREED char *text = malloc(bytes);
    data_case_init(&test, folder);
    bytes = make_text(text, bytes, 7);
    data_case_file(&test, "a.txt", text, bytes);
    test.options.preprocessing_threads = 3;
    cr_assert_eq(
            data_case_corpus(&test, &corpus), ZD_OK, "%s",
            zd_error_get()->what);
    encoder = encoder_create(test.tokenizer);
    token_vector_push(&whole, begin);
    whole = encode(encoder, text, bytes, false, whole);
    token_vector_push(&whole, end);
    cr_assert_eq(corpus.count, whole.count);
    cr_expect_eq(corpus.cache.header.doc_count, 1);
    cr_expect_eq(corpus.cache.header.trained_count, whole.count - 1);
    for (size_t i = 0; i < whole.count; i++)
        cr_assert_eq(
                corpus.cache.words[i],
                (uint32_t)whole.ids[i] | (i == 0 ? WORD_FIRST : WORD_TRAIN));
    token_vector_fini(&whole);
    encoder_destroy(encoder);
    corpus_close(&corpus);
    /* a bad byte far into it is told with its place in the file */
    text[3000000] = '\xff';
    data_case_file(&test, "a.txt", text, bytes);
    int64_t line = 1;
    for (size_t i = 0; i < 3000000; i++)
        line += text[i] == '\n';
    char place[64];
    ZD_PRINT(place, "in line %lld, at byte offset ", (long long)line);
    cr_expect_neq(data_case_corpus(&test, &corpus), ZD_OK);
    cr_expect(strstr(zd_error_get()->what, place), "%s", zd_error_get()->what);
    data_case_fini(&test);
}

/* The limit is 256 MiB. */
Test(data_cut, a_text_without_a_place_to_cut_it_has_a_largest_size)
{
    enum { MOST = 1 << 20, BYTES = 3 * MOST };
    struct data_case test;
    struct corpus corpus;
    struct unit_reader reader;
    struct unit unit = {0};
    ZD_FREED char *text = malloc(BYTES);
    bool more = true;
    data_case_init(&test, "qwen2");
    for (size_t i = 0; i < BYTES; i += 3)
        memcpy(text + i, "\xe3\x80\x82", 3);
    data_case_file(&test, "a.txt", text, BYTES);
    cr_assert_eq(corpus_find(&test.request, &test.entry, &corpus), ZD_OK);
    reader = (struct unit_reader){
            .list = &corpus.list,
            .tokenizer = test.tokenizer,
            .most = MOST,
            .file = -1};
    cr_expect_eq(unit_read(&reader, &unit, &more), ZD_ERR_DATA);
    cr_expect_str_eq(zd_error_get()->code, "E0440");
    unit_reader_fini(&reader);
    free(unit.text);
    corpus_close(&corpus);
    data_case_fini(&test);
}

Test(data_cut, a_file_of_many_units_is_one_document)
{
    check_units("llama3", 490, 491);
    check_units("llama2", 1, 2); /* nothing is put in front of a unit */
}
