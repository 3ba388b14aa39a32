/* expression.c - an expression is evaluated from its source every time that it
 * is met. */
#include "data/jinja/internal.h"

#include "base/must.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

void jinja_blanks(struct jinja_cursor *c)
{
    const char *begin = c->at;
    while (c->at < c->end && isspace((unsigned char)*c->at))
        c->at++;
    if (c->at > begin)
        jinja_read(c->j, (size_t)(c->at - begin));
}

bool jinja_take(struct jinja_cursor *c, const char *mark)
{
    size_t length = strlen(mark);
    jinja_blanks(c);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, mark, length) != 0)
        return false;
    c->at += length;
    return jinja_charge(c->j, 1, 0);
}

static void expect(struct jinja_cursor *c, const char *mark)
{
    if (!jinja_take(c, mark))
        jinja_stop(
                c->j, JINJA_UNKNOWN, "`%.*s`",
                (int)(c->end - c->at > 40 ? 40 : c->end - c->at), c->at);
}

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

bool jinja_word(struct jinja_cursor *c, const char *word)
{
    jinja_blanks(c);
    const char *before = c->at;
    if (jinja_take(c, word) && (c->at == c->end || !is_name(*c->at)))
        return true;
    c->at = before;
    return false;
}

bool jinja_name(struct jinja_cursor *c, char name[JINJA_NAME_BYTES])
{
    size_t length = 0;
    jinja_blanks(c);
    while (c->at + length < c->end && is_name(c->at[length]))
        length++;
    if (length == 0 || length >= JINJA_NAME_BYTES ||
        isdigit((unsigned char)*c->at))
        return false;
    memcpy(name, c->at, length);
    name[length] = '\0';
    c->at += length;
    return jinja_charge(c->j, 1, 0);
}

static const json_t *take_string(struct jinja_cursor *c)
{
    char quote = *c->at++;
    size_t bytes = 0, used = 0;
    while (bytes < (size_t)(c->end - c->at) && c->at[bytes] != quote)
        bytes += 1 + (c->at[bytes] == '\\');
    if (bytes > (size_t)(c->end - c->at))
        bytes = (size_t)(c->end - c->at);
    if (!jinja_read(c->j, bytes))
        return NULL;
    if (c->j->skip) {
        c->at += bytes + (c->at + bytes < c->end);
        return NULL;
    }
    char *text = zd_must(malloc(bytes + 1));
    while (c->at < c->end && *c->at != quote) {
        if (*c->at == '\\' && c->at + 1 < c->end) {
            c->at++;
            text[used++] = *c->at == 'n'   ? '\n'
                           : *c->at == 't' ? '\t'
                           : *c->at == 'r' ? '\r'
                                           : *c->at;
            c->at++;
        } else {
            text[used++] = *c->at++;
        }
    }
    c->at += c->at < c->end;
    const json_t *value = jinja_text(c->j, text, used);
    free(text);
    return value;
}

static const json_t *take_list(struct jinja_cursor *c, const char *end)
{
    json_t *list = c->j->skip ? NULL : jinja_list(c->j);
    while (c->j->result == JINJA_DONE && !jinja_take(c, end)) {
        jinja_append(c->j, list, jinja_evaluate(c));
        if (!jinja_take(c, ",")) {
            expect(c, end);
            break;
        }
    }
    return list;
}

static const json_t *take_mapping(struct jinja_cursor *c)
{
    json_t *object = c->j->skip ? NULL : jinja_mapping(c->j);
    while (c->j->result == JINJA_DONE && !jinja_take(c, "}")) {
        const json_t *key = jinja_evaluate(c);
        expect(c, ":");
        const json_t *value = jinja_evaluate(c);
        if (json_is_string(key))
            jinja_put(c->j, object, json_string_value(key), value);
        if (!jinja_take(c, ",")) {
            expect(c, "}");
            break;
        }
    }
    return object;
}

struct arguments {
    json_t *list, *names; /* by position, by name; NULL where skipped */
};

/* After "(". */
static struct arguments take_arguments(struct jinja_cursor *c)
{
    json_t *list = c->j->skip ? NULL : jinja_list(c->j);
    json_t *names = c->j->skip ? NULL : jinja_mapping(c->j);
    while (c->j->result == JINJA_DONE && !jinja_take(c, ")")) {
        char name[JINJA_NAME_BYTES];
        const char *before = c->at;
        bool is_named =
                jinja_name(c, name) && jinja_take(c, "=") && *c->at != '=';
        if (!is_named)
            c->at = before;
        const json_t *value = jinja_evaluate(c);
        if (is_named)
            jinja_put(c->j, names, name, value);
        else
            jinja_append(c->j, list, value);
        if (!jinja_take(c, ",")) {
            expect(c, ")");
            break;
        }
    }
    return (struct arguments){list, names};
}

/* Nothing is called while skipping, or once stopped. */
static bool calls(const struct jinja *j)
{
    return !j->skip && j->result == JINJA_DONE;
}

static const json_t *function_call(struct jinja_cursor *c, const char *name)
{
    struct arguments given = take_arguments(c);
    return calls(c->j) ? jinja_function(c->j, name, given.list, given.names)
                       : NULL;
}

static const json_t *method_call(
        struct jinja_cursor *c, const json_t *value, const char *name)
{
    struct arguments given = take_arguments(c);
    return calls(c->j) ? jinja_method(c->j, value, name, given.list) : NULL;
}

static const json_t *filtered(struct jinja_cursor *c, const json_t *value)
{
    char name[JINJA_NAME_BYTES];
    struct arguments given = {NULL, NULL};
    if (!jinja_name(c, name)) {
        jinja_stop(c->j, JINJA_UNKNOWN, "a filter without a name");
        return NULL;
    }
    if (jinja_take(c, "("))
        given = take_arguments(c);
    return calls(c->j) ? jinja_filter(c->j, value, name, given.list) : NULL;
}

/* Python's whole numbers have no end, ours have. */
static json_int_t whole(
        struct jinja_cursor *c, char sign, json_int_t a, json_int_t b)
{
    json_int_t out = 0;
    bool is_over = sign == '*'   ? __builtin_mul_overflow(a, b, &out)
                   : sign == '+' ? __builtin_add_overflow(a, b, &out)
                                 : __builtin_sub_overflow(a, b, &out);
    if (is_over)
        jinja_stop(c->j, JINJA_UNKNOWN, "a whole number of over 64 bits");
    return out;
}

static json_t *number_of(struct jinja_cursor *c, json_int_t number)
{
    return jinja_charge(c->j, 1, 0) ? jinja_keep(c->j, json_integer(number))
                                    : NULL;
}

static const json_t *take_number(struct jinja_cursor *c)
{
    json_int_t number = 0;
    const char *begin = c->at;
    while (c->at < c->end && isdigit((unsigned char)*c->at)) {
        number = whole(c, '*', number, 10);
        number = whole(c, '+', number, *c->at++ - '0');
    }
    if (!jinja_read(c->j, (size_t)(c->at - begin)) || c->j->skip)
        return NULL;
    return number_of(c, number);
}

/* A namespace is none: it can only have its parts read, or be tested. */
static const json_t *variable(struct jinja_cursor *c, const char *name)
{
    bool is_namespace;
    if (c->j->skip)
        return NULL;
    const json_t *value = jinja_find(c->j, name, &is_namespace);
    struct jinja_cursor next = *c;
    if (is_namespace && !jinja_take(&next, ".") && !jinja_take(&next, "[") &&
        !jinja_word(&next, "is"))
        jinja_stop(c->j, JINJA_UNKNOWN, "the namespace %s as a value", name);
    return value;
}

static const json_t *primary(struct jinja_cursor *c)
{
    char name[JINJA_NAME_BYTES];
    if (c->j->result != JINJA_DONE)
        return NULL;
    jinja_blanks(c);
    if (c->at == c->end) {
        jinja_stop(c->j, JINJA_UNKNOWN, "an expression that ends early");
        return NULL;
    }
    if (*c->at == '\'' || *c->at == '"')
        return take_string(c);
    if (isdigit((unsigned char)*c->at))
        return take_number(c);
    if (jinja_take(c, "(")) {
        const json_t *value = jinja_evaluate(c);
        expect(c, ")");
        return value;
    }
    if (jinja_take(c, "["))
        return take_list(c, "]");
    if (jinja_take(c, "{"))
        return take_mapping(c);
    if (!jinja_name(c, name)) {
        expect(c, "an expression");
        return NULL;
    }
    if (strcmp(name, "true") == 0 || strcmp(name, "True") == 0)
        return json_true();
    if (strcmp(name, "false") == 0 || strcmp(name, "False") == 0)
        return json_false();
    if (strcmp(name, "none") == 0 || strcmp(name, "None") == 0)
        return json_null();
    if (jinja_take(c, "("))
        return function_call(c, name);
    return variable(c, name);
}

/* After "[" and, if there is one, its first value. */
static const json_t *take_slice(
        struct jinja_cursor *c, const json_t *value, const json_t *from)
{
    const json_t *to = NULL, *by = NULL;
    jinja_blanks(c);
    if (c->at < c->end && *c->at != ']' && *c->at != ':')
        to = jinja_evaluate(c);
    if (jinja_take(c, ":") && c->at < c->end && *c->at != ']')
        by = jinja_evaluate(c);
    expect(c, "]");
    return calls(c->j) ? jinja_sliced(c->j, value, from, to, by) : NULL;
}

static const json_t *postfix(struct jinja_cursor *c)
{
    const json_t *value = primary(c);
    while (c->j->result == JINJA_DONE) {
        char name[JINJA_NAME_BYTES];
        if (jinja_take(c, ".")) {
            if (!jinja_name(c, name))
                jinja_stop(c->j, JINJA_UNKNOWN, "an attribute without a name");
            else if (jinja_take(c, "("))
                value = method_call(c, value, name);
            else if (calls(c->j))
                value = jinja_item(
                        c->j, value, jinja_text(c->j, name, strlen(name)));
        } else if (jinja_take(c, "[")) {
            if (jinja_take(c, ":")) {
                value = take_slice(c, value, NULL);
                continue;
            }
            const json_t *key = jinja_evaluate(c);
            if (jinja_take(c, ":")) {
                value = take_slice(c, value, key);
                continue;
            }
            expect(c, "]");
            value = jinja_item(c->j, value, key);
        } else if (jinja_take(c, "|")) {
            value = filtered(c, value);
        } else {
            break;
        }
    }
    return value;
}

static const json_t *unary(struct jinja_cursor *c)
{
    if (!jinja_take(c, "-"))
        return postfix(c);
    const json_t *value = postfix(c);
    return calls(c->j)
                   ? number_of(c, whole(c, '-', 0, json_integer_value(value)))
                   : NULL;
}

static void add_items(struct jinja *j, json_t *list, const json_t *items)
{
    size_t i;
    json_t *item;
    json_array_foreach(items, i, item)
    {
        if (j->result != JINJA_DONE)
            break;
        jinja_append(j, list, item);
    }
}

/* value SIGN other; skipped, it is nothing. */
static const json_t *combined(
        struct jinja_cursor *c, char sign, const json_t *value,
        const json_t *other)
{
    json_int_t a = json_integer_value(value), b = json_integer_value(other);
    if (!calls(c->j))
        return value;
    if (sign == '~' ||
        (sign == '+' && json_is_string(value) && json_is_string(other)))
        return jinja_joined(c->j, value, other);
    if (sign == '+' && json_is_array(value) && json_is_array(other)) {
        json_t *list = jinja_list(c->j);
        add_items(c->j, list, value);
        add_items(c->j, list, other);
        return list;
    }
    bool are_numbers = json_is_integer(value) && json_is_integer(other);
    if (are_numbers && sign == '%' && b > 0)
        return number_of(c, (a % b + b) % b);
    if (are_numbers && sign != '%')
        return number_of(c, whole(c, sign, a, b));
    jinja_stop(
            c->j, JINJA_UNKNOWN,
            sign == '+' || sign == '-' ? "a sum of other things than two texts"
                                       : "a product of other things");
    return value;
}

static const json_t *product(struct jinja_cursor *c)
{
    const json_t *value = unary(c);
    while (c->j->result == JINJA_DONE) {
        char sign = jinja_take(c, "%") ? '%' : jinja_take(c, "*") ? '*' : 0;
        if (!sign)
            break;
        value = combined(c, sign, value, unary(c));
    }
    return value;
}

static const json_t *sum(struct jinja_cursor *c)
{
    const json_t *value = product(c);
    while (c->j->result == JINJA_DONE) {
        char sign = jinja_take(c, "~")   ? '~'
                    : jinja_take(c, "+") ? '+'
                    : jinja_take(c, "-") ? '-'
                                         : 0;
        if (!sign)
            break;
        value = combined(c, sign, value, product(c));
    }
    return value;
}

static const json_t *comparison(struct jinja_cursor *c)
{
    const json_t *value = sum(c);
    while (c->j->result == JINJA_DONE) {
        if (jinja_take(c, "==")) {
            value = jinja_truth(jinja_equal(c->j, value, sum(c)));
        } else if (jinja_take(c, "!=")) {
            value = jinja_truth(!jinja_equal(c->j, value, sum(c)));
        } else if (jinja_word(c, "is")) {
            char name[JINJA_NAME_BYTES] = "";
            bool is_not = jinja_word(c, "not");
            if (!jinja_name(c, name))
                name[0] = '\0';
            value = jinja_truth(jinja_test(c->j, value, name) != is_not);
        } else if (jinja_word(c, "in")) {
            value = jinja_truth(jinja_is_in(c->j, value, sum(c)));
        } else if (jinja_word(c, "not")) {
            if (!jinja_word(c, "in"))
                jinja_stop(c->j, JINJA_UNKNOWN, "`not` after a value");
            value = jinja_truth(!jinja_is_in(c->j, value, sum(c)));
        } else if (
                jinja_take(c, "<=") || jinja_take(c, ">=") ||
                jinja_take(c, "<") || jinja_take(c, ">")) {
            const char *sign = c->at - 1;
            bool or_equal = *sign == '=';
            bool is_less = sign[or_equal ? -1 : 0] == '<';
            double a = json_number_value(value), b = json_number_value(sum(c));
            value = jinja_truth(
                    is_less ? a < b || (or_equal && a == b)
                            : a > b || (or_equal && a == b));
        } else {
            break;
        }
    }
    return value;
}

static const json_t *negation(struct jinja_cursor *c)
{
    size_t count = 0;
    while (jinja_word(c, "not"))
        count++;
    const json_t *value = comparison(c);
    return count ? jinja_truth(jinja_is_true(value) == (count % 2 == 0))
                 : value;
}

/* The right side is evaluated only where Jinja would: it may raise. */
const json_t *jinja_operand(struct jinja_cursor *c, bool is_or)
{
    const json_t *value = is_or ? jinja_operand(c, false) : negation(c);
    while (c->j->result == JINJA_DONE && jinja_word(c, is_or ? "or" : "and")) {
        bool is_settled = jinja_is_true(value) == is_or;
        c->j->skip += is_settled;
        const json_t *other = is_or ? jinja_operand(c, false) : negation(c);
        c->j->skip -= is_settled;
        value = is_settled ? value : other;
    }
    return value;
}

/* VALUE if CONDITION else OTHER: the condition comes after what it decides, so
 * an expression is skipped once to see whether there is one. */
const json_t *jinja_evaluate(struct jinja_cursor *c)
{
    struct jinja *j = c->j;
    const json_t *value = NULL;
    if (!jinja_enter(j))
        return NULL;
    const char *begin = c->at;
    j->skip++;
    jinja_operand(c, true);
    const char *after = c->at;
    bool is_choice = jinja_word(c, "if");
    j->skip--;
    if (j->result == JINJA_DONE && is_choice) {
        bool holds = jinja_is_true(jinja_operand(c, true));
        const char *rest = c->at;
        struct jinja_cursor chosen = {j, begin, after};
        if (holds && !j->skip)
            value = jinja_operand(&chosen, true);
        c->at = rest;
        if (jinja_word(c, "else")) {
            j->skip += holds;
            const json_t *other = jinja_evaluate(c);
            j->skip -= holds;
            value = holds ? value : other;
        }
    } else if (!j->skip) {
        c->at = begin;
        value = jinja_operand(c, true);
    }
    jinja_leave(j);
    return value;
}
