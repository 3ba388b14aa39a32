/* methods.c - methods of text and mappings; tests; functions. */
#include "data/jinja/internal.h"

#include <locale.h>
#include <time.h>

static bool need_text(struct jinja *j, struct value value)
{
    if (value.kind != STRING)
        jinja_fail(j, "a str is needed, not %s", jinja_type(value));
    return value.kind == STRING && is_ok(j);
}

/* --- methods -------------------------------------------------------------- */

static struct value strip(
        struct jinja *j, struct value self, struct value set, bool left,
        bool right)
{
    if (!is_one_of(set, KIND(ABSENT) | KIND(NONE)) && !need_text(j, set))
        return self;
    return jinja_stripped(j, self, set, left, right);
}

/* `ends` may be a tuple of them. */
static bool has_end(
        struct jinja *j, struct value text, struct value ends, bool at_begin)
{
    const struct value *end = ends.kind == TUPLE ? ends.items->at : &ends;
    size_t count = ends.kind == TUPLE ? ends.items->count : 1;
    for (; count > 0 && need_text(j, *end); count--, end++) {
        jinja_looks(j, text, end);
        jinja_looks(j, *end, NULL);
        if (jinja_read(j, end->bytes) && end->bytes <= text.bytes &&
            memcmp(at_begin ? text.text : text.text + text.bytes - end->bytes,
                   end->text, end->bytes) == 0)
            return true;
    }
    return false;
}

/* The first occurrence of a part; NULL: none. */
static const char *find(struct jinja *j, struct value text, struct value part)
{
    jinja_looks(j, text, &part);
    jinja_looks(j, part, NULL);
    return jinja_read(j, text.bytes + part.bytes)
                   ? memmem(text.text, text.bytes, part.text, part.bytes)
                   : NULL;
}

static struct value split_at_blanks(
        struct jinja *j, struct value text, int64_t most)
{
    struct value parts = jinja_list(j, LIST, 0);
    unsigned bytes;
    jinja_looks(j, text, NULL);
    for (; is_ok(j); most--) {
        size_t end = 0;
        text = jinja_stripped(j, text, jinja_absent, true, false);
        if (text.bytes == 0)
            break;
        while (end < text.bytes &&
               (most == 0 ||
                !jinja_is_space(jinja_character(text, end, &bytes))))
            end += most == 0 ? text.bytes : bytes;
        jinja_read(j, 8 * end);
        jinja_append(j, parts, jinja_part(text, 0, end));
        text = jinja_part(text, end, text.bytes);
    }
    return parts;
}

static struct value split(
        struct jinja *j, struct value self, const struct value *a)
{
    struct value parts = jinja_list(j, LIST, 0), mark = a[0];
    int64_t most = integer_or(a[1], -1);
    if (is_one_of(mark, KIND(ABSENT) | KIND(NONE)))
        return split_at_blanks(j, self, most);
    if (need_text(j, mark) && mark.bytes == 0)
        jinja_fail(j, "empty separator");
    for (; most != 0 && is_ok(j); most--) {
        const char *found = find(j, self, mark);
        if (!found)
            break;
        size_t at = (size_t)(found - self.text);
        jinja_append(j, parts, jinja_part(self, 0, at));
        self = jinja_part(self, at + mark.bytes, self.bytes);
    }
    jinja_append(j, parts, self);
    return parts;
}

/* Counted in characters; -1: not found. */
static int64_t position(struct jinja *j, struct value self, struct value part)
{
    const char *at = need_text(j, part) ? find(j, self, part) : NULL;
    jinja_read(j, self.bytes);
    jinja_looks(j, self, NULL);
    return at ? (int64_t)jinja_characters(
                        jinja_part(self, 0, (size_t)(at - self.text)))
              : -1;
}

JINJA_FUNCTION(count)
{
    int64_t count = 0;
    const char *found;
    for (size_t i = 0; self.kind != STRING && i < self.items->count; i++)
        count += jinja_equal(j, self.items->at[i], a[0]);
    if (self.kind != STRING || !need_text(j, a[0]))
        return jinja_integer(count);
    if (a[0].bytes == 0)
        return jinja_integer((int64_t)jinja_length(j, self) + 1);
    for (; (found = find(j, self, a[0])); count++)
        self = jinja_part(
                self, (size_t)(found - self.text) + a[0].bytes, self.bytes);
    return jinja_integer(count);
}

JINJA_FUNCTION(str_replace)
{
    if (!need_text(j, a[0]) || !need_text(j, a[1]))
        return self;
    return jinja_replaced(
            j, jinja_unmarked(j, self), a[0], a[1], integer_or(a[2], -1));
}

JINJA_FUNCTION(str_join)
{
    struct items items;
    return jinja_iterate(j, a[0], &items)
                   ? jinja_join_items(j, jinja_unmarked(j, self), &items, true)
                   : self;
}

JINJA_FUNCTION(dict_get)
{
    const struct value *found = jinja_find(j, self, a[0]);
    return found ? *found : a[1].kind == ABSENT ? jinja_none() : a[1];
}

#define OF_TEXT KIND(STRING)
#define OF_DICT KIND(DICT)
#define OF_ROWS (KIND(LIST) | KIND(TUPLE))
#define METHODS(X)                                                             \
    X(capitalize, "", OF_TEXT, jinja_in_case(j, self, CAPITAL))                \
    X(endswith, "suffix!", OF_TEXT,                                            \
      jinja_truth(has_end(j, self, a[0], false)))                              \
    X(find, "sub!", OF_TEXT, jinja_integer(position(j, self, a[0])))           \
    X(items, "", OF_DICT, jinja_view(j, VIEW, self, true, true))               \
    X(keys, "", OF_DICT, jinja_view(j, VIEW, self, true, false))               \
    X(lower, "", OF_TEXT, jinja_in_case(j, self, LOWER))                       \
    X(lstrip, "chars", OF_TEXT, strip(j, self, a[0], true, false))             \
    X(rstrip, "chars", OF_TEXT, strip(j, self, a[0], false, true))             \
    X(split, "sep maxsplit", OF_TEXT, split(j, self, a))                       \
    X(startswith, "prefix!", OF_TEXT,                                          \
      jinja_truth(has_end(j, self, a[0], true)))                               \
    X(strip, "chars", OF_TEXT, strip(j, self, a[0], true, true))               \
    X(upper, "", OF_TEXT, jinja_in_case(j, self, UPPER))                       \
    X(values, "", OF_DICT, jinja_view(j, VIEW, self, false, true))

METHODS(JINJA_ROW_FUNCTION)

const struct row jinja_methods[] = {
        METHODS(JINJA_ROW) /* and those above */
        {"count", count, "sub!", OF_TEXT | OF_ROWS},
        {"get", dict_get, "key! default", OF_DICT},
        {"join", str_join, "iterable!", OF_TEXT},
        {"replace", str_replace, "old! new! count", OF_TEXT},
        {0}};

/* --- tests ---------------------------------------------------------------- */

static bool leaves(
        struct jinja *j, struct value self, struct value by, int64_t rest)
{
    return jinja_equal(j, jinja_operate(j, '%', self, by), jinja_integer(rest));
}

#define IS_TEXTS (KIND(STRING) | KIND(UNDEFINED))
#define IS_CALLED                                                              \
    (KIND(MACRO) | KIND(METHOD) | KIND(FUNCTION) | KIND(UNDEFINED) | KIND(LOOP))
#define TESTS(X)                                                               \
    X(boolean, "", self.kind == BOOL)                                          \
    X(callable, "", is_one_of(self, IS_CALLED))                                \
    X(defined, "", self.kind != UNDEFINED)                                     \
    X(divisibleby, "num!", leaves(j, self, a[0], 0))                           \
    X(eq, "b!", jinja_equal(j, self, a[0]))                                    \
    X(even, "", leaves(j, self, jinja_integer(2), 0))                          \
    X(false, "", self.kind == BOOL && !self.truth)                             \
    X(float, "", self.kind == FLOAT)                                           \
    X(ge, "b!", jinja_compare(j, self, a[0], ">=") >= 0)                       \
    X(gt, "b!", jinja_compare(j, self, a[0], ">") > 0)                         \
    X(in, "seq!", jinja_is_in(j, self, a[0]))                                  \
    X(integer, "", self.kind == INT)                                           \
    X(iterable, "", is_one_of(self, IS_TEXTS | SEQUENCES | OF_DICT))           \
    X(le, "b!", jinja_compare(j, self, a[0], "<=") <= 0)                       \
    X(lt, "b!", jinja_compare(j, self, a[0], "<") < 0)                         \
    X(mapping, "", self.kind == DICT)                                          \
    X(ne, "b!", !jinja_equal(j, self, a[0]))                                   \
    X(none, "", self.kind == NONE)                                             \
    X(number, "", is_one_of(self, NUMBERS))                                    \
    X(odd, "", leaves(j, self, jinja_integer(2), 1))                           \
    X(sequence, "",                                                            \
      is_one_of(self, IS_TEXTS | KIND(LIST) | KIND(TUPLE) | OF_DICT))          \
    X(string, "", self.kind == STRING)                                         \
    X(true, "", self.kind == BOOL && self.truth)                               \
    X(undefined, "", self.kind == UNDEFINED)
#define TEST(name, parameters, truth)                                          \
    JINJA_FUNCTION(is_##name)                                                  \
    {                                                                          \
        return jinja_truth(truth);                                             \
    }
#define TEST_ROW(name, parameters, truth) {#name, is_##name, parameters, 0},

TESTS(TEST)

const struct row jinja_tests[] = {
        TESTS(TEST_ROW) /* aliases */
        {"==", is_eq, "b!", 0},
        {"equalto", is_eq, "b!", 0},
        {">=", is_ge, "b!", 0},
        {">", is_gt, "b!", 0},
        {"greaterthan", is_gt, "b!", 0},
        {"<=", is_le, "b!", 0},
        {"<", is_lt, "b!", 0},
        {"lessthan", is_lt, "b!", 0},
        {"!=", is_ne, "b!", 0},
        {0}};

/* --- functions ------------------------------------------------------------ */

JINJA_FUNCTION(raise)
{
    struct value text = jinja_str(j, a[0]);
    if (is_ok(j))
        jinja_stop(
                j, JINJA_RAISED, 0, "%.*s",
                (int)(text.bytes > INT32_MAX ? INT32_MAX : text.bytes),
                text.text);
    return text;
}

/* Jinja's sandbox limits ranges to 100,000 items. */
JINJA_FUNCTION(range)
{
    struct value list = jinja_list(j, LIST, 0);
    bool has_two = a[1].kind != ABSENT;
    int64_t step = integer_or(a[2], 1);
    int64_t at = has_two ? integer_or(a[0], 0) : 0;
    int64_t end = integer_or(a[has_two], 0);
    for (int i = 0; i < 3; i++)
        if (!is_one_of(a[i], KIND(ABSENT) | KIND(INT) | KIND(BOOL)))
            jinja_fail(
                    j, "'%s' object cannot be interpreted as an integer",
                    jinja_type(a[i]));
    if (step == 0)
        jinja_fail(j, "range() arg 3 must not be zero");
    while (is_ok(j) && (step > 0 ? at < end : at > end)) {
        if (list.items->count == 100000)
            jinja_fail(j, "Range too big: more than MAX_RANGE (100000).");
        jinja_append(j, list, jinja_integer(at));
        if (__builtin_add_overflow(at, step, &at))
            break;
    }
    return list;
}

/* Collects named arguments after the items of mappings. */
static struct value gathered(
        struct jinja *j, const struct arguments *given, enum kind kind)
{
    struct value made = jinja_list(j, kind, 2 * given->named_count);
    for (size_t i = 0; i < given->count && is_ok(j); i++) {
        struct value from = given->at[i];
        for (size_t k = 0; from.kind == DICT && k < from.items->count; k += 2)
            jinja_put(j, made, from.items->at[k], from.items->at[k + 1]);
        if (from.kind != DICT)
            jinja_unknown(j, "a mapping made of pairs is not supported");
    }
    for (size_t i = 0; i < given->named_count; i++)
        jinja_put(j, made, given->named[i].key, given->named[i].value);
    return made;
}

JINJA_FUNCTION(strftime_now)
{
    struct tm day = {0};
    jinja_looks(j, a[0], NULL);
    char format[256], text[1024];
    const char *end = strptime(j->date, "%Y-%m-%d", &day);
    if (a[0].kind != STRING || a[0].bytes >= sizeof format || !end || *end) {
        jinja_fail(j, "strftime_now() has no format, or no date");
        return a[0];
    }
    memcpy(format, a[0].text, a[0].bytes);
    format[a[0].bytes] = '\0';
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    size_t bytes = strftime_l(text, sizeof text, format, &day, c);
    freelocale(c);
    return jinja_copy(j, text, bytes);
}

#define FUNCTIONS(X)                                                           \
    X(dict, "*", 0, gathered(j, given, DICT))                                  \
    X(namespace, "*", 0, gathered(j, given, NAMESPACE))

FUNCTIONS(JINJA_ROW_FUNCTION)

const struct row jinja_functions[] = {
        FUNCTIONS(JINJA_ROW) /* and those above */
        {"raise_exception", raise, "message!", 0},
        {"range", range, "start! stop step", 0},
        {"strftime_now", strftime_now, "format!", 0},
        {0}};

/* --- looked up ------------------------------------------------------------ */

const struct row *jinja_row(
        const struct row *rows, const char *name, size_t bytes)
{
    for (; rows->name; rows++)
        if (strlen(rows->name) == bytes && memcmp(rows->name, name, bytes) == 0)
            return rows;
    return NULL;
}

const struct row *jinja_named_row(
        struct jinja *j, struct value name, bool is_test)
{
    const struct row *rows = is_test ? jinja_tests : jinja_filters;
    if (name.kind != STRING)
        name = jinja_word("of no name");
    const struct row *row = jinja_row(rows, name.text, name.bytes);
    if (!row)
        jinja_unknown(
                j, "the %s %.*s is not supported", is_test ? "test" : "filter",
                (int)(name.bytes > 60 ? 60 : name.bytes), name.text);
    return row;
}
