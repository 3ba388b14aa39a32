/* tests.c - what may follow `is`. */
#include "data/jinja/text.h"

#include "base/must.h"

#include <utf8proc.h>

#define TEST_OF(name, truth) JINJA_RETURN(name, jinja_truth(truth))

/* Cased letters, and all of them in this case. */
static bool is_in_case(struct jinja *j, struct value self, bool is_upper)
{
    struct value text = jinja_str(j, self);
    bool has_any = false;
    unsigned bytes;
    for (size_t i = 0; i < text.bytes && jinja_charge(j, 1, 0); i += bytes) {
        utf8proc_category_t category = utf8proc_category(
                (utf8proc_int32_t)jinja_character(text, i, &bytes));
        bool upper = category == UTF8PROC_CATEGORY_LU;
        if (!upper && category != UTF8PROC_CATEGORY_LL &&
            category != UTF8PROC_CATEGORY_LT)
            continue;
        if (upper != is_upper || category == UTF8PROC_CATEGORY_LT)
            return false;
        has_any = true;
    }
    return has_any;
}

/* One thing, not two equal ones. */
static bool is_same(struct jinja *j, struct value a, struct value b)
{
    return a.kind == b.kind &&
           (a.kind <= STRING ? jinja_equal(j, a, b) : a.items == b.items);
}

static bool leaves(
        struct jinja *j, struct value self, struct value by, int64_t rest)
{
    return jinja_equal(j, jinja_operate(j, '%', self, by), jinja_integer(rest));
}

#define TEXTS (KIND(STRING) | KIND(UNDEFINED))

TEST_OF(is_odd, leaves(j, self, jinja_integer(2), 1))
TEST_OF(is_even, leaves(j, self, jinja_integer(2), 0))
TEST_OF(is_divisible, leaves(j, self, a[0], 0))
TEST_OF(is_defined, self.kind != UNDEFINED)
TEST_OF(is_undefined, self.kind == UNDEFINED)
TEST_OF(is_filter, self.kind == STRING && jinja_filter(self.text, self.bytes))
TEST_OF(is_test, self.kind == STRING && jinja_test(self.text, self.bytes))
TEST_OF(is_none, self.kind == NONE)
TEST_OF(is_boolean, self.kind == BOOL)
TEST_OF(is_false, self.kind == BOOL && !self.truth)
TEST_OF(is_true, self.kind == BOOL && self.truth)
TEST_OF(is_integer, self.kind == INT)
TEST_OF(is_float, self.kind == FLOAT)
TEST_OF(is_lower, is_in_case(j, self, false))
TEST_OF(is_upper, is_in_case(j, self, true))
TEST_OF(is_string, self.kind == STRING)
TEST_OF(is_mapping, self.kind == DICT)
TEST_OF(is_a_number, is_one_of(self, NUMBERS))
TEST_OF(is_sequence,
        is_one_of(self, TEXTS | KIND(LIST) | KIND(TUPLE) | KIND(DICT)))
TEST_OF(is_iterable,
        is_one_of(self, TEXTS | SEQUENCES | KIND(DICT) | KIND(LOOP)))
TEST_OF(is_callable, is_one_of(
                             self, KIND(MACRO) | KIND(METHOD) | KIND(FUNCTION) |
                                           KIND(UNDEFINED) | KIND(LOOP)))
TEST_OF(is_sameas, is_same(j, self, a[0]))
TEST_OF(is_escaped, self.is_safe)
TEST_OF(is_in, jinja_is_in(j, self, a[0]))
TEST_OF(is_equal, jinja_equal(j, self, a[0]))
TEST_OF(is_unequal, !jinja_equal(j, self, a[0]))
TEST_OF(is_greater, jinja_compare(j, self, a[0], ">") > 0)
TEST_OF(is_at_least, jinja_compare(j, self, a[0], ">=") >= 0)
TEST_OF(is_less, jinja_compare(j, self, a[0], "<") < 0)
TEST_OF(is_at_most, jinja_compare(j, self, a[0], "<=") <= 0)

const struct row jinja_tests[] = {
        {"boolean", is_boolean, "", 0},
        {"callable", is_callable, "", 0},
        {"defined", is_defined, "", 0},
        {"divisibleby", is_divisible, "num!", 0},
        {"eq", is_equal, "b!", 0},
        {"==", is_equal, "b!", 0},
        {"equalto", is_equal, "b!", 0},
        {"escaped", is_escaped, "", 0},
        {"even", is_even, "", 0},
        {"false", is_false, "", 0},
        {"filter", is_filter, "", 0},
        {"float", is_float, "", 0},
        {"ge", is_at_least, "b!", 0},
        {">=", is_at_least, "b!", 0},
        {"greaterthan", is_greater, "b!", 0},
        {"gt", is_greater, "b!", 0},
        {">", is_greater, "b!", 0},
        {"in", is_in, "seq!", 0},
        {"integer", is_integer, "", 0},
        {"iterable", is_iterable, "", 0},
        {"le", is_at_most, "b!", 0},
        {"<=", is_at_most, "b!", 0},
        {"lessthan", is_less, "b!", 0},
        {"lower", is_lower, "", 0},
        {"lt", is_less, "b!", 0},
        {"<", is_less, "b!", 0},
        {"mapping", is_mapping, "", 0},
        {"ne", is_unequal, "b!", 0},
        {"!=", is_unequal, "b!", 0},
        {"none", is_none, "", 0},
        {"number", is_a_number, "", 0},
        {"odd", is_odd, "", 0},
        {"sameas", is_sameas, "other!", 0},
        {"sequence", is_sequence, "", 0},
        {"string", is_string, "", 0},
        {"test", is_test, "", 0},
        {"true", is_true, "", 0},
        {"undefined", is_undefined, "", 0},
        {"upper", is_upper, "", 0},
        {0}};

const struct row *jinja_test(const char *name, size_t bytes)
{
    return jinja_row(jinja_tests, name, bytes);
}
