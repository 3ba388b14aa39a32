/* split.c - cut text into pre-tokens. The patterns of the GPT-2,
 * Llama 3 and Qwen 2 families, recognized by their exact text, are scanned by
 * hand; any other goes through PCRE2 (pattern.c). Both see the same
 * classes, and the tests hold them equal. */
#include "data/tokenizer/tokenizer_internal.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/utf8.h"

#include <string.h>

const char split_pattern_gpt2[] =
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
        "\\s+(?!\\S)|\\s+";
const char split_pattern_llama3[] =
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
        "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
        "\\s+(?!\\S)|\\s+";
const char split_pattern_qwen2[] =
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
        "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
        "\\s+(?!\\S)|\\s+";

enum {
    LETTER = UNICODE_LETTER,
    NUMBER = UNICODE_NUMBER,
    SPACE = UNICODE_SPACE,
    ANY = LETTER | NUMBER | SPACE,
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

/* Bytes of 's 't 're 've 'm 'll 'd at `at`, 0 when there is none. */
static size_t contraction(const struct split_scan *v, size_t at)
{
    const unsigned char *p = v->text + at;
    size_t left = v->bytes - at;
    if (left < 2)
        return 0;
    if (p[1] == 's' || p[1] == 't' || p[1] == 'm' || p[1] == 'd')
        return 2;
    if (left >= 3 &&
        ((p[1] == 'r' && p[2] == 'e') || (p[1] == 'v' && p[2] == 'e') ||
         (p[1] == 'l' && p[2] == 'l')))
        return 3;
    return 0;
}

/* The same in any case. U+017F, the long s, is an s in lower case. */
static size_t contraction_any_case(const struct split_scan *v, size_t at)
{
    const unsigned char *p = v->text + at;
    size_t left = v->bytes - at;
    unsigned char lower[3] = {'\'', 0, 0};
    struct split_scan folded = {.text = lower, .bytes = left < 3 ? left : 3};
    if (left >= 3 && p[1] == 0xc5 && p[2] == 0xbf)
        return 3;
    for (size_t i = 1; i < folded.bytes; i++)
        lower[i] = p[i] >= 'A' && p[i] <= 'Z' ? p[i] + ('a' - 'A') : p[i];
    return contraction(&folded, 0);
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
        size_t length = contraction(v, at);
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

static size_t llama3_end(const struct split_scan *v, size_t at, int most_digits)
{
    unsigned step, next_step;
    unsigned char first = v->text[at];
    if (first == '\'') {
        size_t length = contraction_any_case(v, at);
        if (length > 0)
            return at + length;
    }
    int class = class_at(v, at, &step);
    size_t next = at + step;
    if (class == LETTER)
        return run_end(v, next, LETTER);
    if (class == NUMBER)
        return numbers_end(v, at, most_digits);
    int next_class = SPACE;
    if (next < v->bytes)
        next_class = class_at(v, next, &next_step);
    if (next_class == LETTER && first != '\n' && first != '\r')
        return run_end(v, next + next_step, LETTER);
    if (class == SPACE && (first != ' ' || next_class != 0))
        return spaces_or_lines_end(v, at);
    size_t end = run_end(v, next, 0);
    while (end < v->bytes && (v->text[end] == '\r' || v->text[end] == '\n'))
        end++;
    return end;
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

/* split_scan_next for a known pattern, by hand. */
static size_t split_known(const struct split_scan *scan)
{
    switch (scan->splitter->kind) {
    case SPLIT_GPT2:
        return gpt2_end(scan, scan->at);
    case SPLIT_LLAMA3:
        return llama3_end(scan, scan->at, 3);
    case SPLIT_QWEN2:
        return llama3_end(scan, scan->at, 1);
    case SPLIT_META:
        return meta_end(scan, scan->at);
    case SPLIT_WHOLE:
    case SPLIT_PATTERN:
        break;
    }
    return scan->bytes;
}

/* The next match of the pattern at or after scan->at; the end of the text when
 * there is none. */
static enum zd_status find_match(struct split_scan *scan)
{
    int rc = pcre2_match(
            scan->splitter->code, scan->text, scan->bytes, scan->at,
            PCRE2_NO_UTF_CHECK, scan->match, scan->context);
    scan->match_begin = scan->match_end = scan->bytes;
    if (rc == PCRE2_ERROR_NOMATCH)
        return ZD_OK;
    if (rc < 0) {
        PCRE2_UCHAR message[120];
        pcre2_get_error_message(rc, message, sizeof message);
        return ZD_FAIL(
                ZD_ERR_DATA, "E0412",
                "the pre-tokenizer's pattern fails at byte %zu of a text: %s",
                scan->at, (const char *)message);
    }
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(scan->match);
    scan->match_begin = ends[0];
    scan->match_end = ends[1];
    return ZD_OK;
}

enum zd_status split_scan_next(struct split_scan *scan, size_t *end_out)
{
    size_t end;
    if (scan->splitter->kind != SPLIT_PATTERN) {
        end = split_known(scan);
    } else {
        if (scan->at >= scan->match_end)
            ZD_TRY(find_match(scan));
        /* what no match covers is a pre-token of its own */
        end = scan->at < scan->match_begin ? scan->match_begin
                                           : scan->match_end;
    }
    scan->at = end;
    *end_out = end;
    return ZD_OK;
}
