/* pattern.c - pre-tokenizer patterns written for Oniguruma, the
 * reference's engine, in PCRE2.
 *
 * Only what means the same in both is taken, everything else is refused by
 * name: literals, `.`, classes of literals and of \p{L} \P{L} \p{N} \P{N} \s
 * \S, groups,
 * (?i:ASCII letters), lookahead, alternatives, quantifiers. The six escapes are
 * written out as ranges of code points, so that neither engine's Unicode
 * version matters. */
#include "data/tokenizer/tokenizer_internal.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/utf8.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct translation {
    const unsigned char *pattern;
    size_t at;
    struct byte_buffer out;
    bool folds[64];        /* by group: inside (?i: */
    bool quantifiable[64]; /* a lookahead is not */
    int depth;
    bool has_atom;               /* a quantifier may follow */
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
    byte_buffer_append(&t->out, text, (size_t)bytes);
    return ZD_OK;
}

static enum zd_status refuse(const struct translation *t, const char *why)
{
    return ZD_FAIL(
            ZD_ERR_DATA, "E0403",
            "the pre-tokenizer's pattern is not supported: %s at byte %zu of "
            "`%.300s`",
            why, t->at, (const char *)t->pattern);
}

/* ---- classes ---- */

/* A table of code points, or all that are not in it. */
struct property {
    const char *name;
    const struct unicode_table *table;
    bool complement;
};

static enum zd_status put_property(
        struct translation *t, const struct property *property)
{
    const struct unicode_table *table = property->table;
    uint32_t begin = 0;
    for (int r = 0; r < table->count; r++) {
        struct unicode_range range = table->ranges[r];
        if (!property->complement)
            ZD_TRY(put(t, "\\x{%x}-\\x{%x}", range.begin, range.end));
        else if (begin < range.begin)
            ZD_TRY(put(t, "\\x{%x}-\\x{%x}", begin, range.begin - 1));
        begin = range.end + 1;
    }
    if (!property->complement || begin == UNICODE_POINTS)
        return ZD_OK;
    return put(t, "\\x{%x}-\\x{%x}", begin, UNICODE_POINTS - 1u);
}

/* \p{L} and its like at t->at, which moves past it; NULL: none there. */
static const struct property *take_property(struct translation *t)
{
    static const struct property known[] = {
            {"\\p{L}", &unicode_letters, false},
            {"\\P{L}", &unicode_letters, true},
            {"\\p{N}", &unicode_numbers, false},
            {"\\P{N}", &unicode_numbers, true},
            {"\\s", &unicode_spaces, false},
            {"\\S", &unicode_spaces, true},
    };
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
        size_t bytes = strlen(known[k].name);
        if (strncmp((const char *)t->pattern + t->at, known[k].name, bytes))
            continue;
        t->at += bytes;
        return &known[k];
    }
    return NULL;
}

/* One literal character, escaped or not, at t->at. */
static enum zd_status take_literal(struct translation *t, uint32_t *c_out)
{
    unsigned step;
    unsigned char next = t->pattern[t->at + 1];
    if (t->pattern[t->at] != '\\') {
        *c_out = utf8_read(t->pattern + t->at, &step);
        t->at += step;
        return ZD_OK;
    }
    switch (next) {
    case 'r':
        *c_out = '\r';
        break;
    case 'n':
        *c_out = '\n';
        break;
    case 't':
        *c_out = '\t';
        break;
    case 'f':
        *c_out = '\f';
        break;
    default:
        if (next >= 0x80 || !ispunct(next))
            return refuse(t, "an escape");
        *c_out = next;
    }
    t->at += 2;
    return ZD_OK;
}

static enum zd_status class_item(struct translation *t)
{
    const struct property *property = take_property(t);
    uint32_t first, last;
    if (property)
        return put_property(t, property);
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
    return put(t, "\\x{%x}-\\x{%x}", (unsigned)first, (unsigned)last);
}

static enum zd_status class_whole(struct translation *t)
{
    if (t->folds[t->depth])
        return refuse(t, "a class inside (?i:");
    t->at++;
    ZD_TRY(put(t, "["));
    if (t->pattern[t->at] == '^') {
        t->at++;
        ZD_TRY(put(t, "^"));
    }
    if (t->pattern[t->at] == ']')
        return refuse(t, "`]` as the first of a class");
    while (t->pattern[t->at] != ']') {
        if (t->pattern[t->at] == '\0')
            return refuse(t, "a class without an end");
        ZD_TRY(class_item(t));
    }
    t->at++;
    t->has_atom = true;
    return put(t, "]");
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
    t->depth++;
    t->folds[t->depth] = folds;
    t->quantifiable[t->depth] =
            kind[1] == '\0' || kind[2] == ':' || kind[2] == 'i';
    t->at += strlen(kind);
    t->has_atom = false;
    t->folded_before = 0;
    return put(t, "%s", kind[1] == '\0' ? "(?:" : kind);
}

static enum zd_status group_close(struct translation *t)
{
    if (t->depth == 0)
        return refuse(t, "`)` without `(`");
    t->has_atom = t->quantifiable[t->depth];
    t->depth--;
    t->at++;
    t->folded_before = 0;
    return put(t, ")");
}

/* {n}, {n,} or {n,m} */
static enum zd_status interval(struct translation *t)
{
    enum { MOST = 1000 };
    const char *begin = (const char *)t->pattern + t->at;
    char *end;
    if (!isdigit((unsigned char)begin[1]))
        return refuse(t, "`{` that begins no interval");
    unsigned long low = strtoul(begin + 1, &end, 10), high = low;
    if (*end == ',' && end[1] == '}')
        end++;
    else if (*end == ',' && isdigit((unsigned char)end[1]))
        high = strtoul(end + 1, &end, 10);
    if (*end != '}' || low > high || high > MOST)
        return refuse(t, "an interval");
    end++;
    if (*end == '?' || *end == '+')
        return refuse(t, "a lazy or possessive interval");
    t->at += (size_t)(end - begin);
    byte_buffer_append(&t->out, begin, (size_t)(end - begin));
    return ZD_OK;
}

static enum zd_status quantifier(struct translation *t)
{
    if (!t->has_atom)
        return refuse(t, "a quantifier with nothing to repeat");
    t->has_atom = false;
    t->folded_before = 0;
    if (t->pattern[t->at] == '{')
        return interval(t);
    ZD_TRY(put(t, "%c", t->pattern[t->at++]));
    if (t->pattern[t->at] == '?' || t->pattern[t->at] == '+')
        ZD_TRY(put(t, "%c", t->pattern[t->at++]));
    return ZD_OK;
}

/* Inside (?i: only ASCII letters, and none of the pairs that one character
 * folds to (U+00DF, U+FB00..U+FB06): Oniguruma would match that character
 * there. */
static enum zd_status check_folded(struct translation *t, uint32_t c)
{
    static const char *const pairs[] = {"ss", "ff", "fi", "fl", "st"};
    if (c >= 0x80)
        return refuse(t, "a letter beyond ASCII inside (?i:");
    unsigned char lower = (unsigned char)tolower((int)c);
    for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++)
        if (t->folded_before == pairs[p][0] && lower == pairs[p][1])
            return refuse(t, "a pair of letters with a ligature inside (?i:");
    t->folded_before = lower;
    return ZD_OK;
}

static enum zd_status literal(struct translation *t)
{
    const struct property *property = take_property(t);
    uint32_t c;
    t->has_atom = true;
    if (property) {
        if (t->folds[t->depth])
            return refuse(t, "a class inside (?i:");
        ZD_TRY(put(t, "["));
        ZD_TRY(put_property(t, property));
        return put(t, "]");
    }
    ZD_TRY(take_literal(t, &c));
    if (t->folds[t->depth])
        ZD_TRY(check_folded(t, c));
    return put(t, "\\x{%x}", (unsigned)c);
}

static enum zd_status translate_next(struct translation *t)
{
    switch (t->pattern[t->at]) {
    case '(':
        return group_open(t);
    case ')':
        return group_close(t);
    case '[':
        return class_whole(t);
    case '|':
        t->has_atom = false;
        t->folded_before = 0;
        t->at++;
        return put(t, "|");
    case '.':
        t->has_atom = true;
        t->folded_before = 0;
        t->at++;
        return put(t, "[^\\n]");
    case '*':
    case '+':
    case '?':
    case '{':
        return quantifier(t);
    case '^':
    case '$':
        return refuse(t, "an anchor");
    case ']':
    case '}':
        return refuse(t, "a bracket without its partner");
    default:
        return literal(t);
    }
}

/* Rewrite a pattern of Hugging Face's engine for PCRE2, its classes written
 * out. The caller frees *out. */
static enum zd_status split_translate(const char *pattern, char **out)
{
    struct translation t = {.pattern = (const unsigned char *)pattern};
    enum zd_status status = ZD_OK;
    while (t.pattern[t.at] != '\0' && status == ZD_OK)
        status = translate_next(&t);
    if (status == ZD_OK && t.depth > 0)
        status = refuse(&t, "`(` without `)`");
    byte_buffer_append(&t.out, "", 1);
    *out = (char *)t.out.data;
    return status;
}

static enum zd_status compile(struct splitter *splitter, const char *pattern)
{
    int error;
    PCRE2_SIZE offset;
    uint32_t matches_empty = 0;
    char *translated;
    enum zd_status status = split_translate(pattern, &translated);
    if (status != ZD_OK) {
        free(translated);
        return status;
    }
    splitter->code = pcre2_compile(
            (PCRE2_SPTR)translated, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error,
            &offset, NULL);
    free(translated);
    if (!splitter->code) {
        PCRE2_UCHAR message[120];
        pcre2_get_error_message(error, message, sizeof message);
        return ZD_FAIL(
                ZD_ERR_DATA, "E0403",
                "the pre-tokenizer's pattern does not compile: %s: `%.300s`",
                (const char *)message, pattern);
    }
    pcre2_pattern_info(splitter->code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
    if (matches_empty)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0403",
                "the pre-tokenizer's pattern can match the empty string: "
                "`%.300s`",
                pattern);
    /* refused where the system allows no executable memory: then slower */
    pcre2_jit_compile(splitter->code, PCRE2_JIT_COMPLETE);
    return ZD_OK;
}

enum zd_status splitter_init(
        struct splitter *splitter, const char *pattern, bool plain)
{
    static const struct {
        const char *pattern;
        enum split_kind kind;
    } known[] = {
            {split_pattern_gpt2, SPLIT_GPT2},
            {split_pattern_llama3, SPLIT_LLAMA3},
            {split_pattern_qwen2, SPLIT_QWEN2},
    };
    *splitter = (struct splitter){.kind = SPLIT_WHOLE};
    if (!pattern)
        return ZD_OK;
    for (size_t k = 0; k < sizeof known / sizeof known[0] && !plain; k++)
        if (strcmp(pattern, known[k].pattern) == 0)
            splitter->kind = known[k].kind;
    if (splitter->kind != SPLIT_WHOLE)
        return ZD_OK;
    splitter->kind = SPLIT_PATTERN;
    return compile(splitter, pattern);
}

void splitter_fini(struct splitter *splitter)
{
    if (splitter->code)
        pcre2_code_free(splitter->code);
    splitter->code = NULL;
}
