/* Ids as Hugging Face tokenizers makes them: small tokenizers with their
 * expected ids (tests/reference/make_tokenizers.py). */
#include "base/file/fs.h"
#include "base/file/json.h"
#include "base/must.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/support/scratch.h"

#include <criterion/criterion.h>

static const char *const folders[] = {
        "added_tokens",    "gpt2",    "lacking_bytes", "llama3",
        "prefix_space",    "qwen2",   "gemma",         "llama2",
        "metaspace_split", "mistral", "phi3",          "ministral3",
        "phi4_mini",       "granite", "stages"};
enum { FOLDERS = sizeof folders / sizeof folders[0] };

struct subject {
    struct tokenizer *tokenizer;
    struct encoder *encoder;
    struct token_vector ids;
};

static struct subject open_subject(const char *path)
{
    struct subject subject = {0};
    zd_error_clear();
    cr_assert_eq(
            tokenizer_open(path, &subject.tokenizer), ZD_OK, "%s: %s", path,
            zd_error_get()->what);
    subject.encoder = encoder_create(subject.tokenizer);
    return subject;
}

static struct subject open_fixture(const char *folder)
{
    char path[PATH_MAX];
    fs_join(path, sizeof path, ZD_FIXTURES "/tokenizers", folder);
    return open_subject(path);
}

static void close_subject(struct subject *subject)
{
    token_vector_fini(&subject->ids);
    encoder_destroy(subject->encoder);
    tokenizer_close(subject->tokenizer);
}

static void encode(struct subject *subject, const char *text, size_t bytes)
{
    subject->ids.count = 0;
    cr_assert_eq(
            encoder_encode(subject->encoder, text, bytes, false, &subject->ids),
            ZD_OK);
}

static json_t *load_cases(const char *folder)
{
    char path[PATH_MAX];
    json_t *json;
    ZD_PRINT(path, "%s/tokenizers/%s/cases.json", ZD_FIXTURES, folder);
    cr_assert_eq(json_parse_file(path, 1 << 24, &json), ZD_OK);
    return json;
}

/* Bytes of a hexadecimal string; the caller frees them. */
static char *from_hex(const char *hex, size_t *bytes_out)
{
    size_t bytes = strlen(hex) / 2;
    char *out = malloc(bytes + 1);
    for (size_t i = 0; i < bytes; i++) {
        unsigned value;
        cr_assert_eq(sscanf(hex + 2 * i, "%2x", &value), 1);
        out[i] = (char)value;
    }
    *bytes_out = bytes;
    return out;
}

static char *text_of(const json_t *item, size_t *bytes_out)
{
    const json_t *text = json_object_get(item, "text");
    if (!text)
        return from_hex(json_string_at(item, "hex"), bytes_out);
    *bytes_out = json_string_length(text);
    char *out = malloc(*bytes_out + 1);
    memcpy(out, json_string_value(text), *bytes_out + 1);
    return out;
}

static bool are_ids(const struct token_vector *ids, const json_t *expected)
{
    if (ids->count != json_array_size(expected))
        return false;
    for (size_t i = 0; i < ids->count; i++)
        if (ids->ids[i] != json_integer_value(json_array_get(expected, i)))
            return false;
    return true;
}

/* The bytes of subject->ids; the caller frees them. */
static char *decode(struct subject *subject, size_t *bytes_out)
{
    char *out = NULL;
    FILE *stream = open_memstream(&out, bytes_out);
    for (size_t i = 0; i < subject->ids.count; i++) {
        const char *bytes;
        size_t count;
        cr_assert_eq(
                tokenizer_token_bytes(
                        subject->tokenizer, subject->ids.ids[i], &bytes,
                        &count),
                ZD_OK);
        fwrite(bytes, 1, count, stream);
    }
    fclose(stream);
    return out;
}

/* The borders of a case, each as the begin and as the end of a range. */
static void check_borders(
        struct subject *subject, const char *text, size_t bytes,
        const json_t *expected)
{
    struct encode_border borders[8];
    size_t count = 2 * json_array_size(expected);
    cr_assert_leq(count, sizeof borders / sizeof *borders);
    for (size_t i = 0; i < count; i++)
        borders[i] = (struct encode_border){
                .at = (size_t)json_integer_value(
                        json_array_get(json_array_get(expected, i / 2), 0)),
                .is_end = i % 2};
    subject->ids.count = 0;
    cr_assert_eq(
            encoder_encode_borders(
                    subject->encoder, text, bytes, &subject->ids, borders,
                    count),
            ZD_OK);
    for (size_t i = 0; i < count; i++)
        cr_expect_eq(
                borders[i].token,
                (size_t)json_integer_value(json_array_get(
                        json_array_get(expected, i / 2), 1 + i % 2)),
                "`%s`: border %zu: %zu", text, i, borders[i].token);
}

static void check_case(struct subject *subject, const json_t *item)
{
    const json_t *ids = json_object_get(item, "ids");
    const json_t *expected = json_object_get(item, "decoded");
    size_t bytes, decoded_bytes, expected_bytes;
    char *text = text_of(item, &bytes);
    check_borders(subject, text, bytes, json_object_get(item, "borders"));
    encode(subject, text, bytes);
    cr_expect(are_ids(&subject->ids, ids), "`%s`", text);
    ZD_FREED char *decoded = decode(subject, &decoded_bytes);
    if (expected) {
        free(text);
        text = from_hex(json_string_value(expected), &expected_bytes);
        bytes = expected_bytes;
    }
    cr_expect_eq(decoded_bytes, bytes, "decoded `%s`", text);
    if (decoded_bytes == bytes && bytes > 0)
        cr_expect_eq(memcmp(decoded, text, bytes), 0, "decoded `%s`", text);
    free(text);
}

Test(tokenizer, ids_are_those_of_the_reference)
{
    for (int f = 0; f < FOLDERS; f++) {
        struct subject subject = open_fixture(folders[f]);
        json_t *root = load_cases(folders[f]);
        json_t *cases = json_object_get(root, "cases");
        cr_expect_gt(json_array_size(cases), 100);
        JSON_EACH(item, cases)
            check_case(&subject, item);
        const json_t *eos = json_object_get(root, "eos");
        const struct token_vector *prefix =
                &tokenizer_facts(subject.tokenizer)->prefix;
        subject.ids.count = 0;
        token_vector_append(&subject.ids, prefix->ids, prefix->count);
        cr_expect(
                are_ids(&subject.ids, json_object_get(root, "prefix")), "%s",
                folders[f]);
        cr_expect_eq(
                tokenizer_facts(subject.tokenizer)->eos,
                json_is_integer(eos) ? (int)json_integer_value(eos) : -1);
        json_decref(root);
        close_subject(&subject);
    }
}

Test(tokenizer, the_same_file_has_the_same_digest)
{
    static const char *const names[] = {"gpt2", "gpt2", "llama3"};
    char digests[3][HASH_HEX];
    for (int i = 0; i < 3; i++) {
        struct subject subject = open_fixture(names[i]);
        strcpy(digests[i], tokenizer_facts(subject.tokenizer)->digest);
        close_subject(&subject);
    }
    cr_expect_str_eq(digests[0], digests[1]);
    cr_expect_str_neq(digests[0], digests[2]);
    cr_expect_eq(strlen(digests[0]), 32);
}

Test(tokenizer, invalid_utf8_is_refused_with_its_offset)
{
    static const struct {
        const char *text;
        size_t bytes, offset;
    } cases[] = {
            {"abc\xff", 4, 3},          {"\x80", 1, 0},
            {"ab\xc3", 3, 2},           {"abcdefghij\xed\xa0\x80", 13, 10},
            {"\xc0\xaf", 2, 0},         {"\xe0\x80\xaf", 3, 0},
            {"\xf4\x90\x80\x80", 4, 0}, {"\xc3\xa9\xe2\x82", 4, 2},
    };
    struct subject subject = open_fixture("gpt2");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char what[80];
        zd_error_clear();
        cr_expect_eq(
                encoder_encode(
                        subject.encoder, cases[i].text, cases[i].bytes, 0,
                        &subject.ids),
                ZD_ERR_DATA);
        ZD_PRINT(what, "invalid UTF-8 at byte offset %zu", cases[i].offset);
        cr_expect_str_eq(zd_error_get()->what, what);
        cr_expect_str_eq(zd_error_get()->code, "E0413");
    }
    cr_expect_eq(subject.ids.count, 0);
    /* nor has an id that is none bytes */
    const int size = tokenizer_facts(subject.tokenizer)->vocab_size;
    const int ids[] = {size - 1, size, -1};
    for (int i = 0; i < 3; i++) {
        const char *bytes;
        size_t count;
        cr_expect_eq(
                tokenizer_token_bytes(
                        subject.tokenizer, ids[i], &bytes, &count),
                i ? ZD_ERR_DATA : ZD_OK);
    }
    close_subject(&subject);
}

Test(tokenizer, bytes_are_their_own_ids)
{
    struct subject subject = {0};
    static const char text[] = "a\xc3\xa9\n<|endoftext|>";
    size_t bytes;
    cr_assert_eq(tokenizer_open_bytes(&subject.tokenizer), ZD_OK);
    subject.encoder = encoder_create(subject.tokenizer);
    cr_expect_eq(tokenizer_facts(subject.tokenizer)->vocab_size, 257);
    cr_expect_eq(tokenizer_facts(subject.tokenizer)->eos, 256);
    encode(&subject, text, strlen(text));
    cr_assert_eq(subject.ids.count, strlen(text));
    cr_expect_eq(subject.ids.ids[1], 0xc3);
    token_vector_push(&subject.ids, 256);
    char *decoded = decode(&subject, &bytes); /* end of text has no bytes */
    cr_assert_eq(bytes, strlen(text));
    cr_expect_eq(memcmp(decoded, text, bytes), 0);
    free(decoded);
    close_subject(&subject);
}

/* What is encoded and decoded comes back, for words that no test could wait for
 * if their time grew with the square of their length. */
static void check_long(struct subject *subject, const char *unit, size_t count)
{
    size_t length = strlen(unit), bytes;
    ZD_FREED char *text = malloc(length * count + 1);
    for (size_t i = 0; i < count; i++)
        memcpy(text + i * length, unit, length);
    encode(subject, text, length * count);
    ZD_FREED char *decoded = decode(subject, &bytes);
    cr_assert_eq(bytes, length * count);
    cr_expect_eq(memcmp(decoded, text, bytes), 0);
}

Test(tokenizer, long_words_come_back)
{
    struct subject subject = open_fixture("llama3");
    check_long(&subject, "a", 100000);
    check_long(&subject, "the", 33333);
    check_long(&subject, " ", 1 << 20);
    check_long(&subject, " \n", 1 << 18);
    check_long(&subject, "'", 100000);
    close_subject(&subject);
    subject = open_fixture("gemma"); /* all one word, no space in front */
    check_long(&subject, "the", 33333);
    check_long(&subject, " ", 1 << 20);
    check_long(&subject, "e the", 1 << 18);
    check_long(&subject, "\xf0\x9f\x94\xa5", 100000);
    close_subject(&subject);
}

/* The same tokenizer with each of the post-processors in its place. */
Test(tokenizer, post_processors_put_the_same_ids_around_a_text)
{
    char path[PATH_MAX];
    json_t *expected, *file;
    cr_assert_eq(
            json_parse_file(
                    ZD_FIXTURES "/tokenizers/post_processors.json", 1 << 20,
                    &expected),
            ZD_OK);
    ZD_PRINT(
            path, "%s/tokenizers/%s/tokenizer.json", ZD_FIXTURES,
            json_string_at(expected, "tokenizer"));
    cr_assert_eq(json_parse_file(path, 1 << 24, &file), ZD_OK);
    JSON_EACH(row, json_object_get(expected, "processors")) {
        const char *name = json_string_at(row, "name");
        struct scratch scratch;
        const struct token_vector *around;
        scratch_init(&scratch);
        json_object_set(
                file, "post_processor", json_object_get(row, "post_processor"));
        cr_assert_eq(
                json_write_file(scratch_path(&scratch, "tokenizer.json"), file),
                ZD_OK);
        struct subject subject = open_subject(scratch.dir);
        JSON_EACH(item, json_object_get(row, "cases")) {
            struct token_vector whole = {0};
            size_t bytes;
            ZD_FREED char *text = text_of(item, &bytes);
            encode(&subject, text, bytes);
            around = &tokenizer_facts(subject.tokenizer)->prefix;
            token_vector_append(&whole, around->ids, around->count);
            token_vector_append(&whole, subject.ids.ids, subject.ids.count);
            around = &tokenizer_facts(subject.tokenizer)->suffix;
            token_vector_append(&whole, around->ids, around->count);
            cr_expect(
                    are_ids(&whole, json_object_get(item, "ids")), "%s: `%s`",
                    name, text);
            token_vector_fini(&whole);
        }
        close_subject(&subject);
        scratch_fini(&scratch);
    }
    cr_expect_geq(json_array_size(json_object_get(expected, "processors")), 8);
    json_decref(file);
    json_decref(expected);
}
