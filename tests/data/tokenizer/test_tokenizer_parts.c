/* The parts of a tokenizer, each against a slower or a plainer one. */
#include "base/file/fs.h"
#include "base/must.h"
#include "data/tokenizer/tokenizer_internal.h"
#include "data/tokenizer/utf8.h"

#include <criterion/criterion.h>
#include <string.h>

static uint64_t random_state = 88172645463325252u;

static uint32_t random_below(uint32_t limit)
{
    random_state ^= random_state << 13; /* Marsaglia's xorshift64 */
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 32) % limit;
}

/* ---- scanners ---- */

/* Characters that the patterns tell apart, and some that they must not. */
static const uint32_t awkward[] = {
        ' ',     ' ',      ' ',    '\n',    '\n',   '\r',   '\t',    0x0b,
        0x1c,    0x85,     0xa0,   0x180e,  0x200b, 0x2028, 0x3000,  0xfeff,
        '\'',    '\'',     '\'',   's',     'S',    0x17f,  't',     'r',
        'e',     'V',      'l',    'L',     'm',    'D',    'a',     0xe9,
        0x4e2d,  0x301,    '1',    '2',     '3',    0xb2,   0x661,   0x1d7d9,
        0x1c5,   0x2b0,    0x903,  '/',     'Z',    0x3b1,  0x391,   0xaa,
        '!',     '.',      0x2019, 0x1f600, 0x1c89, 0xa7cb, 0x11bf0, 0x10d40,
        0x323af, 0x10ffff, 0xe000, 0x378};

static size_t random_text(unsigned char *text, int characters)
{
    size_t bytes = 0;
    for (int i = 0; i < characters; i++) {
        uint32_t c = awkward[random_below(sizeof awkward / sizeof awkward[0])];
        if (random_below(16) == 0)
            c = random_below(0xd800);
        int times = random_below(8) == 0 ? 1 + (int)random_below(5) : 1;
        for (; times > 0; times--)
            bytes += utf8_write(text + bytes, c);
    }
    return bytes;
}

static struct split_scan scan_of(
        const struct splitter *splitter, const uint8_t *classes,
        const unsigned char *text, size_t bytes)
{
    struct split_scan scan = {
            .splitter = splitter,
            .classes = classes,
            .text = text,
            .bytes = bytes};
    scan.match = pcre2_match_data_create(1, NULL);
    return scan;
}

static void compare_scanners(enum split_kind kind)
{
    enum { TEXTS = 1500, CHARACTERS = 40 };
    unsigned char text[CHARACTERS * 5 * 4];
    ZD_FREED uint8_t *classes = unicode_classes_create();
    struct splitter known = {0}, plain = {0};
    cr_assert_eq(splitter_add(&known, split_patterns[kind], false), ZD_OK);
    cr_assert_eq(splitter_add(&plain, split_patterns[kind], true), ZD_OK);
    cr_assert_eq(known.stages[0].kind, kind);
    cr_assert_eq(plain.stages[0].kind, SPLIT_PATTERN);
    for (int t = 0; t < TEXTS; t++) {
        size_t bytes = random_text(text, 1 + (int)random_below(CHARACTERS));
        struct split_scan a = scan_of(&known, classes, text, bytes);
        struct split_scan b = scan_of(&plain, classes, text, bytes);
        while (a.at < bytes) {
            size_t end, plain_end;
            cr_assert_eq(split_scan_next(&a, &end), ZD_OK);
            cr_assert_eq(split_scan_next(&b, &plain_end), ZD_OK);
            cr_assert_eq(
                    end, plain_end, "%zu, not %zu in `%.*s`", end, plain_end,
                    (int)bytes, (const char *)text);
        }
        pcre2_match_data_free(a.match);
        pcre2_match_data_free(b.match);
    }
    splitter_fini(&known);
    splitter_fini(&plain);
}

Test(tokenizer_split, by_hand_equals_pcre2)
{
    for (int kind = SPLIT_GPT2; kind < SPLIT_PATTERN; kind++)
        compare_scanners(kind);
}

Test(tokenizer_split, what_no_match_covers_is_a_piece)
{
    static const unsigned char text[] = "ab12  cd-3";
    static const size_t ends[] = {2, 4, 6, 8, 9, 10};
    struct splitter splitter = {0};
    cr_assert_eq(splitter_add(&splitter, "\\p{L}+|[0-9]", false), ZD_OK);
    struct split_scan scan = scan_of(&splitter, NULL, text, strlen("ab12"));
    size_t end;
    cr_assert_eq(split_scan_next(&scan, &end), ZD_OK);
    cr_expect_eq(end, 2);
    pcre2_match_data_free(scan.match);
    splitter_fini(&splitter);
    cr_assert_eq(splitter_add(&splitter, "\\p{L}+|[0-9]{2}", false), ZD_OK);
    scan = scan_of(&splitter, NULL, text, strlen("ab12  cd-"));
    for (int i = 0; i < 5; i++) {
        cr_assert_eq(split_scan_next(&scan, &end), ZD_OK);
        cr_expect_eq(end, ends[i]);
    }
    pcre2_match_data_free(scan.match);
    splitter_fini(&splitter);
}

Test(tokenizer_split, patterns_that_engines_read_differently_are_refused)
{
    char *text, *line;
    size_t bytes;
    int count = 0;
    cr_assert_eq(
            fs_read_file(
                    ZD_SOURCE "/tests/data/cases/patterns.txt", 1 << 20, &text,
                    &bytes),
            ZD_OK);
    for (char *rest = text; (line = strsep(&rest, "\n")); count++) {
        struct splitter splitter = {0}; /* the last line is empty */
        if (*line == '#')
            continue;
        zd_error_clear();
        cr_expect_eq(
                splitter_add(&splitter, line, false), ZD_ERR_DATA,
                "`%s` was taken", line);
        cr_expect_str_eq(zd_error_get()->code, "E0403", "%s", line);
        splitter_fini(&splitter);
    }
    cr_expect_geq(count, 49);
    free(text);
}

/* ---- NFC ---- */

/* Code points in hexadecimal as UTF-8, to where none follows. */
static size_t read_points(const char **at, unsigned char text[64])
{
    size_t bytes = 0;
    unsigned point;
    int used;
    for (; sscanf(*at, "%x%n", &point, &used) == 1; *at += used)
        bytes += utf8_write(text + bytes, point);
    return bytes;
}

static void expect_nfc(const uint8_t *classes, const char *row)
{
    unsigned char text[64], expected[64];
    const char *at = row;
    struct byte_buffer normal = {0};
    size_t bytes = read_points(&at, text);
    at = strchr(at, '=') + 1;
    size_t expected_bytes = read_points(&at, expected);
    if (!nfc_normalize(classes, text, bytes, &normal))
        byte_buffer_append(&normal, text, bytes);
    cr_expect(
            normal.count == expected_bytes &&
                    memcmp(normal.data, expected, expected_bytes) == 0,
            "%s", row);
    byte_buffer_fini(&normal);
}

Test(tokenizer_nfc, is_that_of_unicode_9)
{
    ZD_FREED uint8_t *classes = unicode_classes_create();
    char *text, *line;
    cr_assert_eq(
            fs_read_file(
                    ZD_SOURCE "/tests/data/cases/nfc.txt", 1 << 20, &text,
                    NULL),
            ZD_OK);
    for (char *rest = text; (line = strsep(&rest, "\n"));)
        if (*line && *line != '#')
            expect_nfc(classes, line);
    free(text);
}

/* Long runs are counted, short ones inserted: the same marks in both. */
Test(tokenizer_nfc, long_runs_of_marks_are_ordered)
{
    enum { MARKS = 60000 };
    static const uint32_t marks[] = {0x345, 0x301, 0x327, 0x334};
    ZD_FREED unsigned char *text = malloc(2 * MARKS + 1);
    struct byte_buffer normal = {0};
    ZD_FREED uint8_t *classes = unicode_classes_create();
    size_t bytes = 0;
    unsigned step;
    for (int i = 0; i < MARKS; i++)
        bytes += utf8_write(text + bytes, marks[i % 4]);
    cr_assert(nfc_normalize(classes, text, bytes, &normal));
    cr_assert_eq(normal.count, bytes);
    for (int i = 0; i < MARKS; i++)
        cr_assert_eq(
                utf8_read(normal.data + 2 * i, &step),
                marks[3 - i / (MARKS / 4)]);
    byte_buffer_fini(&normal);
}

/* ---- merges ---- */

/* The definition: the pair of lowest rank, the leftmost, again and again. */
static int merge_plainly(const struct merges *merges, int32_t *ids, int count)
{
    for (;;) {
        int best = MERGE_NONE, at = 0;
        for (int i = 0; i + 1 < count; i++) {
            int rank = merges_rank(merges, ids[i], ids[i + 1]);
            if (rank < best) {
                best = rank;
                at = i;
            }
        }
        if (best == MERGE_NONE)
            return count;
        ids[at] = merges->result[best];
        for (int i = at + 1; i + 1 < count; i++)
            ids[i] = ids[i + 1];
        count--;
    }
}

Test(tokenizer_bpe, words_merge_as_defined)
{
    enum { LONGEST = 400, WORDS = 400 };
    struct tokenizer *tokenizer;
    struct token_vector ids = {0};
    struct bpe bpe = {0};
    cr_assert_eq(
            tokenizer_open(ZD_FIXTURES "/tokenizers/gpt2", &tokenizer), ZD_OK);
    const struct merges *merges = &tokenizer->merges;
    for (int w = 0; w < WORDS; w++) {
        unsigned char word[LONGEST];
        int32_t expected[LONGEST];
        int bytes = 1 + (int)random_below(LONGEST);
        for (int i = 0; i < bytes; i++) {
            word[i] = (unsigned char)"etaoinsh lrd"[random_below(12)];
            expected[i] = merges->byte_id[word[i]];
        }
        int count = merge_plainly(merges, expected, bytes);
        ids.count = 0;
        cr_assert_eq(
                bpe_encode(&bpe, merges, word, (size_t)bytes, &ids), ZD_OK);
        cr_assert_eq(ids.count, (size_t)count, "a word of %d bytes", bytes);
        cr_assert_eq(memcmp(ids.ids, expected, ids.count * sizeof *ids.ids), 0);
    }
    bpe_fini(&bpe);
    token_vector_fini(&ids);
    tokenizer_close(tokenizer);
}

/* ---- UTF-8 ---- */

Test(tokenizer_utf8, every_character_and_nothing_else_is_valid)
{
    unsigned char text[4];
    for (uint32_t c = 0; c < UNICODE_POINTS; c++) {
        unsigned step, bytes = utf8_write(text, c);
        bool is_surrogate = c >= 0xd800 && c <= 0xdfff;
        cr_assert_eq(
                utf8_valid_prefix((const char *)text, bytes),
                is_surrogate ? 0 : bytes);
        cr_assert_eq(utf8_read(text, &step), c);
        cr_assert_eq(step, bytes);
        cr_assert_eq(utf8_valid_prefix((const char *)text, bytes - 1), 0);
    }
}
