/* pattern.c - pre-tokenizer patterns written for Oniguruma, the
 * reference's engine, in PCRE2.
 *
 * Only what means the same in both is taken: literals, `.`, classes of
 * literals, of general categories (\p{L}, \P{Lu}) and of \s and \S, groups,
 * (?i:ASCII letters), lookahead, alternatives, quantifiers. What else there is,
 * is refused by name, or by PCRE2 where neither engine takes it. Categories and
 * spaces are written out as ranges of code points, so that neither engine's
 * Unicode version matters. */
#include "data/tokenizer/tokenizer_internal.h"

#include "base/must.h"
#include "data/tokenizer/utf8.h"

#include <ctype.h>
#include <stdarg.h>
#include <strings.h>

struct translation {
    const unsigned char *pattern;
    size_t at;
    struct byte_buffer *out;
    uint8_t *class; /* (UNICODE_POINTS) 1: in the class at hand */
    bool folds[64]; /* by group: inside (?i: */
    int depth;
    unsigned char folded_before; /* letter before this one inside (?i:, or 0 */
};

static enum zd_status put(struct translation *t, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
static enum zd_status put(struct translation *t, const char *format, ...)
{
    char text[64];
    va_list args;
    va_start(args, format);
    int bytes = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    byte_buffer_append(t->out, text, (size_t)bytes);
    return ZD_OK;
}

static enum zd_status refuse(const struct translation *t, const char *why)
{
    return ZD_BAD(
            "E0403",
            "the pre-tokenizer's pattern is not supported: %s at byte %zu of "
            "`%.300s`",
            why, t->at, (const char *)t->pattern);
}

/* ---- classes ---- */

/* [first, end) belongs to the class at hand. */
static void add_range(struct translation *t, uint32_t first, uint32_t end)
{
    memset(t->class + first, 1, end - first);
}

/* Write the class at hand, which is empty then. Ranges of PCRE2 neither begin
 * nor end at a surrogate, and no text has one. */
static enum zd_status put_class(struct translation *t, bool complement)
{
    enum { SURROGATES = 0xd800, SURROGATES_END = 0xe000 };
    const uint8_t *class = t->class, *end = class + UNICODE_POINTS, *begin;
    memset(t->class + SURROGATES, 0, SURROGATES_END - SURROGATES);
    put(t, complement ? "[^" : "[");
    while ((begin = memchr(class, 1, (size_t)(end - class)))) {
        class = memchr(begin, 0, (size_t)(end - begin));
        class = class ? class : end;
        put(t, "\\x{%x}-\\x{%x}", (unsigned)(begin - t->class),
            (unsigned)(class - 1 - t->class));
    }
    memset(t->class, 0, UNICODE_POINTS);
    return put(t, "]");
}

/* \s, \p{L}, \P{Lu} and their like at t->at, which moves past it, into the
 * class at hand; false: none is there. */
static bool take_property(struct translation *t)
{
    const char *text = (const char *)t->pattern + t->at;
    size_t bytes =
            strncasecmp(text, "\\p{", 3) == 0 ? strcspn(text + 3, "}") : 0;
    bool is_space = strncasecmp(text, "\\s", 2) == 0,
         complement = text[1] < 'a';
    const struct unicode_table *table =
            is_space ? &unicode_spaces : &unicode_categories;
    char category[3] = ""; /* begins so; of spaces "" */
    uint32_t end = 0;
    if (!is_space &&
        (bytes < 1 || bytes > 2 || text[3 + bytes] != '}' ||
         strncmp(text + 3, "C}", 2) == 0)) /* Cn and Cs have no table */
        return false;
    memcpy(category, text + 3, bytes);
    ZD_EACH(range, table->ranges, table->count) {
        if (strncmp(range->category, category, bytes) != 0)
            continue;
        if (complement)
            add_range(t, end, range->begin);
        else
            add_range(t, range->begin, range->end + 1);
        end = range->end + 1;
    }
    if (complement && end > 0)
        add_range(t, end, UNICODE_POINTS);
    t->at += end == 0 ? 0 : is_space ? 2 : bytes + 4;
    return end > 0;
}

/* One literal character, escaped or not, at t->at. */
static enum zd_status take_literal(struct translation *t, uint32_t *c_out)
{
    static const char letters[] = "rntf", controls[] = "\r\n\t\f";
    unsigned step;
    unsigned char next = t->pattern[t->at + 1];
    if (t->pattern[t->at] != '\\') {
        *c_out = utf8_read(t->pattern + t->at, &step);
        t->at += step;
        return ZD_OK;
    }
    const char *letter = next ? strchr(letters, next) : NULL;
    if (!letter && (next >= 0x80 || !ispunct(next)))
        return refuse(t, "an escape");
    *c_out = letter ? (unsigned char)controls[letter - letters] : next;
    t->at += 2;
    return ZD_OK;
}

static enum zd_status class_item(struct translation *t)
{
    uint32_t first, last;
    if (take_property(t))
        return ZD_OK;
    if (t->pattern[t->at] == '[' ||
        (t->pattern[t->at] == '&' && t->pattern[t->at + 1] == '&'))
        return refuse(t, "a class within a class");
    ZD_TRY(take_literal(t, &first));
    last = first;
    if (t->pattern[t->at] == '-' && t->pattern[t->at + 1] != ']') {
        t->at++;
        if (t->pattern[t->at] == '[' || t->pattern[t->at] == '\0')
            return refuse(t, "a range without an end");
        ZD_TRY(take_literal(t, &last));
        if (last < first)
            return refuse(t, "a range that runs backwards");
    }
    add_range(t, first, last + 1);
    return ZD_OK;
}

static enum zd_status class_whole(struct translation *t)
{
    if (t->folds[t->depth])
        return refuse(t, "a class inside (?i:");
    t->at++;
    bool complement = t->pattern[t->at] == '^';
    t->at += complement;
    if (t->pattern[t->at] == ']')
        return refuse(t, "`]` as the first of a class");
    while (t->pattern[t->at] != ']') {
        if (t->pattern[t->at] == '\0')
            return refuse(t, "a class without an end");
        ZD_TRY(class_item(t));
    }
    t->at++;
    return put_class(t, complement);
}

/* ---- groups, quantifiers, literals ---- */

static enum zd_status group_open(struct translation *t)
{
    static const char *const kinds[] = {"(?:", "(?i:", "(?=", "(?!"};
    const char *pattern = (const char *)t->pattern + t->at;
    const char *kind = "(";
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        if (strncmp(pattern, kinds[k], strlen(kinds[k])) == 0)
            kind = kinds[k];
    if (pattern[1] == '*' || (pattern[1] == '?' && kind[1] == '\0'))
        return refuse(t, "a group of this kind");
    if (t->depth + 1 == (int)(sizeof t->folds / sizeof t->folds[0]))
        return refuse(t, "groups nested too deeply");
    bool folds = t->folds[t->depth] || strcmp(kind, "(?i:") == 0;
    t->folds[++t->depth] = folds;
    t->at += strlen(kind);
    return put(t, "%s", kind[1] == '\0' ? "(?:" : kind);
}

/* {n}, {n,} or {n,m}, where `+` and `?` after it are read differently. */
static enum zd_status interval(struct translation *t)
{
    const char *begin = (const char *)t->pattern + t->at;
    size_t first = strspn(begin + 1, "0123456789");
    size_t bytes = 1 + strspn(begin + 1, "0123456789,");
    if (first == 0 || begin[bytes] != '}' || begin[bytes + 1] == '?' ||
        begin[bytes + 1] == '+')
        return refuse(t, "an interval of this kind");
    byte_buffer_append(t->out, begin, bytes + 1);
    t->at += bytes + 1;
    return ZD_OK;
}

/* Inside (?i: only ASCII letters, and none of the pairs that one character
 * folds to (U+00DF, U+FB00..U+FB06): Oniguruma would match that character
 * there. */
static enum zd_status check_folded(
        struct translation *t, unsigned char before, uint32_t c)
{
    static const char *const pairs[] = {"ss", "ff", "fi", "fl", "st"};
    if (c >= 0x80)
        return refuse(t, "a letter beyond ASCII inside (?i:");
    t->folded_before = (unsigned char)tolower((int)c);
    for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++)
        if (before == pairs[p][0] && t->folded_before == pairs[p][1])
            return refuse(t, "a pair of letters with a ligature inside (?i:");
    return ZD_OK;
}

static enum zd_status literal(struct translation *t, unsigned char before)
{
    uint32_t c;
    if (take_property(t))
        return t->folds[t->depth] ? refuse(t, "a class inside (?i:")
                                  : put_class(t, false);
    ZD_TRY(take_literal(t, &c));
    if (t->folds[t->depth])
        ZD_TRY(check_folded(t, before, c));
    return put(t, "\\x{%x}", (unsigned)c);
}

static enum zd_status translate_next(struct translation *t)
{
    unsigned char next = t->pattern[t->at], before = t->folded_before;
    t->folded_before = 0;
    switch (next) {
    case '(':
        return group_open(t);
    case '[':
        return class_whole(t);
    case '{':
        return interval(t);
    case '.':
        t->at++;
        return put(t, "[^\\n]");
    case ')':
        t->depth -= t->depth > 0;
        /* fallthrough */
    case '|':
    case '*':
    case '+':
    case '?':
        t->at++;
        return put(t, "%c", next);
    case '^':
    case '$':
        return refuse(t, "an anchor");
    case ']':
    case '}':
        return refuse(t, "a bracket without its partner");
    default:
        return literal(t, before);
    }
}

static enum zd_status compile(const char *pattern, pcre2_code **code_out)
{
    int error;
    PCRE2_SIZE offset;
    uint32_t matches_empty = 0;
    ZD_SCOPED(byte_buffer_fini) struct byte_buffer out = {0};
    ZD_FREED uint8_t *class = zd_array(UNICODE_POINTS, 1);
    struct translation t = {
            .pattern = (const unsigned char *)pattern,
            .out = &out,
            .class = class};
    while (t.pattern[t.at] != '\0')
        ZD_TRY(translate_next(&t));
    byte_buffer_append(&out, "", 1);
    pcre2_code *code = pcre2_compile(
            out.data, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error, &offset, NULL);
    *code_out = code;
    if (!code) {
        PCRE2_UCHAR message[120];
        pcre2_get_error_message(error, message, sizeof message);
        return ZD_BAD(
                "E0403",
                "the pre-tokenizer's pattern does not compile: %s: `%.300s`",
                (const char *)message, pattern);
    }
    pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
    if (matches_empty)
        return ZD_BAD(
                "E0403",
                "the pre-tokenizer's pattern can match the empty string: "
                "`%.300s`",
                pattern);
    /* refused where the system allows no executable memory: then slower */
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    return ZD_OK;
}

enum zd_status splitter_add(
        struct splitter *splitter, const char *pattern, bool plain)
{
    enum split_kind kind = plain ? SPLIT_PATTERN : split_kind_of(pattern);
    struct split_stage *stage = splitter_push(splitter, kind);
    return kind == SPLIT_PATTERN ? compile(pattern, &stage->code) : ZD_OK;
}

void splitter_fini(struct splitter *splitter)
{
    for (int i = 0; i < splitter->count; i++)
        pcre2_code_free(splitter->stages[i].code);
    splitter->count = 0;
}
