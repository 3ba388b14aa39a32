/* filters.c - filters for values, sequences and mappings. */
#include "data/jinja/internal.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define ROWS    (KIND(LIST) | KIND(TUPLE))
#define NOTHING (KIND(ABSENT) | KIND(NONE))

/* --- of single values ----------------------------------------------------- */

JINJA_FUNCTION(do_default)
{
    bool is_missing = self.kind == UNDEFINED ||
                      (jinja_is_true(a[1]) && !jinja_is_true(self));
    return is_missing ? text_or(a[0], "") : self;
}

JINJA_FUNCTION(do_safe)
{
    self = jinja_str(j, self);
    self.is_safe = self.kind == STRING;
    return self;
}

JINJA_FUNCTION(do_replace)
{
    struct value text = jinja_str(j, self);
    text.is_safe = false;
    return jinja_replaced(
            j, text, jinja_str(j, a[0]), jinja_str(j, a[1]),
            integer_or(a[2], -1));
}

/* By default leaves blank lines and the first line unchanged. */
JINJA_FUNCTION(do_indent)
{
    struct value text = jinja_str(j, self);
    bool is_text = a[0].kind == STRING;
    struct value pad = is_text ? a[0] : jinja_word(" ");
    int64_t width = is_text ? 1 : integer_or(a[0], 4);
    const char *at = text.text, *end = text.text + text.bytes;
    const struct value breaks[] = {jinja_word("\n"), jinja_word("\r")};
    size_t mark = jinja_capture(j);
    jinja_looks(j, text, &breaks[0]);
    jinja_looks(j, text, &breaks[1]);
    if (memchr(text.text, '\r', text.bytes))
        jinja_unknown(j, "indent() of text with carriage returns");
    for (bool begins = true, more = true; more && is_ok(j); begins = false) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        more = line_end != NULL;
        line_end = more ? line_end + 1 : end;
        bool blank = at == end || *at == '\n';
        bool pads =
                begins ? jinja_is_true(a[1]) : !blank || jinja_is_true(a[2]);
        for (int64_t i = 0; pads && i < width && is_ok(j); i++)
            jinja_write_str(j, pad);
        jinja_write(j, at, (size_t)(line_end - at));
        at = line_end;
    }
    return jinja_captured(j, mark);
}

JINJA_FUNCTION(do_tojson)
{
    struct style style = {
            .is_json = true,
            .is_ascii = jinja_is_true(a[0]),
            .indent = integer_or(a[1], -1),
            .between = jinja_word(is_one_of(a[1], NOTHING) ? ", " : ","),
            .after_key = jinja_word(": ")};
    if (is_one_of(a[2], ROWS) && a[2].items->count == 2) {
        style.between = a[2].items->at[0];
        style.after_key = a[2].items->at[1];
    }
    if (!is_one_of(a[1], NOTHING) && style.indent < 0)
        jinja_unknown(j, "tojson() with an indent that is no number from 0");
    if (jinja_is_true(a[3]))
        jinja_unknown(j, "tojson() that sorts keys is not supported");
    size_t mark = jinja_capture(j);
    jinja_write_styled(j, &style, self);
    return jinja_captured(j, mark);
}

/* Text that is not a number gives `other`. */
static struct value whole_of_text(
        struct jinja *j, struct value text, struct value other)
{
    char digits[64], *end;
    jinja_looks(j, text, NULL);
    text = jinja_stripped(j, text, jinja_absent, true, true);
    if (text.bytes >= sizeof digits || memchr(text.text, '_', text.bytes)) {
        jinja_unknown(j, "int() of a long text, or one with _");
        return other;
    }
    memcpy(digits, text.text, text.bytes);
    digits[text.bytes] = '\0';
    if (!text.bytes || strspn(digits, "+-.0123456789eE") != text.bytes)
        return other;
    errno = 0;
    int64_t whole = strtoll(digits, &end, 10);
    if (!*end && !errno)
        return jinja_integer(whole);
    double real = strtod(digits, &end);
    return *end ? other : jinja_real(real);
}

JINJA_FUNCTION(do_int)
{
    struct value other = a[0].kind == ABSENT ? jinja_integer(0) : a[0];
    if (self.kind == UNDEFINED)
        jinja_use_undefined(j, self);
    if (self.kind == STRING)
        self = whole_of_text(j, self, other);
    if (self.kind == BOOL)
        return jinja_integer(self.truth);
    if (self.kind != FLOAT)
        return self.kind == INT ? self : other;
    if (!isfinite(self.real))
        return other;
    if (fabs(self.real) < 9.2e18)
        return jinja_integer((int64_t)self.real);
    jinja_unknown(j, "a whole number of over 64 bits is not supported");
    return other;
}

/* --- of sequences and mappings -------------------------------------------- */

/* item.a.b for the attribute "a.b"; an undefined attribute becomes `other`,
 * unless that is absent or None. */
static struct value attribute_of(
        struct jinja *j, struct value item, struct value by, struct value other)
{
    if (by.kind != STRING)
        return is_one_of(by, NOTHING) ? item : jinja_item(j, item, by);
    for (size_t at = 0; at <= by.bytes && jinja_charge(j, 1, 0);) {
        const char *dot = memchr(by.text + at, '.', by.bytes - at);
        size_t end = dot ? (size_t)(dot - by.text) : by.bytes;
        item = jinja_item(j, item, jinja_part(by, at, end));
        if (at < end && isdigit((unsigned char)by.text[at]))
            jinja_unknown(j, "an index in an attribute is not supported");
        if (item.kind == UNDEFINED && !is_one_of(other, NOTHING))
            item = other;
        at = end + 1;
    }
    return item;
}

JINJA_FUNCTION(do_items)
{
    if (self.kind != DICT && self.kind != UNDEFINED)
        jinja_fail(j, "Can only get item pairs from a mapping.");
    return self.kind == DICT ? jinja_view(j, GENERATOR, self, true, true)
                             : jinja_list(j, GENERATOR, 0);
}

JINJA_FUNCTION(do_list)
{
    struct items items;
    struct value list = jinja_list(j, LIST, 0);
    if (jinja_iterate(j, self, &items))
        *list.items = (struct items){.at = items.at, .count = items.count};
    return list;
}

static struct value end_of(struct jinja *j, struct value self, bool is_last)
{
    struct items items;
    if (is_last && self.kind == GENERATOR)
        jinja_fail(j, "'generator' object is not reversible");
    if (jinja_iterate(j, self, &items) && items.count)
        return items.at[is_last ? items.count - 1 : 0];
    return jinja_undefined(
            jinja_word("No such item, sequence was empty."), UNDEFINED);
}

JINJA_FUNCTION(do_reverse)
{
    const struct value back[3] = {{0}, {0}, {.kind = INT, .integer = -1}};
    if (self.kind == STRING)
        return jinja_sliced(j, self, back);
    self = jinja_sliced(j, do_list(j, self, a, given), back);
    self.kind = self.kind == LIST ? GENERATOR : self.kind;
    return self;
}

JINJA_FUNCTION(do_join)
{
    struct items items;
    struct value list = jinja_list(j, LIST, 0);
    if (!jinja_iterate(j, self, &items))
        return self;
    for (size_t i = 0; i < items.count && is_ok(j); i++)
        jinja_append(j, list, attribute_of(j, items.at[i], a[1], jinja_absent));
    return jinja_join_items(
            j, jinja_str(j, text_or(a[0], "")), list.items, false);
}

JINJA_FUNCTION(do_map)
{
    const struct value *by = jinja_named(given, "attribute", 9);
    const struct value *other = jinja_named(given, "default", 7);
    struct value list = jinja_list(j, GENERATOR, 0), item;
    struct arguments rest = *given;
    const struct row *row = NULL;
    struct items items;
    if (!jinja_is_true(self))
        return list;
    if (given->count == 0 && !by)
        jinja_fail(j, "map requires a filter argument");
    else if (given->count > 0)
        row = jinja_named_row(j, *rest.at++, false), rest.count--;
    jinja_iterate(j, self, &items);
    for (size_t i = 0; i < items.count && is_ok(j); i++) {
        item = row ? jinja_call_row(j, row, items.at[i], &rest)
                   : attribute_of(
                             j, items.at[i], *by,
                             other ? *other : jinja_absent);
        jinja_append(j, list, item);
    }
    return list;
}

/* The items which, or whose attribute, pass a test (or fail it). */
static struct value selected(
        struct jinja *j, struct value self, const struct arguments *given,
        bool by_attribute, bool passes)
{
    struct value list = jinja_list(j, GENERATOR, 0), by = jinja_absent;
    struct arguments rest = *given;
    const struct row *row = NULL;
    struct items items;
    if (!jinja_is_true(self))
        return list;
    if (by_attribute && rest.count == 0)
        jinja_fail(j, "Missing parameter for attribute name");
    else if (by_attribute)
        by = *rest.at++, rest.count--;
    if (rest.count > 0)
        row = jinja_named_row(j, *rest.at++, true), rest.count--;
    if (!jinja_iterate(j, self, &items))
        return list;
    for (size_t i = 0; i < items.count && is_ok(j); i++) {
        struct value part = attribute_of(j, items.at[i], by, jinja_absent);
        if (row && is_ok(j))
            part = jinja_call_row(j, row, part, &rest);
        if (jinja_is_true(part) == passes)
            jinja_append(j, list, items.at[i]);
    }
    return list;
}

/* --- order ---------------------------------------------------------------- */

struct keyed {
    struct value key, item;
    size_t at;
};

struct order {
    struct jinja *j;
    bool is_reverse;
};

/* Keeps the order of equal keys. */
static int compare(const void *a, const void *b, void *order)
{
    const struct keyed *left = a, *right = b;
    const struct order *by = order;
    int sign = jinja_equal(by->j, left->key, right->key)
                       ? 0
                       : jinja_compare(by->j, left->key, right->key, "<");
    sign = by->is_reverse ? -sign : sign;
    return sign ? sign : (left->at > right->at) - (left->at < right->at);
}

/* The items sorted by an attribute; may ignore case. */
static struct value sorted(
        struct jinja *j, const struct items *items, struct value by,
        struct value is_sensitive, struct value is_reverse)
{
    size_t count = items->count;
    struct value list = jinja_list(j, LIST, count);
    struct order order = {j, jinja_is_true(is_reverse)};
    if (!jinja_charge(j, 20 * count, 0) ||
        !jinja_affords(j, count, sizeof(struct keyed)))
        return list;
    struct keyed *all = jinja_alloc(j, count * sizeof *all);
    for (size_t i = 0; i < count; i++) {
        struct value key = attribute_of(j, items->at[i], by, jinja_absent);
        if (key.kind == STRING && !jinja_is_true(is_sensitive))
            key = jinja_in_case(j, key, LOWER);
        all[i] = (struct keyed){key, items->at[i], i};
    }
    qsort_r(all, count, sizeof *all, compare, &order);
    for (size_t i = 0; i < count; i++)
        jinja_append(j, list, all[i].item);
    return list;
}

JINJA_FUNCTION(do_sort)
{
    struct items items;
    if (!jinja_iterate(j, self, &items))
        return self;
    if (a[2].kind == STRING && memchr(a[2].text, ',', a[2].bytes))
        jinja_unknown(j, "sort() by several attributes is not supported");
    return sorted(j, &items, a[2], a[1], a[0]);
}

JINJA_FUNCTION(do_dictsort)
{
    bool by_value = jinja_is_text(a[1], "value");
    if (!by_value && !jinja_is_text(text_or(a[1], "key"), "key"))
        jinja_fail(j, "You can only sort by either \"key\" or \"value\"");
    struct value pairs = jinja_view(j, LIST, self, true, true);
    return sorted(j, pairs.items, jinja_integer(by_value), a[0], a[2]);
}

/* --- the table ------------------------------------------------------------ */

#define FILTERS(X)                                                             \
    X(abs, "", NUMBERS,                                                        \
      jinja_compare(j, self, jinja_integer(0), "<") < 0                        \
              ? jinja_operate(j, '-', jinja_integer(0), self)                  \
              : jinja_operate(j, '+', jinja_integer(0), self))                 \
    X(capitalize, "", 0, jinja_in_case(j, jinja_str(j, self), CAPITAL))        \
    X(first, "", 0, end_of(j, self, false))                                    \
    X(last, "", 0, end_of(j, self, true))                                      \
    X(length, "", 0, jinja_integer((int64_t)jinja_length(j, self)))            \
    X(lower, "", 0, jinja_in_case(j, jinja_str(j, self), LOWER))               \
    X(reject, "*", 0, selected(j, self, given, false, false))                  \
    X(rejectattr, "*", 0, selected(j, self, given, true, false))               \
    X(select, "*", 0, selected(j, self, given, false, true))                   \
    X(selectattr, "*", 0, selected(j, self, given, true, true))                \
    X(string, "", 0, jinja_str(j, self))                                       \
    X(title, "", 0, jinja_in_case(j, jinja_str(j, self), TITLE))               \
    X(trim, "chars", 0,                                                        \
      jinja_stripped(j, jinja_str(j, self), a[0], true, true))                 \
    X(upper, "", 0, jinja_in_case(j, jinja_str(j, self), UPPER))

FILTERS(JINJA_ROW_FUNCTION)

const struct row jinja_filters[] = {
        FILTERS(JINJA_ROW) /* and those above */
        {"count", row_length, "", 0},
        {"d", do_default, "default_value boolean", 0},
        {"default", do_default, "default_value boolean", 0},
        {"dictsort", do_dictsort, "case_sensitive by reverse", KIND(DICT)},
        {"indent", do_indent, "width first blank", 0},
        {"int", do_int, "default", 0},
        {"items", do_items, "", 0},
        {"join", do_join, "d attribute", 0},
        {"list", do_list, "", 0},
        {"map", do_map, "*", 0},
        {"replace", do_replace, "old! new! count", 0},
        {"reverse", do_reverse, "", 0},
        {"safe", do_safe, "", 0},
        {"sort", do_sort, "reverse case_sensitive attribute", 0},
        {"tojson", do_tojson, "ensure_ascii indent separators sort_keys", 0},
        {0}};
