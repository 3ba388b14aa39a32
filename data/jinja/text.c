/* text.c - see text.h. */
#include "data/jinja/text.h"

#include "data/tokenizer/utf8.h"

#include <utf8proc.h>

uint32_t jinja_character(struct value text, size_t at, unsigned *bytes_out)
{
    return utf8_read((const unsigned char *)text.text + at, bytes_out);
}

bool jinja_is_space(uint32_t c)
{
    if (c < 0x80)
        return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20);
    return c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
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

/* Where characters that are none of white space begin. */
static size_t past_blanks(struct value set)
{
    unsigned bytes = 0;
    size_t at = 0;
    while (at < set.bytes && jinja_is_space(jinja_character(set, at, &bytes)))
        at += bytes;
    return at;
}

struct value jinja_stripped(
        struct jinja *j, struct value text, struct value set, bool left,
        bool right)
{
    size_t begin = 0, end = text.bytes;
    unsigned bytes;
    size_t cost = set.kind == STRING ? set.bytes : 1;
    if (set.kind == STRING && past_blanks(set) < set.bytes) {
        jinja_looks(j, text, NULL);
        jinja_looks(j, set, NULL);
    }
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

struct value jinja_in_case(
        struct jinja *j, struct value text, enum letter_case to)
{
    size_t mark = jinja_capture(j);
    unsigned length;
    jinja_looks(j, text, NULL);
    for (size_t i = 0; i < text.bytes && jinja_charge(j, 1, 0); i += length) {
        utf8proc_int32_t c =
                (utf8proc_int32_t)jinja_character(text, i, &length);
        enum letter_case way = to == CAPITAL && i > 0 ? LOWER : to;
        unsigned char bytes[4];
        if (c == 0xdf && way != LOWER) { /* the sharp s */
            jinja_write(j, way == UPPER ? "SS" : "Ss", 2);
            continue;
        }
        c = way == LOWER   ? utf8proc_tolower(c)
            : way == UPPER ? utf8proc_toupper(c)
                           : utf8proc_totitle(c);
        jinja_write(j, (const char *)bytes, utf8_write(bytes, (uint32_t)c));
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
    jinja_looks(j, text, &from);
    jinja_looks(j, from, NULL);
    for (; most != 0 && is_ok(j); most--) {
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
    return jinja_captured(j, mark);
}

struct value jinja_join_items(
        struct jinja *j, struct value separator, const struct items *items,
        bool must_be_text)
{
    size_t mark = jinja_capture(j);
    for (size_t i = 0; i < items->count && is_ok(j); i++) {
        struct value item = items->at[i];
        if (i > 0)
            jinja_write(j, separator.text, separator.bytes);
        if (must_be_text && item.kind != STRING)
            jinja_fail(
                    j, "sequence item %zu: expected str instance, %s found", i,
                    jinja_type(item));
        jinja_write_str(j, item);
    }
    return jinja_captured(j, mark);
}
