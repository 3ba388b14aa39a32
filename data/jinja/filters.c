/* filters.c - filters of single values; those of sequences are in lists.c. */
#include "data/jinja/text.h"

#include "base/must.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

JINJA_FUNCTION(do_default)
{
    bool is_missing = self.kind == UNDEFINED ||
                      (jinja_is_true(a[1]) && !jinja_is_true(self));
    return is_missing ? text_or(a[0], "") : self;
}

JINJA_RETURN(do_string, jinja_str(j, self))

JINJA_FUNCTION(do_safe)
{
    self = jinja_str(j, self);
    self.is_safe = self.kind == STRING;
    return self;
}

JINJA_RETURN(do_escape, jinja_escaped(j, self))
JINJA_RETURN(do_length, jinja_integer((int64_t)jinja_length(j, self)))
JINJA_RETURN(do_trim, jinja_stripped(j, jinja_str(j, self), a[0], true, true))
JINJA_RETURN(do_upper, jinja_in_case(j, jinja_str(j, self), UPPER))
JINJA_RETURN(do_lower, jinja_in_case(j, jinja_str(j, self), LOWER))
JINJA_RETURN(do_capitalize, jinja_in_case(j, jinja_str(j, self), CAPITAL))

/* Words begin after blanks, hyphens and opening brackets, as Jinja has it. */
JINJA_FUNCTION(do_title)
{
    struct value text = jinja_str(j, self);
    size_t mark = jinja_capture(j), begin = 0;
    for (size_t i = 0; i <= text.bytes && j->result == JINJA_DONE; i++) {
        unsigned bytes = 0, first = 0;
        if (i < text.bytes && (text.text[i] & 0xc0) == 0x80)
            continue;
        uint32_t c = i < text.bytes ? jinja_character(text, i, &bytes) : ' ';
        bool is_end =
                jinja_is_space(c) || (c && c < 0x80 && strchr("-({[<", (int)c));
        if (!is_end)
            continue;
        if (i > begin)
            jinja_character(text, begin, &first);
        jinja_write_str(
                j, jinja_in_case(
                           j, jinja_part(text, begin, begin + first), UPPER));
        jinja_write_str(
                j, jinja_in_case(j, jinja_part(text, begin + first, i), LOWER));
        jinja_write(j, text.text + i, bytes);
        begin = i + bytes;
    }
    return jinja_captured(j, mark);
}

JINJA_FUNCTION(do_replace)
{
    struct value text = jinja_str(j, self);
    text.is_safe = false;
    return jinja_replaced(
            j, text, jinja_str(j, a[0]), jinja_str(j, a[1]),
            integer_or(a[2], -1));
}

JINJA_FUNCTION(do_tojson)
{
    struct json_style style = {
            .ascii = jinja_is_true(a[0]),
            .indent = a[1].kind == ABSENT ? jinja_none() : a[1],
            .item_separator = jinja_word(", "),
            .key_separator = jinja_word(": "),
            .sorts = jinja_is_true(a[3])};
    if (style.indent.kind != NONE)
        style.item_separator = jinja_word(",");
    if (is_one_of(a[2], KIND(LIST) | KIND(TUPLE)) && a[2].items->count == 2) {
        style.item_separator = a[2].items->at[0];
        style.key_separator = a[2].items->at[1];
    }
    if (style.indent.kind == BOOL)
        style.indent = jinja_integer(style.indent.truth);
    if (!is_one_of(style.indent, KIND(NONE) | KIND(INT) | KIND(STRING)))
        jinja_fail(j, "tojson() has an indent that is no number");
    return jinja_json(j, self, &style);
}

JINJA_FUNCTION(do_indent)
{
    bool is_text = a[0].kind == STRING;
    int64_t width = integer_or(a[0], 4);
    struct value lines = jinja_lines(j, jinja_str(j, self), false);
    struct items *items = lines.items;
    bool ends = self.kind == STRING && self.bytes > 0 &&
                self.text[self.bytes - 1] == '\n';
    size_t mark = jinja_capture(j);
    if (self.kind != STRING)
        jinja_fail(j, "indent() of a value of type %s", jinja_type(self));
    if (ends || items->count == 0) /* as if one more line end came after it */
        jinja_append(j, lines, jinja_slice("", 0));
    for (size_t i = 0; i < items->count && j->result == JINJA_DONE; i++) {
        bool is_indented =
                i == 0 ? jinja_is_true(a[1])
                       : items->at[i].bytes > 0 || jinja_is_true(a[2]);
        if (i > 0)
            jinja_write(j, "\n", 1);
        if (is_indented && is_text)
            jinja_write_str(j, a[0]);
        else if (is_indented)
            jinja_pad(j, jinja_word(" "), width);
        jinja_write_str(j, items->at[i]);
    }
    return jinja_captured(j, mark);
}

JINJA_FUNCTION(do_int)
{
    int64_t out;
    double real;
    struct value other = a[0].kind == ABSENT ? jinja_integer(0) : a[0];
    if (is_one_of(self, KIND(INT) | KIND(BOOL)))
        return jinja_integer(integer_or(self, 0));
    if (self.kind == STRING &&
        jinja_parse_integer(self, (int)integer_or(a[1], 10), &out))
        return jinja_integer(out);
    if (self.kind == UNDEFINED)
        jinja_use_undefined(j, self);
    if (self.kind == FLOAT)
        real = self.real;
    else if (self.kind != STRING || !jinja_parse_real(self, &real))
        return other;
    if (isfinite(real) && fabs(real) >= 9.2e18)
        jinja_unknown(j, "a whole number of over 64 bits is not supported");
    return isfinite(real) && fabs(real) < 9.2e18 ? jinja_integer((int64_t)real)
                                                 : other;
}

JINJA_FUNCTION(do_float)
{
    double real;
    if (self.kind == UNDEFINED)
        jinja_use_undefined(j, self);
    if (self.kind == STRING && jinja_parse_real(self, &real))
        return jinja_real(real);
    if (is_one_of(self, NUMBERS))
        return self.kind == FLOAT ? self
                                  : jinja_real((double)integer_or(self, 0));
    return a[0].kind == ABSENT ? jinja_real(0) : a[0];
}

JINJA_FUNCTION(do_abs)
{
    if (self.kind == FLOAT)
        return jinja_real(fabs(self.real));
    int64_t whole = integer_or(self, 0);
    return whole < 0 ? jinja_operate(j, '-', jinja_integer(0), self)
                     : jinja_integer(whole);
}

const struct row jinja_filters[] = {
        {"abs", do_abs, "", NUMBERS},
        {"capitalize", do_capitalize, "", 0},
        {"count", do_length, "", 0},
        {"d", do_default, "default_value boolean", 0},
        {"default", do_default, "default_value boolean", 0},
        {"e", do_escape, "", 0},
        {"escape", do_escape, "", 0},
        {"float", do_float, "default", 0},
        {"indent", do_indent, "width first blank", 0},
        {"int", do_int, "default base", 0},
        {"length", do_length, "", 0},
        {"lower", do_lower, "", 0},
        {"replace", do_replace, "old! new! count", 0},
        {"safe", do_safe, "", 0},
        {"string", do_string, "", 0},
        {"title", do_title, "", 0},
        {"tojson", do_tojson, "ensure_ascii indent separators sort_keys", 0},
        {"trim", do_trim, "chars", 0},
        {"upper", do_upper, "", 0},
        {0}};

const struct row *jinja_row(
        const struct row *rows, const char *name, size_t bytes)
{
    for (; rows->name; rows++)
        if (strlen(rows->name) == bytes && memcmp(rows->name, name, bytes) == 0)
            return rows;
    return NULL;
}

const struct row *jinja_filter(const char *name, size_t bytes)
{
    const struct row *row = jinja_row(jinja_filters, name, bytes);
    return row ? row : jinja_row(jinja_list_filters, name, bytes);
}

const struct row *jinja_named_row(
        struct jinja *j, struct value name, bool is_test)
{
    const struct row *row = NULL;
    if (name.kind == STRING)
        row = is_test ? jinja_test(name.text, name.bytes)
                      : jinja_filter(name.text, name.bytes);
    else
        name = jinja_word("of no name");
    if (!row)
        jinja_unknown(
                j, "the %s %.*s is not supported", is_test ? "test" : "filter",
                (int)(name.bytes > 60 ? 60 : name.bytes), name.text);
    return row;
}
