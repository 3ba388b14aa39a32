/* expression.c - an expression is evaluated from its source every time that it
 * is met. */
#include "data/jinja/internal.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

void jinja_blanks(struct jinja_cursor *c)
{
    while (c->at < c->end && isspace((unsigned char)*c->at))
        c->at++;
}

bool jinja_take(struct jinja_cursor *c, const char *mark)
{
    size_t length = strlen(mark);
    jinja_blanks(c);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, mark, length) != 0)
        return false;
    c->at += length;
    return true;
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
    return true;
}

static const json_t *take_string(struct jinja_cursor *c)
{
    char quote = *c->at++, *text = malloc((size_t)(c->end - c->at) + 1);
    size_t used = 0;
    while (text && c->at < c->end && *c->at != quote) {
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
    const json_t *value = text ? jinja_text(c->j, text, used) : NULL;
    free(text);
    return value;
}

static const json_t *take_list(struct jinja_cursor *c, const char *end)
{
    json_t *list = jinja_keep(c->j, json_array());
    while (c->j->result == JINJA_DONE && !jinja_take(c, end)) {
        const json_t *value = jinja_evaluate(c);
        json_array_append(list, value ? (json_t *)value : json_null());
        if (!jinja_take(c, ",")) {
            expect(c, end);
            break;
        }
    }
    return list;
}

static const json_t *take_mapping(struct jinja_cursor *c)
{
    json_t *object = jinja_keep(c->j, json_object());
    while (c->j->result == JINJA_DONE && !jinja_take(c, "}")) {
        const json_t *key = jinja_evaluate(c);
        expect(c, ":");
        const json_t *value = jinja_evaluate(c);
        if (json_is_string(key))
            json_object_set(
                    object, json_string_value(key),
                    value ? (json_t *)value : json_null());
        if (!jinja_take(c, ",")) {
            expect(c, "}");
            break;
        }
    }
    return object;
}

/* Arguments behind "(": values by place in `list`, by name in `names`. */
static void take_arguments(struct jinja_cursor *c, json_t *list, json_t *names)
{
    while (c->j->result == JINJA_DONE && !jinja_take(c, ")")) {
        char name[JINJA_NAME_BYTES];
        const char *before = c->at;
        bool is_named =
                jinja_name(c, name) && jinja_take(c, "=") && *c->at != '=';
        if (!is_named)
            c->at = before;
        const json_t *value = jinja_evaluate(c);
        json_t *kept = value ? (json_t *)value : json_null();
        if (is_named)
            json_object_set(names, name, kept);
        else
            json_array_append(list, kept);
        if (!jinja_take(c, ",")) {
            expect(c, ")");
            break;
        }
    }
}

/* NULL without evaluating where nothing is to be. */
static const json_t *function_call(struct jinja_cursor *c, const char *name)
{
    json_t *list = jinja_keep(c->j, json_array()),
           *names = jinja_keep(c->j, json_object());
    take_arguments(c, list, names);
    return c->j->skip ? NULL : jinja_function(c->j, name, list, names);
}

static const json_t *method_call(
        struct jinja_cursor *c, const json_t *value, const char *name)
{
    json_t *list = jinja_keep(c->j, json_array()),
           *names = jinja_keep(c->j, json_object());
    take_arguments(c, list, names);
    return c->j->skip ? NULL : jinja_method(c->j, value, name, list);
}

static const json_t *filtered(struct jinja_cursor *c, const json_t *value)
{
    char name[JINJA_NAME_BYTES];
    json_t *list = jinja_keep(c->j, json_array()),
           *names = jinja_keep(c->j, json_object());
    if (!jinja_name(c, name)) {
        jinja_stop(c->j, JINJA_UNKNOWN, "a filter without a name");
        return NULL;
    }
    if (jinja_take(c, "("))
        take_arguments(c, list, names);
    return c->j->skip ? NULL : jinja_filter(c->j, value, name, list);
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

static const json_t *primary(struct jinja_cursor *c)
{
    char name[JINJA_NAME_BYTES];
    jinja_blanks(c);
    if (c->at == c->end) {
        jinja_stop(c->j, JINJA_UNKNOWN, "an expression that ends early");
        return NULL;
    }
    if (*c->at == '\'' || *c->at == '"')
        return take_string(c);
    if (isdigit((unsigned char)*c->at)) {
        json_int_t number = 0;
        while (c->at < c->end && isdigit((unsigned char)*c->at)) {
            number = whole(c, '*', number, 10);
            number = whole(c, '+', number, *c->at++ - '0');
        }
        return jinja_keep(c->j, json_integer(number));
    }
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
    /* "strftime_now is defined" */
    return strcmp(name, "strftime_now") == 0 ? json_true()
                                             : jinja_find(c->j, name);
}

/* Behind "[" and, if there is one, its first value. */
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
    return c->j->skip ? NULL : jinja_sliced(c->j, value, from, to, by);
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
            else
                value = jinja_item(
                        c->j, value, jinja_keep(c->j, json_string(name)));
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
    return jinja_keep(
            c->j, json_integer(whole(c, '-', 0, json_integer_value(value))));
}

static const json_t *product(struct jinja_cursor *c)
{
    const json_t *value = unary(c);
    while (c->j->result == JINJA_DONE) {
        bool is_rest = jinja_take(c, "%");
        if (!is_rest && !jinja_take(c, "*"))
            break;
        const json_t *other = unary(c);
        json_int_t b = json_integer_value(other);
        json_int_t a = json_integer_value(value);
        bool are_numbers = json_is_integer(value) && json_is_integer(other);
        if (!c->j->skip && (!are_numbers || (is_rest && b <= 0)))
            jinja_stop(c->j, JINJA_UNKNOWN, "a product of other things");
        else if (are_numbers && is_rest && b > 0)
            value = jinja_keep(c->j, json_integer((a % b + b) % b));
        else if (are_numbers && !is_rest)
            value = jinja_keep(c->j, json_integer(whole(c, '*', a, b)));
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
        const json_t *other = product(c);
        bool are_numbers = json_is_integer(value) && json_is_integer(other);
        json_int_t a = json_integer_value(value), b = json_integer_value(other);
        if (sign != '~' && are_numbers)
            value = jinja_keep(c->j, json_integer(whole(c, sign, a, b)));
        else if (sign == '+' && json_is_array(value) && json_is_array(other)) {
            json_t *list = jinja_keep(c->j, json_copy((json_t *)value));
            json_array_extend(list, (json_t *)other);
            value = list;
        } else if (
                sign == '~' || (json_is_string(value) && json_is_string(other)))
            value = jinja_joined(c->j, value, other);
        else if (!c->j->skip)
            jinja_stop(
                    c->j, JINJA_UNKNOWN,
                    "a sum of other things than two texts");
    }
    return value;
}

static bool are_equal(const json_t *a, const json_t *b)
{
    return a && b ? json_equal(a, b) : a == b;
}

static const json_t *comparison(struct jinja_cursor *c)
{
    const json_t *value = sum(c);
    while (c->j->result == JINJA_DONE) {
        if (jinja_take(c, "==")) {
            value = jinja_truth(are_equal(value, sum(c)));
        } else if (jinja_take(c, "!=")) {
            value = jinja_truth(!are_equal(value, sum(c)));
        } else if (jinja_word(c, "is")) {
            char name[JINJA_NAME_BYTES] = "";
            bool is_not = jinja_word(c, "not");
            if (!jinja_name(c, name))
                name[0] = '\0';
            value = jinja_truth(jinja_test(c->j, value, name) != is_not);
        } else if (jinja_word(c, "in")) {
            value = jinja_truth(jinja_is_in(value, sum(c)));
        } else if (jinja_word(c, "not")) {
            if (!jinja_word(c, "in"))
                jinja_stop(c->j, JINJA_UNKNOWN, "`not` behind a value");
            value = jinja_truth(!jinja_is_in(value, sum(c)));
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
    if (jinja_word(c, "not"))
        return jinja_truth(!jinja_is_true(negation(c)));
    return comparison(c);
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

/* VALUE if CONDITION else OTHER: the condition comes behind what it decides. */
const json_t *jinja_evaluate(struct jinja_cursor *c)
{
    if (++c->j->depth > JINJA_DEPTH_MAX || ++c->j->steps > JINJA_STEPS_MAX)
        jinja_stop(
                c->j, JINJA_UNKNOWN,
                "an expression that is too deep or too long");
    const char *begin = c->at;
    c->j->skip++;
    jinja_operand(c, true);
    const char *behind = c->at;
    bool is_choice = c->j->result == JINJA_DONE && jinja_word(c, "if");
    c->j->skip--;
    const json_t *value = NULL;
    if (c->j->result == JINJA_DONE && !is_choice) {
        c->at = begin;
        value = jinja_operand(c, true);
    } else if (c->j->result == JINJA_DONE) {
        bool holds = jinja_is_true(jinja_operand(c, true));
        const char *rest = c->at;
        struct jinja_cursor chosen = {c->j, begin, behind};
        if (holds)
            value = jinja_operand(&chosen, true);
        c->at = rest;
        if (jinja_word(c, "else")) {
            c->j->skip += holds;
            const json_t *other = jinja_evaluate(c);
            c->j->skip -= holds;
            value = holds ? value : other;
        }
    }
    c->j->depth--;
    return value;
}
