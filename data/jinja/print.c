/* print.c - output, and values as str(), repr() and json.dumps() print them. */
#include "data/jinja/internal.h"

#include "base/must.h"
#include "data/tokenizer/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

/* --- marks in text, and how a rendering depends on what they stand for ---- */

enum { DIGITS = 15 };

void jinja_write_mark(size_t word, char out[JINJA_MARK_BYTES])
{
    const uint32_t characters[] = {
            (uint32_t)(0xf0000 + (word >> DIGITS)),
            (uint32_t)(0x100000 + (word & ((1u << DIGITS) - 1)))};
    for (int i = 0; i < JINJA_MARK_BYTES; i++) {
        uint32_t bits = characters[i / 4] >> (18 - 6 * (i % 4));
        out[i] = (char)(i % 4 ? 0x80 | (bits & 0x3f) : 0xf0 | bits);
    }
}

bool jinja_is_mark(const char *text, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)text;
    return bytes >= JINJA_MARK_BYTES && at[0] == 0xf3 && at[1] >= 0xb0 &&
           at[4] == 0xf4 && at[5] < 0x90;
}

size_t jinja_mark_word(const char *text)
{
    unsigned step;
    const unsigned char *at = (const unsigned char *)text;
    return (size_t)(utf8_read(at, &step) - 0xf0000) << DIGITS |
           (size_t)(utf8_read(at + 4, &step) - 0x100000);
}

const char *jinja_find_mark(const char *text, size_t bytes)
{
    const char *end = text + bytes;
    while ((text = memchr(text, 0xf3, (size_t)(end - text))) &&
           !jinja_is_mark(text, (size_t)(end - text)))
        text++;
    return text;
}

void jinja_note_look(
        struct jinja_watch *watch, struct value text, const struct value *part)
{
    if (text.kind != STRING || text.bytes == 0 || watch->depends ||
        !jinja_find_mark(text.text, text.bytes))
        return;
    if (!part || part->bytes == 0 || part->bytes > JINJA_PART_BYTES ||
        jinja_find_mark(part->text, part->bytes)) {
        watch->depends = true;
        return;
    }
    for (int i = 0; i < watch->part_count; i++)
        if (watch->parts[i].bytes == part->bytes &&
            memcmp(watch->parts[i].text, part->text, part->bytes) == 0)
            return;
    watch->depends = watch->part_count == JINJA_PARTS_MAX;
    if (watch->depends)
        return;
    struct jinja_part *kept = &watch->parts[watch->part_count++];
    kept->bytes = part->bytes;
    memcpy(kept->text, part->text, part->bytes);
}

static void note_quotes(
        struct jinja_watch *watch, struct value text, bool is_json)
{
    const char *at = text.text, *end = at + text.bytes;
    for (; (at = jinja_find_mark(at, (size_t)(end - at)));
         at += JINJA_MARK_BYTES) {
        size_t word = jinja_mark_word(at);
        watch->depends |= !is_json || word >= watch->word_count;
        if (!watch->depends)
            watch->is_quoted[word] = true;
    }
}

/* Could a word make a part occur that does not occur with the word's mark? Also
 * true if that depends on the text around the word. */
static bool touches(const struct jinja_part *part, const char *word, size_t n)
{
    const char *end = word + n;
    for (const char *at = word;
         (at = memchr(at, part->text[0], (size_t)(end - at))); at++) {
        size_t left = (size_t)(end - at);
        if (memcmp(at, part->text, left < part->bytes ? left : part->bytes) ==
            0)
            return true;
    }
    for (size_t k = 1; k < part->bytes; k++)
        if (part->text[k] == word[0] &&
            memcmp(part->text + k, word,
                   part->bytes - k < n ? part->bytes - k : n) == 0)
            return true;
    return false;
}

bool jinja_watch_allows(
        const struct jinja_watch *watch, size_t index, const char *word,
        size_t bytes)
{
    for (int i = 0; i < watch->part_count; i++)
        if (touches(&watch->parts[i], word, bytes))
            return false;
    for (size_t i = 0; watch->is_quoted[index] && i < bytes; i++)
        if ((unsigned char)word[i] < ' ' || word[i] == '"' || word[i] == '\\')
            return false;
    return !watch->depends;
}

/* --- what is written ------------------------------------------------------ */

void jinja_write(struct jinja *j, const char *text, size_t bytes)
{
    struct jinja_output *out = j->out;
    if (!jinja_charge(j, 1 + bytes / 64, bytes))
        return;
    if (out->bytes + bytes + 1 > j->out_capacity)
        ZD_GROW(out->text, j->out_capacity, out->bytes + bytes + 4096);
    memcpy(out->text + out->bytes, text, bytes);
    out->bytes += bytes;
}

size_t jinja_capture(struct jinja *j)
{
    if (j->captures++ == 0)
        j->outer_bytes = j->out->bytes;
    return j->out->bytes;
}

struct value jinja_captured(struct jinja *j, size_t since)
{
    size_t bytes = j->out->bytes - since;
    j->captures--;
    j->out->bytes = since;
    j->left.bytes += bytes;
    return jinja_copy(j, bytes ? j->out->text + since : "", bytes);
}

static void write_word(struct jinja *j, const char *text)
{
    jinja_write(j, text, strlen(text));
}

/* --- numbers -------------------------------------------------------------- */

/* Writes the fewest digits that read back exactly, in Python's layout. */
static void write_real(struct jinja *j, double value, bool is_json)
{
    char digits[40], text[64];
    int precision = 0;
    if (!isfinite(value)) {
        write_word(j, value < 0 ? "-" : "");
        write_word(
                j, isnan(value) ? is_json ? "NaN" : "nan"
                   : is_json    ? "Infinity"
                                : "inf");
        return;
    }
    do
        ZD_PRINT(digits, "%.*e", precision, value);
    while (jinja_charge(j, 10, 0) && strtod(digits, NULL) != value &&
           ++precision < 17);
    int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent < -4 || exponent >= 16)
        ZD_PRINT(text, "%.*e", precision, value);
    else
        ZD_PRINT(
                text, "%.*f", precision > exponent ? precision - exponent : 1,
                value);
    write_word(j, text);
}

/* --- str, repr and json.dumps --------------------------------------------- */

bool jinja_is_printable(uint32_t c)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return c == ' ' || (category != UTF8PROC_CATEGORY_CN &&
                        category < UTF8PROC_CATEGORY_ZS); /* not Z or C */
}

/* How quoted text spells a character; "": unchanged. */
static void escape(
        const struct style *style, char quote, uint32_t c, char out[16])
{
    static const char from[] = "\\\n\r\t\f\b", to[] = "\\nrtfb";
    const char *known = c && c < 0x80 ? strchr(from, (int)c) : NULL;
    out[0] = '\0';
    if (c == (unsigned char)quote)
        snprintf(out, 16, "\\%c", quote);
    else if (known && (style->is_json || known < from + 4))
        snprintf(out, 16, "\\%c", to[known - from]);
    else if (!style->is_json && !jinja_is_printable(c))
        snprintf(
                out, 16,
                c < 0x100     ? "\\x%02x"
                : c < 0x10000 ? "\\u%04x"
                              : "\\U%08x",
                c);
    else if (style->is_json && (c < ' ' || (style->is_ascii && c >= 0x7f)))
        snprintf(
                out, 16, c < 0x10000 ? "\\u%04x" : "\\u%04x\\u%04x",
                c < 0x10000 ? c : 0xd800 + ((c - 0x10000) >> 10),
                0xdc00 + (c & 0x3ff));
}

static void write_quoted(
        struct jinja *j, const struct style *style, struct value text)
{
    bool has_single = memchr(text.text, '\'', text.bytes) != NULL;
    bool has_double = memchr(text.text, '"', text.bytes) != NULL;
    char quote = style->is_json || (has_single && !has_double) ? '"' : '\'';
    size_t done = 0;
    unsigned length;
    if (j->watch)
        note_quotes(j->watch, text, style->is_json && !style->is_ascii);
    jinja_write(j, &quote, 1);
    for (size_t i = 0; i < text.bytes && is_ok(j); i += length) {
        char escaped[16];
        uint32_t c = jinja_character(text, i, &length);
        if (c >= ' ' && c < 0x7f && c != '\\' && c != (unsigned char)quote)
            continue;
        if (j->watch && jinja_is_mark(text.text + i, text.bytes - i)) {
            length = JINJA_MARK_BYTES;
            continue;
        }
        escape(style, quote, c, escaped);
        if (!escaped[0])
            continue;
        jinja_write(j, text.text + done, i - done);
        write_word(j, escaped);
        done = i + length;
    }
    jinja_write(j, text.text + done, text.bytes - done);
    jinja_write(j, &quote, 1);
}

static void write_break(struct jinja *j, const struct style *style)
{
    if (style->indent < 0)
        return;
    jinja_write(j, "\n", 1);
    int64_t count;
    if (__builtin_mul_overflow(style->indent, style->level, &count) ||
        !jinja_affords(j, (uint64_t)count, 1))
        count = jinja_charge(j, SIZE_MAX, 0); /* over budget */
    for (; count > 0 && is_ok(j); count--)
        jinja_write(j, " ", 1);
}

static void write_key(struct jinja *j, struct style *style, struct value key)
{
    bool is_quoted = style->is_json && key.kind != STRING;
    if (style->is_json && !is_one_of(key, NUMBERS | KIND(NONE) | KIND(STRING)))
        jinja_fail(
                j, "keys must be str, int, float, bool or None, not %s",
                jinja_type(key));
    jinja_write(j, "\"", is_quoted);
    jinja_write_styled(j, style, key);
    jinja_write(j, "\"", is_quoted);
    jinja_write_str(j, style->after_key);
}

/* Writes items or, for a mapping, pairs. */
static void write_members(
        struct jinja *j, struct style *style, struct value value,
        const char *begin, const char *end)
{
    bool has_pairs = is_one_of(value, KIND(DICT) | KIND(NAMESPACE));
    size_t count = value.items->count;
    write_word(j, begin);
    style->level++;
    for (size_t i = 0; i < count && is_ok(j); i++) {
        if (i > 0)
            jinja_write_str(j, style->between);
        write_break(j, style);
        if (has_pairs)
            write_key(j, style, value.items->at[i++]);
        jinja_write_styled(j, style, value.items->at[i]);
    }
    style->level--;
    if (count)
        write_break(j, style);
    write_word(j, end);
}

static void write_container(
        struct jinja *j, struct style *style, struct value value)
{
    bool is_json = style->is_json;
    if (value.kind == LIST || (value.kind == TUPLE && is_json))
        write_members(j, style, value, "[", "]");
    else if (value.kind == DICT)
        write_members(j, style, value, "{", "}");
    else if (is_json)
        jinja_fail(
                j, "Object of type %s is not JSON serializable",
                jinja_type(value));
    else if (value.kind == TUPLE)
        write_members(
                j, style, value, "(", value.items->count == 1 ? ",)" : ")");
    else if (value.kind == VIEW)
        write_members(j, style, value, "dict_items([", "])");
    else if (value.kind == NAMESPACE)
        write_members(j, style, value, "<Namespace {", "}>");
    else /* Python prints an address for the others */
        jinja_fail(j, "a %s cannot be printed", jinja_type(value));
}

void jinja_write_styled(
        struct jinja *j, struct style *style, struct value value)
{
    bool is_json = style->is_json;
    char text[24];
    if (!jinja_enter(j))
        return;
    switch ((enum kind)value.kind) {
    case NONE:
        write_word(j, is_json ? "null" : "None");
        break;
    case BOOL:
        ZD_PRINT(text, "%s", value.truth ? "True" : "False");
        text[0] = (char)(text[0] | (is_json ? 0x20 : 0)); /* to lower case */
        write_word(j, text);
        break;
    case INT:
        ZD_PRINT(text, "%lld", (long long)value.integer);
        write_word(j, text);
        break;
    case FLOAT:
        write_real(j, value.real, is_json);
        break;
    case STRING:
        write_word(j, value.is_safe && !is_json ? "Markup(" : "");
        write_quoted(j, style, value);
        write_word(j, value.is_safe && !is_json ? ")" : "");
        break;
    default:
        if (is_one_of(value, KIND(UNDEFINED) | KIND(ABSENT)) && !is_json)
            write_word(j, "Undefined");
        else
            write_container(j, style, value);
    }
    jinja_leave(j);
}

void jinja_write_str(struct jinja *j, struct value value)
{
    struct style repr = {
            .indent = -1,
            .between = jinja_word(", "),
            .after_key = jinja_word(": ")};
    if (value.kind == STRING)
        jinja_write(j, value.text, value.bytes);
    else if (!is_one_of(value, KIND(UNDEFINED) | KIND(ABSENT)))
        jinja_write_styled(j, &repr, value);
}

struct value jinja_str(struct jinja *j, struct value value)
{
    if (value.kind == STRING)
        return value;
    size_t mark = jinja_capture(j);
    jinja_write_str(j, value);
    return jinja_captured(j, mark);
}
