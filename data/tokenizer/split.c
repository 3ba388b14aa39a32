/* split.c - cut text into pre-tokens. The patterns of many families,
 * recognized by their exact text, are scanned by hand; any other goes through
 * PCRE2 (pattern.c). Both see the same classes, and the tests hold them equal.
 * Where there are several stages, each cuts the pieces of the one before. */
#include "data/tokenizer/tokenizer_internal.h"

#include "data/tokenizer/utf8.h"

#include <assert.h>
#include <ctype.h>

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORD_PREFIX "[^\\r\\n\\p{L}\\p{N}]?"
#define UPPER_CASE  "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER_CASE  "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define SPACES      "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3(digits)                                                         \
    CONTRACTION "|" WORD_PREFIX "\\p{L}+|" digits                              \
                "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES
#define TEKKEN(suffix, digits)                                                 \
    WORD_PREFIX UPPER_CASE "*" LOWER_CASE "+" suffix                           \
                           "|" WORD_PREFIX UPPER_CASE "+" LOWER_CASE           \
                           "*" suffix "|" digits                               \
                           "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES

const char *const split_patterns[SPLIT_PATTERN] = {
        [SPLIT_GPT2] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| "
                       "?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
        [SPLIT_LLAMA3] = LLAMA3("\\p{N}{1,3}"),
        [SPLIT_QWEN2] = LLAMA3("\\p{N}"),
        [SPLIT_TEKKEN] = TEKKEN("", "\\p{N}"),
        [SPLIT_O200K] = TEKKEN(CONTRACTION "?", "\\p{N}{1,3}"),
};

enum {
    LETTER = UNICODE_LETTER,
    NUMBER = UNICODE_NUMBER,
    SPACE = UNICODE_SPACE,
    ANY = LETTER | NUMBER | SPACE,
    UPPER = UNICODE_UPPER,
    LOWER = UNICODE_LOWER,
};

/* Class of the character at `at` (< bytes); 0 is everything else. */
static inline int class_at(
        const struct split_scan *v, size_t at, unsigned *step)
{
    return v->classes[utf8_read(v->text + at, step)] & ANY;
}

/* End of the run of characters of exactly this class that begins at `at`. */
static inline size_t run_end(const struct split_scan *v, size_t at, int class)
{
    unsigned step;
    while (at < v->bytes && class_at(v, at, &step) == class)
        at += step;
    return at;
}

/* Bytes of 's 't 're 've 'm 'll 'd at `at`, 0 when there is none; in any case
 * U+017F, the long s, is an s too. */
static size_t contraction(const struct split_scan *v, size_t at, bool any_case)
{
    const unsigned char *p = v->text + at;
    size_t left = v->bytes - at;
    int first = left > 1 ? p[1] : 0, second = left > 2 ? p[2] : 0;
    if (any_case && first == 0xc5 && second == 0xbf)
        return 3;
    first = any_case && first < 0x80 ? tolower(first) : first;
    second = any_case && second < 0x80 ? tolower(second) : second;
    if (first == 's' || first == 't' || first == 'm' || first == 'd')
        return 2;
    bool is_two = (first == 'r' && second == 'e') ||
                  (first == 'v' && second == 'e') ||
                  (first == 'l' && second == 'l');
    return is_two ? 3 : 0;
}

/* \s+(?!\S)|\s+ over a run of spaces that ends at `end`: the last space stays
 * with the word after it, unless it is the only one or nothing follows. */
static size_t spaces_end(const struct split_scan *v, size_t at, size_t end)
{
    size_t last = utf8_before(v->text, end);
    return end == v->bytes || last == at ? end : last;
}

static size_t gpt2_end(const struct split_scan *v, size_t at)
{
    unsigned step;
    size_t word = at + (v->text[at] == ' ');
    if (v->text[at] == '\'') {
        size_t length = contraction(v, at, false);
        if (length > 0)
            return at + length;
    }
    if (word < v->bytes) {
        int class = class_at(v, word, &step);
        if (class != SPACE) /* letters, numbers, or neither */
            return run_end(v, word + step, class);
    }
    return spaces_end(v, at, run_end(v, at, SPACE));
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t spaces_or_lines_end(const struct split_scan *v, size_t at)
{
    size_t end = at, line_end = 0;
    unsigned step;
    while (end < v->bytes && class_at(v, end, &step) == SPACE) {
        if (v->text[end] == '\n' || v->text[end] == '\r')
            line_end = end + 1;
        end += step;
    }
    return line_end > 0 ? line_end : spaces_end(v, at, end);
}

static size_t numbers_end(const struct split_scan *v, size_t at, int most)
{
    unsigned step;
    for (int i = 0; i < most; i++) {
        if (at == v->bytes || class_at(v, at, &step) != NUMBER)
            break;
        at += step;
    }
    return at;
}

/* End of the run of UPPER_CASE at `at`. *lower_out: end of UPPER_CASE*
 * LOWER_CASE+ there, `at` where that matches nothing. */
static size_t cased_run(
        const struct split_scan *v, size_t at, size_t *lower_out)
{
    unsigned step;
    int class = 0;
    *lower_out = at;
    for (; at < v->bytes; at += step) {
        class = v->classes[utf8_read(v->text + at, &step)];
        if (!(class & UPPER))
            break;
        if (class & LOWER)
            *lower_out = at + step;
    }
    size_t end = at;
    if (at == v->bytes || !(class & LOWER))
        return end;
    while (at < v->bytes && v->classes[utf8_read(v->text + at, &step)] & LOWER)
        at += step;
    *lower_out = at;
    return end;
}

/* The first two alternatives of TEKKEN; `at` where they match nothing. */
static size_t cased_end(const struct split_scan *v, size_t at)
{
    unsigned step;
    size_t begin = at, lower;
    int class = v->classes[utf8_read(v->text + at, &step)];
    if (!(class & (LETTER | NUMBER)) && v->text[at] != '\r' &&
        v->text[at] != '\n')
        begin = at + step;
    size_t end = cased_run(v, begin, &lower);
    if (lower == begin && begin > at && class & LOWER) {
        begin = at; /* a mark with no word after it is one itself */
        cased_run(v, begin, &lower);
    }
    if (lower > begin)
        return lower;
    return end > begin ? end : at;
}

/* LLAMA3 and TEKKEN */
static size_t words_end(
        const struct split_scan *v, size_t at, enum split_kind kind)
{
    bool is_cased = kind == SPLIT_TEKKEN || kind == SPLIT_O200K;
    unsigned step, next_step;
    unsigned char first = v->text[at];
    size_t end = is_cased ? cased_end(v, at) : at;
    if (end > at) {
        bool has_suffix =
                kind == SPLIT_O200K && end < v->bytes && v->text[end] == '\'';
        return has_suffix ? end + contraction(v, end, true) : end;
    }
    if (first == '\'' && !is_cased) {
        size_t length = contraction(v, at, true);
        if (length > 0)
            return at + length;
    }
    int class = class_at(v, at, &step);
    size_t next = at + step;
    if (class == LETTER)
        return run_end(v, next, LETTER);
    if (class == NUMBER)
        return numbers_end(
                v, at, kind == SPLIT_LLAMA3 || kind == SPLIT_O200K ? 3 : 1);
    int next_class = SPACE;
    if (next < v->bytes)
        next_class = class_at(v, next, &next_step);
    if (next_class == LETTER && first != '\n' && first != '\r')
        return run_end(v, next + next_step, LETTER);
    if (class == SPACE && (first != ' ' || next_class != 0))
        return spaces_or_lines_end(v, at);
    end = run_end(v, next, 0);
    while (end < v->bytes && (v->text[end] == '\r' || v->text[end] == '\n' ||
                              (is_cased && v->text[end] == '/')))
        end++;
    return end;
}

/* What Digits takes for one: \p{N}, and 13 of a later Unicode. */
static bool is_digit(const struct split_scan *v, size_t at, unsigned *step)
{
    uint32_t c = utf8_read(v->text + at, step);
    return v->classes[c] & NUMBER || (c >= 0x11de0 && c <= 0x11de9) ||
           (c >= 0x16ff4 && c <= 0x16ff6);
}

/* A run of digits, or one digit if `is_single`, or all up to the next. */
static size_t digits_end(const struct split_scan *v, size_t at, bool is_single)
{
    unsigned step;
    bool is_run = is_digit(v, at, &step);
    do
        at += step;
    while (at < v->bytes && is_digit(v, at, &step) == is_run &&
           !(is_run && is_single));
    return at;
}

/* Before the next "▁" that no merge joins to what is before it. */
static size_t meta_end(const struct split_scan *v, size_t at)
{
    const unsigned char *text = v->text;
    while (++at < v->bytes)
        if (text[at] == (unsigned char)META_SPACE[0] &&
            v->bytes - at >= META_BYTES &&
            memcmp(text + at, META_SPACE, META_BYTES) == 0 &&
            !v->splitter->joins[text[at - 1]])
            break;
    return at;
}

/* The end of what is cut by hand. */
static size_t split_known(const struct split_scan *scan, enum split_kind kind)
{
    switch (kind) {
    case SPLIT_GPT2:
        return gpt2_end(scan, scan->at);
    case SPLIT_DIGITS:
    case SPLIT_EACH_DIGIT:
        return digits_end(scan, scan->at, kind == SPLIT_EACH_DIGIT);
    case SPLIT_META:
        return meta_end(scan, scan->at);
    default:
        return words_end(scan, scan->at, kind);
    }
}

/* The next match of a stage's pattern at or after scan->at; the end of the text
 * when there is none. */
static enum zd_status find_match(
        const struct split_scan *scan, const pcre2_code *code,
        struct split_piece *piece)
{
    int rc = pcre2_match(
            code, scan->text, scan->bytes, scan->at, PCRE2_NO_UTF_CHECK,
            scan->match, scan->context);
    piece->match_begin = piece->match_end = scan->bytes;
    if (rc == PCRE2_ERROR_NOMATCH)
        return ZD_OK;
    if (rc < 0) {
        PCRE2_UCHAR message[120];
        pcre2_get_error_message(rc, message, sizeof message);
        return ZD_BAD(
                "E0412",
                "the pre-tokenizer's pattern fails at byte %zu of a text: %s",
                scan->at, (const char *)message);
    }
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(scan->match);
    piece->match_begin = ends[0];
    piece->match_end = ends[1];
    return ZD_OK;
}

/* The end of the piece of a stage that begins at scan->at. */
static enum zd_status stage_end(
        struct split_scan *scan, int stage, size_t *end_out)
{
    const struct split_stage *is = &scan->splitter->stages[stage];
    struct split_piece *piece = &scan->pieces[stage];
    size_t whole = scan->bytes;
    if (stage >
        0) { /* the text ends where the piece of the stage before does */
        struct split_piece *outer = piece - 1;
        if (scan->at >= outer->end)
            ZD_TRY(stage_end(scan, stage - 1, &outer->end));
        scan->bytes = outer->end;
    }
    enum zd_status status = ZD_OK;
    if (is->kind != SPLIT_PATTERN) {
        *end_out = split_known(scan, is->kind);
    } else {
        if (scan->at >= piece->match_end)
            status = find_match(scan, is->code, piece);
        /* what no match covers is a pre-token of its own */
        *end_out = scan->at < piece->match_begin ? piece->match_begin
                                                 : piece->match_end;
    }
    scan->bytes = whole;
    return status;
}

enum zd_status split_scan_next(struct split_scan *scan, size_t *end_out)
{
    int stages = scan->splitter->count;
    *end_out = scan->bytes;
    if (stages > 0)
        ZD_TRY(stage_end(scan, stages - 1, end_out));
    scan->at = *end_out;
    return ZD_OK;
}

enum split_kind split_kind_of(const char *pattern)
{
    int kind = 0;
    while (kind < SPLIT_PATTERN &&
           (!split_patterns[kind] || strcmp(pattern, split_patterns[kind])))
        kind++;
    return kind;
}

struct split_stage *splitter_push(
        struct splitter *splitter, enum split_kind kind)
{
    assert(splitter->count < SPLIT_STAGES_MAX);
    struct split_stage *stage = &splitter->stages[splitter->count++];
    *stage = (struct split_stage){.kind = kind};
    return stage;
}

/* --- where a long text may be cut without changing its ids -------------------
 *
 * A place after a letter or a number and before a space or a newline is a
 * border of pre-tokens for each of the known patterns, whatever surrounds it:
 * no alternative runs from a letter or a number into white space, and none
 * looks back. NFC composes nothing across it, as white space is not a mark. Of
 * a tokenizer that makes spaces "▁" a place before a space is one, if no
 * merge joins "▁" to what is before it. An added token could only change that
 * if it holds white space after something else, asks what is before its white
 * space (single_word), or takes what follows it (rstrip). */

static bool keeps_spaces(const struct added_set *set, const uint8_t *classes)
{
    enum { META = 0x2581 };
    ZD_EACH(token, set->tokens, set->count) {
        bool is_word = false; /* the character before is no white space */
        unsigned step;
        for (size_t at = 0; at < token->bytes; at += step) {
            uint32_t c = utf8_read(token->content + at, &step);
            bool is_space = (classes[c] & UNICODE_SPACE) || c == META;
            if (is_space && (is_word || token->single_word))
                return false;
            is_word = !is_space;
            if (at + step == token->bytes && token->rstrip &&
                classes[c] & (UNICODE_LETTER | UNICODE_NUMBER))
                return false;
        }
    }
    return true;
}

/* Does a letter or a number end before `at`, one that NFC leaves alone? The
 * text may still be no UTF-8. */
static bool ends_word(
        const struct tokenizer *tokenizer, const unsigned char *text, size_t at)
{
    size_t begin = utf8_before(text, at);
    unsigned step;
    if (utf8_valid_prefix((const char *)text + begin, at - begin) != at - begin)
        return false;
    int class = tokenizer->classes[utf8_read(text + begin, &step)];
    return (class & (UNICODE_LETTER | UNICODE_NUMBER)) &&
           !(class & UNICODE_NFC_TRIGGER);
}

/* Digits cuts no words, and of a pattern nothing is known. */
static bool has_border(const struct splitter *splitter, bool *is_meta_out)
{
    bool has_words = false;
    *is_meta_out = false;
    for (int i = 0; i < splitter->count; i++) {
        enum split_kind kind = splitter->stages[i].kind;
        if (kind == SPLIT_PATTERN)
            return false;
        *is_meta_out |= kind == SPLIT_META;
        has_words |= kind != SPLIT_DIGITS && kind != SPLIT_EACH_DIGIT;
    }
    return has_words;
}

size_t tokenizer_cut(
        const struct tokenizer *tokenizer, const char *chars, size_t bytes)
{
    const unsigned char *text = (const unsigned char *)chars;
    if (bytes == 0)
        return 0;
    if (tokenizer->is_bytes)
        return utf8_before(text, bytes); /* the last character may be cut */
    const struct splitter *splitter = &tokenizer->splitter;
    bool is_meta, is_known = has_border(splitter, &is_meta);
    if (!is_known || !keeps_spaces(&tokenizer->added_raw, tokenizer->classes) ||
        !keeps_spaces(&tokenizer->added_normalized, tokenizer->classes))
        return 0;
    for (size_t at = bytes - 1; at > 0; at--) {
        /* a part that begins with a newline would be given a prefix space */
        bool is_place =
                is_meta ? text[at] == ' ' && !splitter->joins[text[at - 1]]
                        : text[at] == ' ' || (text[at] == '\n' &&
                                              !tokenizer->add_prefix_space);
        if (is_place && ends_word(tokenizer, text, at))
            return at;
    }
    return 0;
}
