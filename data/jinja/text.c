/* text.c - see text.h. */
#include "data/jinja/text.h"

#include "base/must.h"
#include "data/tokenizer/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <utf8proc.h>

uint32_t jinja_character(struct value text, size_t at, unsigned *bytes_out)
{
    return utf8_read((const unsigned char *)text.text + at, bytes_out);
}

bool jinja_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 ||
           c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
           c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
           c == 0x3000;
}

/* Is the character at `at`, of so many bytes, one to strip? */
static bool is_in_set(
        struct value text, size_t at, unsigned bytes, struct value set)
{
    unsigned length;
    if (set.kind != STRING)
        return jinja_is_space(jinja_character(text, at, &length));
    for (size_t i = 0; i < set.bytes; i += length) {
        jinja_character(set, i, &length);
        if (length == bytes && memcmp(set.text + i, text.text + at, bytes) == 0)
            return true;
    }
    return false;
}

struct value jinja_stripped(
        struct jinja *j, struct value text, struct value set, bool left,
        bool right)
{
    size_t begin = 0, end = text.bytes;
    unsigned bytes;
    size_t cost = set.kind == STRING ? set.bytes : 1;
    while (left && begin < end && jinja_charge(j, 1 + cost / 16, 0)) {
        jinja_character(text, begin, &bytes);
        if (!is_in_set(text, begin, bytes, set))
            break;
        begin += bytes;
    }
    while (right && begin < end && jinja_charge(j, 1 + cost / 16, 0)) {
        size_t at = utf8_before((const unsigned char *)text.text, end);
        if (!is_in_set(text, at, (unsigned)(end - at), set))
            break;
        end = at;
    }
    return jinja_part(text, begin, end);
}

static void write_character(struct jinja *j, uint32_t c)
{
    unsigned char bytes[4];
    jinja_write(j, (const char *)bytes, utf8_write(bytes, c));
}

static bool is_cased(uint32_t c)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category == UTF8PROC_CATEGORY_LU ||
           category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT;
}

/* One character in lower or upper case; the sharp s has two in upper case. */
static void write_in_case(struct jinja *j, uint32_t c, enum letter_case to)
{
    if (c == 0xdf && to != LOWER)
        jinja_write(j, to == UPPER ? "SS" : "Ss", 2);
    else
        write_character(
                j, (uint32_t)(to == LOWER
                                      ? utf8proc_tolower((utf8proc_int32_t)c)
                              : to == UPPER
                                      ? utf8proc_toupper((utf8proc_int32_t)c)
                                      : utf8proc_totitle((utf8proc_int32_t)c)));
}

struct value jinja_in_case(
        struct jinja *j, struct value text, enum letter_case to)
{
    size_t mark = jinja_capture(j);
    bool after_letter = false;
    unsigned bytes;
    for (size_t i = 0; i < text.bytes && jinja_charge(j, 1, 0); i += bytes) {
        uint32_t c = jinja_character(text, i, &bytes);
        bool is_first = to == TITLE ? !after_letter : i == 0;
        enum letter_case way =
                to == TITLE || to == CAPITAL ? (is_first ? TITLE : LOWER) : to;
        write_in_case(j, c, way);
        after_letter = is_cased(c);
    }
    struct value made = jinja_captured(j, mark);
    made.is_safe = text.is_safe;
    return made;
}

struct value jinja_replaced(
        struct jinja *j, struct value text, struct value from, struct value to,
        int64_t most)
{
    size_t done = 0, at = 0, mark = jinja_capture(j);
    unsigned bytes = 0;
    for (; most != 0 && j->result == JINJA_DONE; most--) {
        const char *found = from.bytes ? memmem(text.text + at, text.bytes - at,
                                                from.text, from.bytes)
                                       : text.text + at;
        if (!found || !jinja_charge(j, 1, 0))
            break;
        at = (size_t)(found - text.text);
        jinja_write(j, text.text + done, at - done);
        jinja_write(j, to.text, to.bytes);
        done = at += from.bytes;
        if (from.bytes)
            continue;
        if (at >= text.bytes) /* "" is also at the end, once */
            break;
        jinja_character(text, at, &bytes);
        jinja_write(j, text.text + at, bytes);
        done = at += bytes;
    }
    jinja_write(j, text.text + done, text.bytes - done);
    struct value made = jinja_captured(j, mark);
    made.is_safe = text.is_safe;
    return made;
}

static bool is_line_end(uint32_t c)
{
    return (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 ||
           c == 0x2028 || c == 0x2029;
}

struct value jinja_lines(struct jinja *j, struct value text, bool keeps_ends)
{
    struct value lines = jinja_list(j, LIST, 0);
    size_t begin = 0;
    unsigned bytes;
    jinja_read(j, 8 * text.bytes);
    for (size_t i = 0; i < text.bytes && j->result == JINJA_DONE;) {
        uint32_t c = jinja_character(text, i, &bytes);
        size_t end = i;
        i += bytes;
        if (!is_line_end(c))
            continue;
        i += c == '\r' && i < text.bytes && text.text[i] == '\n';
        jinja_append(j, lines, jinja_part(text, begin, keeps_ends ? i : end));
        begin = i;
    }
    if (begin < text.bytes)
        jinja_append(j, lines, jinja_part(text, begin, text.bytes));
    return lines;
}

struct value jinja_join_items(
        struct jinja *j, struct value separator, const struct items *items,
        bool must_be_text)
{
    size_t mark = jinja_capture(j);
    for (size_t i = 0; i < items->count && j->result == JINJA_DONE; i++) {
        struct value item = items->at[i];
        if (i > 0)
            jinja_write(j, separator.text, separator.bytes);
        if (must_be_text && item.kind != STRING)
            jinja_fail(
                    j, "sequence item %zu: expected str instance, %s found", i,
                    jinja_type(item));
        if (must_be_text && separator.is_safe)
            item = jinja_escaped(j, item);
        jinja_write_str(j, item);
    }
    struct value made = jinja_captured(j, mark);
    made.is_safe = must_be_text && separator.is_safe;
    return made;
}

void jinja_pad(struct jinja *j, struct value with, int64_t count)
{
    if (count <= 0 || !jinja_affords(j, (uint64_t)count, with.bytes))
        return;
    for (; count > 0 && j->result == JINJA_DONE; count--)
        jinja_write(j, with.text, with.bytes);
}

/* Stripped, without underscores; false: too long for a number. */
static bool digits_of(struct value text, char out[512])
{
    size_t used = 0;
    struct jinja scratch = {.left = {.steps = 4096 + text.bytes}};
    text = jinja_stripped(&scratch, text, jinja_absent, true, true);
    for (size_t i = 0; i < text.bytes; i++) {
        bool is_between = i > 0 && i + 1 < text.bytes &&
                          isalnum((unsigned char)text.text[i - 1]) &&
                          isalnum((unsigned char)text.text[i + 1]);
        if (used == 511 || !text.text[i] ||
            isspace((unsigned char)text.text[i]) ||
            (text.text[i] == '_' && !is_between))
            return false;
        if (text.text[i] != '_')
            out[used++] = text.text[i];
    }
    out[used] = '\0';
    return used > 0;
}

bool jinja_parse_integer(struct value text, int base, int64_t *out)
{
    char digits[512], *end;
    errno = 0;
    if (!digits_of(text, digits))
        return false;
    const char *first = digits + strspn(digits, "+-");
    if (base == 10 && strspn(first, "0123456789") != strlen(first))
        return false;
    *out = strtoll(digits, &end, base);
    return !*end && !errno;
}

bool jinja_parse_real(struct value text, double *out)
{
    char digits[512], *end;
    if (!digits_of(text, digits) || strpbrk(digits, "xXpP("))
        return false;
    *out = strtod(digits, &end);
    return !*end;
}
