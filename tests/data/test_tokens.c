/* Pre-tokenized files: Megatron, llm.c and nanoGPT. */
#include "tests/data/data_case.h"

#include <criterion/criterion.h>

struct blob {
    unsigned char data[8192];
    size_t bytes;
};

static void put(struct blob *blob, const void *data, size_t bytes)
{
    if (blob->bytes + bytes > sizeof blob->data)
        abort();
    memcpy(blob->data + blob->bytes, data, bytes);
    blob->bytes += bytes;
}

static void put_int(struct blob *blob, int64_t value, size_t width)
{
    put(blob, &value, width); /* little-endian */
}

static void put_tokens(struct blob *blob, const char *text, size_t width)
{
    for (; *text; text++)
        put_int(blob, *text == '$' ? 256 : *text, width);
}

struct index {
    int code;
    int lengths[8], pointers[8], documents[8];
    int sequences, ends;
};

static void put_index(struct blob *blob, const struct index *index)
{
    put(blob, "MMIDIDX\0\0", 9);
    put_int(blob, 1, 8);
    put_int(blob, index->code, 1);
    put_int(blob, index->sequences, 8);
    put_int(blob, index->ends, 8);
    for (int i = 0; i < index->sequences; i++)
        put_int(blob, index->lengths[i], 4);
    for (int i = 0; i < index->sequences; i++)
        put_int(blob, index->pointers[i], 8);
    for (int i = 0; i < index->ends; i++)
        put_int(blob, index->documents[i], 8);
}

static void write_megatron(
        struct data_case *test, const struct blob *bin, const struct blob *idx)
{
    data_case_file(test, "a.idx", idx->data, idx->bytes);
    data_case_file(test, "a.bin", bin->data, bin->bytes);
}

static void expect_words(struct data_case *test, const char *expected)
{
    char *words = data_case_words(test);
    cr_expect(words != NULL, "%s", zd_error_get()->what);
    if (words)
        cr_expect_str_eq(words, expected, "%s", words);
    free(words);
}

static void expect_error(
        struct data_case *test, enum zd_status status, const char *code,
        const char *part)
{
    const struct zd_error *error = zd_error_get();
    cr_expect_null(data_case_words(test));
    cr_expect_eq(error->status, status, "%d %s", error->status, error->what);
    cr_expect_str_eq(error->code, code, "%s %s", error->code, error->what);
    cr_expect(
            strstr(error->what, part) != NULL, "\"%s\" not in \"%s\"", part,
            error->what);
    zd_error_clear();
}

Test(data_tokens, nanogpt_is_cut_behind_end_of_text)
{
    struct data_case test;
    struct blob bin = {.bytes = 0};
    data_case_init(&test, NULL);
    put_tokens(&bin, "ab$cde$$f", 2);
    data_case_file(&test, "a.bin", bin.data, bin.bytes);
    test.entry.format = DATA_NANOGPT;
    expect_words(&test, "|[a]b$|[c]de$|[$]|[f]");
    test.options.packing = false; /* the same from an index */
    expect_words(&test, "|[a]b$|[c]de$|[$]|[f]");
    test.request.eos = 'c'; /* whatever the model says it is */
    test.options.packing = true;
    expect_words(&test, "|[a]b$|[d]ef"); /* 256 has no bytes */
    test.request.eos = -1;               /* nobody knows: one document */
    expect_words(&test, "|[a]bcdef");
    data_case_fini(&test);
}

Test(data_tokens, llmc_files_of_both_kinds)
{
    static const struct {
        int magic, version, width;
    } kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};
    for (size_t i = 0; i < COUNT(kinds); i++) {
        struct data_case test;
        struct blob bin = {.bytes = 0};
        data_case_init(&test, NULL);
        put_int(&bin, kinds[i].magic, 4);
        put_int(&bin, kinds[i].version, 4);
        put_int(&bin, 6, 4);
        bin.bytes = 1024;
        put_tokens(&bin, "$ab$cd", (size_t)kinds[i].width);
        data_case_file(&test, "a.bin", bin.data, bin.bytes);
        expect_words(&test, "|[$]|[a]b$|[c]d");
        data_case_fini(&test);
    }
}

Test(data_tokens, files_begin_documents)
{
    struct data_case test;
    struct blob bin = {.bytes = 0};
    char pattern[PATH_MAX];
    data_case_init(&test, NULL);
    put_tokens(&bin, "ab$cd", 2);
    data_case_file(&test, "a.bin", bin.data, bin.bytes);
    data_case_file(&test, "b.bin", bin.data, bin.bytes);
    snprintf(pattern, sizeof pattern, "%s/?.bin", test.scratch.dir);
    test.entry.path = pattern;
    test.entry.format = DATA_NANOGPT;
    expect_words(&test, "|[a]b$|[c]d|[a]b$|[c]d");
    test.options.packing = false;
    expect_words(&test, "|[a]b$|[c]d|[a]b$|[c]d");
    data_case_fini(&test);
}

Test(data_tokens, megatron_documents_are_what_the_index_says)
{
    static const struct {
        int code, width;
    } types[] = {{1, 1}, {2, 1}, {3, 2}, {4, 4}, {5, 8}, {8, 2}};
    for (size_t i = 0; i < COUNT(types); i++) {
        struct data_case test;
        struct blob bin = {.bytes = 0}, idx = {.bytes = 0};
        int w = types[i].width;
        /* two sequences make the first document, one the second; then comes an
         * empty document, and one that begins with an empty sequence */
        struct index index = {
                .code = types[i].code,
                .lengths = {2, 1, 2, 0, 1},
                .pointers = {0, 2 * w, 3 * w, 5 * w, 5 * w},
                .documents = {0, 2, 3, 3, 5},
                .sequences = 5,
                .ends = 5};
        data_case_init(&test, NULL);
        put_tokens(&bin, "abcdef", (size_t)w);
        put_index(&idx, &index);
        write_megatron(&test, &bin, &idx);
        expect_words(&test, "|[a]bc|[d]e|[f]");
        strcpy(test.path + strlen(test.path) - 4, ".idx"); /* names both */
        expect_words(&test, "|[a]bc|[d]e|[f]");
        data_case_fini(&test);
    }
}

Test(data_tokens, megatron_sequences_may_lie_apart)
{
    struct data_case test;
    struct blob bin = {.bytes = 0}, idx = {.bytes = 0};
    struct index index = {
            .code = 8,
            .lengths = {2, 2},
            .pointers = {2, 9}, /* an odd byte: misaligned */
            .documents = {0, 1, 2},
            .sequences = 2,
            .ends = 3};
    data_case_init(&test, NULL);
    put_tokens(&bin, "xabx", 2);
    put_int(&bin, 0, 1);
    put_tokens(&bin, "cd", 2);
    put_index(&idx, &index);
    put(&idx, "\0\0", 2); /* modes of a multimodal file */
    write_megatron(&test, &bin, &idx);
    expect_words(&test, "|[a]b|[c]d");
    data_case_fini(&test);
}

Test(data_tokens, broken_megatron_indices_are_refused)
{
    static const struct {
        const char *name, *why;
        struct index index;
    } rows[] = {
            {"beyond", "beyond the end", {8, {4, 3}, {0, 8}, {0, 1, 2}, 2, 3}},
            {"beyond at once",
             "beyond the end",
             {8, {2}, {1 << 30}, {0, 1}, 1, 2}},
            {"overlap", "overlap", {8, {4, 2}, {0, 6}, {0, 1, 2}, 2, 3}},
            {"not in order", "overlap", {8, {2, 2}, {4, 0}, {0, 1, 2}, 2, 3}},
            {"negative", "negative", {8, {-1, 2}, {0, 0}, {0, 1, 2}, 2, 3}},
            {"first", "first document", {8, {2, 2}, {0, 4}, {1, 2}, 2, 2}},
            {"falling",
             "not in order",
             {8, {2, 2}, {0, 4}, {0, 2, 1, 2}, 2, 4}},
            {"last", "do not end", {8, {2, 2}, {0, 4}, {0, 1}, 2, 2}},
            {"too far", "do not end", {8, {2, 2}, {0, 4}, {0, 3}, 2, 2}},
            {"float", "floating", {7, {2, 2}, {0, 4}, {0, 2}, 2, 2}},
            {"code", "unknown type", {9, {2, 2}, {0, 4}, {0, 2}, 2, 2}},
            {"code 0", "unknown type", {0, {2, 2}, {0, 4}, {0, 2}, 2, 2}},
            {"no sequence", "no document", {8, {0}, {0}, {0, 0}, 0, 2}},
            {"no document", "no document", {8, {2}, {0}, {0}, 1, 1}},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct data_case test;
        struct blob bin = {.bytes = 0}, idx = {.bytes = 0};
        data_case_init(&test, NULL);
        put_tokens(&bin, "abcdef", 2);
        put_index(&idx, &rows[i].index);
        write_megatron(&test, &bin, &idx);
        cr_log_info("%s", rows[i].name);
        expect_error(&test, ZD_ERR_DATA, "E0443", rows[i].why);
        data_case_fini(&test);
    }
}

Test(data_tokens, cut_and_forged_megatron_headers_are_refused)
{
    static const struct index sound = {8, {2, 2}, {0, 4}, {0, 2}, 2, 2};
    struct data_case test;
    struct blob bin = {.bytes = 0}, idx = {.bytes = 0};
    data_case_init(&test, NULL);
    put_tokens(&bin, "abcdef", 2);
    put_index(&idx, &sound);
    for (size_t cut = 1; cut < idx.bytes; cut += 3) {
        struct blob part = idx;
        part.bytes = cut;
        write_megatron(&test, &bin, &part);
        expect_error(&test, ZD_ERR_DATA, "E0443", "a.idx");
    }
    static const struct {
        int at;
        unsigned char byte;
    } forged[] = {{0, 'X'}, {9, 2}, {25, 0x7f}, {33, 0x7f}, {18, 200}};
    for (size_t i = 0; i < COUNT(forged); i++) {
        struct blob other = idx;
        other.data[forged[i].at] = forged[i].byte;
        write_megatron(&test, &bin, &other);
        expect_error(&test, ZD_ERR_DATA, "E0443", "a.idx");
    }
    data_case_fini(&test);
}

Test(data_tokens, ids_beyond_the_vocabulary_name_file_and_position)
{
    static const struct index index = {4, {2, 2}, {0, 8}, {0, 2}, 2, 2};
    struct data_case test;
    struct blob bin = {.bytes = 0}, idx = {.bytes = 0};
    data_case_init(&test, NULL);
    put_tokens(&bin, "abc", 2);
    put_int(&bin, 257, 2);
    data_case_file(&test, "a.bin", bin.data, bin.bytes);
    test.entry.format = DATA_NANOGPT;
    expect_error(&test, ZD_ERR_DATA, "E0442", "token 3 of ");
    bin.bytes = 0;
    put_tokens(&bin, "abc", 4);
    put_int(&bin, -1, 4);
    put_index(&idx, &index);
    test.entry.format = DATA_AUTO;
    write_megatron(&test, &bin, &idx);
    expect_error(&test, ZD_ERR_DATA, "E0442", "is -1");
    data_case_fini(&test);
}

Test(data_tokens, broken_llmc_and_nanogpt_files_are_refused)
{
    static const struct {
        int magic, version, count, tokens, width;
    } rows[] = {{20240520, 1, 7, 6, 2},  {20240520, 1, 5, 6, 2},
                {20240520, 2, 6, 6, 2},  {20240801, 7, 6, 3, 4},
                {20240520, 1, -1, 6, 2}, {20240520, 1, 0, 0, 2},
                {20240522, 1, 6, 6, 2},  {20240801, 7, 5, 11, 2}};
    struct data_case test;
    data_case_init(&test, NULL);
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct blob bin = {.bytes = 0};
        put_int(&bin, rows[i].magic, 4);
        put_int(&bin, rows[i].version, 4);
        put_int(&bin, rows[i].count, 4);
        bin.bytes = 1024;
        for (int t = 0; t < rows[i].tokens; t++)
            put_int(&bin, 'a', (size_t)rows[i].width);
        data_case_file(&test, "a.bin", bin.data, bin.bytes);
        expect_error(&test, ZD_ERR_DATA, "E0444", "a.bin");
        data_case_file(&test, "a.bin", bin.data, 1000);
        expect_error(&test, ZD_ERR_DATA, "E0444", "a.bin");
    }
    data_case_file(&test, "a.bin", "abc", 3);
    test.entry.format = DATA_NANOGPT;
    expect_error(&test, ZD_ERR_DATA, "E0445", "3 bytes");
    test.entry.format = DATA_LLMC;
    expect_error(&test, ZD_ERR_DATA, "E0444", "3 bytes");
    test.entry.format = DATA_AUTO; /* nothing says what it is */
    expect_error(&test, ZD_ERR_CONFIG, "E0431", "a.bin");
    test.entry.format = DATA_MEGATRON;
    expect_error(&test, ZD_ERR_NO_INPUT, "E0712", "a.idx");
    data_case_fini(&test);
}
