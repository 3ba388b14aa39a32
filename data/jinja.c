/* jinja.c - a template is cut into texts, expressions and statements; each
 * expression is evaluated from its source every time it is met. Values live in
 * a pool until the end: templates are small, and are rendered a few times. */
#include "data/jinja.h"

#include "base/text_stream.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { ITEMS_MAX = 4096, SCOPES_MAX = 32, DEPTH_MAX = 64, STEPS_MAX = 100000 };

enum item_kind { TEXT, OUTPUT, STATEMENT };
struct item {
    enum item_kind kind;
    const char *text; /* of a statement and an expression: without its tags */
    size_t bytes;
};

struct jinja {
    struct item *items;
    int count;
    json_t *pool;               /* owns every value */
    json_t *scopes[SCOPES_MAX]; /* owned by the pool */
    int scope_count;
    FILE *out;
    enum jinja_result result;
    char *why;
    size_t why_bytes;
    int skip;  /* above 0: parsed, not evaluated */
    int depth; /* of expressions */
    int steps;
};

static void stop(
        struct jinja *j, enum jinja_result result, const char *format, ...)
{
    va_list args;
    if (j->result != JINJA_DONE)
        return;
    j->result = result;
    va_start(args, format);
    vsnprintf(j->why, j->why_bytes, format, args);
    va_end(args);
}

static json_t *keep(struct jinja *j, json_t *value)
{
    if (value)
        json_array_append_new(j->pool, value);
    return value;
}

static json_t *text_value(struct jinja *j, const char *text, size_t bytes)
{
    return keep(j, json_stringn(text, bytes));
}

/* --- cutting ----------------------------------------------------------------
 */

static size_t blanks_before(const char *text, size_t bytes)
{
    size_t n = 0;
    while (n < bytes && isspace((unsigned char)text[bytes - 1 - n]))
        n++;
    return n;
}

/* Spaces and tabs between the begin of a line and a tag of a block. */
static size_t indent_before(const char *source, size_t at)
{
    size_t n = 0;
    while (n < at && (source[at - 1 - n] == ' ' || source[at - 1 - n] == '\t'))
        n++;
    return n == at || source[at - 1 - n] == '\n' ? n : 0;
}

static void add_item(
        struct jinja *j, enum item_kind kind, const char *text, size_t bytes)
{
    if (kind == TEXT && bytes == 0)
        return;
    if (j->count == ITEMS_MAX) {
        stop(j, JINJA_UNKNOWN, "a template of more than %d parts", ITEMS_MAX);
        return;
    }
    j->items[j->count++] = (struct item){kind, text, bytes};
}

/* The end of a tag, behind strings in it; NULL: it has none. */
static const char *tag_end(const char *at, char kind)
{
    char quote = 0;
    for (; *at; at++) {
        if (quote && *at == '\\' && at[1])
            at++;
        else if (quote)
            quote = *at == quote ? 0 : quote;
        else if (kind != '#' && (*at == '\'' || *at == '"'))
            quote = *at;
        else if (at[1] == '}' && *at == (kind == '{' ? '}' : kind))
            return at;
    }
    return NULL;
}

static void cut(struct jinja *j, const char *source)
{
    size_t bytes = strlen(source), begin = 0, at = 0;
    if (bytes && source[bytes - 1] == '\n')
        bytes--; /* Jinja takes one away */
    while (at + 1 < bytes && j->result == JINJA_DONE) {
        char kind = source[at + 1];
        if (source[at] != '{' || (kind != '{' && kind != '%' && kind != '#')) {
            at++;
            continue;
        }
        const char *inner = source + at + 2;
        const char *end = tag_end(inner, kind);
        if (!end) {
            stop(j, JINJA_UNKNOWN, "a tag without its end");
            return;
        }
        size_t text = at - begin;
        if (*inner == '-')
            text -= blanks_before(source + begin, text);
        else if (kind != '{' && *inner != '+') {
            size_t indent = indent_before(source, at);
            text -= indent < text ? indent : text;
        }
        add_item(j, TEXT, source + begin, text);
        inner += *inner == '-' || *inner == '+';
        bool strips = end > inner && end[-1] == '-';
        bool keeps = end > inner && end[-1] == '+';
        size_t length = (size_t)(end - inner) - (strips || keeps);
        if (kind != '#')
            add_item(j, kind == '{' ? OUTPUT : STATEMENT, inner, length);
        begin = (size_t)(end - source) + 2;
        if (strips)
            while (begin < bytes && isspace((unsigned char)source[begin]))
                begin++;
        else if (
                kind != '{' && !keeps && begin < bytes && source[begin] == '\n')
            begin++;
        at = begin;
    }
    if (begin < bytes)
        add_item(j, TEXT, source + begin, bytes - begin);
}

/* --- values -----------------------------------------------------------------
 */

static bool is_true(const json_t *value)
{
    switch (value ? json_typeof(value) : JSON_NULL) {
    case JSON_NULL:
    case JSON_FALSE:
        return false;
    case JSON_TRUE:
        return true;
    case JSON_STRING:
        return json_string_length(value) > 0;
    case JSON_ARRAY:
        return json_array_size(value) > 0;
    case JSON_OBJECT:
        return json_object_size(value) > 0;
    default:
        return json_number_value(value) != 0;
    }
}

static json_t *truth(bool value)
{
    return value ? json_true() : json_false();
}

/* As a template prints it; to be freed. */
static char *spell(const json_t *value)
{
    if (!value)
        return strdup("");
    if (json_is_string(value))
        return strdup(json_string_value(value));
    if (json_is_boolean(value))
        return strdup(json_is_true(value) ? "True" : "False");
    if (json_is_null(value))
        return strdup("None");
    return json_dumps(value, JSON_ENCODE_ANY);
}

static const json_t *find_variable(const struct jinja *j, const char *name)
{
    for (int i = j->scope_count - 1; i >= 0; i--) {
        const json_t *value = json_object_get(j->scopes[i], name);
        if (value)
            return value;
    }
    return NULL;
}

static void push_scope(struct jinja *j)
{
    if (j->scope_count == SCOPES_MAX) {
        stop(j, JINJA_UNKNOWN, "loops within loops");
        return;
    }
    j->scopes[j->scope_count++] = keep(j, json_object());
}

/* --- expressions ------------------------------------------------------------
 */

struct cursor {
    struct jinja *j;
    const char *at, *end;
};

enum { NAME_BYTES = 64 };

static void skip_blanks(struct cursor *c)
{
    while (c->at < c->end && isspace((unsigned char)*c->at))
        c->at++;
}

static bool take(struct cursor *c, const char *mark)
{
    size_t length = strlen(mark);
    skip_blanks(c);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, mark, length) != 0)
        return false;
    c->at += length;
    return true;
}

static void expect(struct cursor *c, const char *mark)
{
    if (!take(c, mark))
        stop(c->j, JINJA_UNKNOWN, "`%.*s`",
             (int)(c->end - c->at > 40 ? 40 : c->end - c->at), c->at);
}

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static bool take_word(struct cursor *c, const char *word)
{
    const char *before = c->at;
    if (take(c, word) && (c->at == c->end || !is_name(*c->at)))
        return true;
    c->at = before;
    return false;
}

static bool take_name(struct cursor *c, char name[NAME_BYTES])
{
    size_t length = 0;
    skip_blanks(c);
    while (c->at + length < c->end && is_name(c->at[length]))
        length++;
    if (length == 0 || length >= NAME_BYTES || isdigit((unsigned char)*c->at))
        return false;
    memcpy(name, c->at, length);
    name[length] = '\0';
    c->at += length;
    return true;
}

static const json_t *evaluate(struct cursor *c);

static const json_t *take_string(struct cursor *c)
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
    const json_t *value = text ? text_value(c->j, text, used) : NULL;
    free(text);
    return value;
}

static const json_t *take_list(struct cursor *c, const char *end)
{
    json_t *list = keep(c->j, json_array());
    while (c->j->result == JINJA_DONE && !take(c, end)) {
        const json_t *value = evaluate(c);
        json_array_append(list, value ? (json_t *)value : json_null());
        if (!take(c, ",")) {
            expect(c, end);
            break;
        }
    }
    return list;
}

static const json_t *take_mapping(struct cursor *c)
{
    json_t *object = keep(c->j, json_object());
    while (c->j->result == JINJA_DONE && !take(c, "}")) {
        const json_t *key = evaluate(c);
        expect(c, ":");
        const json_t *value = evaluate(c);
        if (json_is_string(key))
            json_object_set(
                    object, json_string_value(key),
                    value ? (json_t *)value : json_null());
        if (!take(c, ",")) {
            expect(c, "}");
            break;
        }
    }
    return object;
}

/* Arguments behind "(": values by place in `list`, by name in `names`. */
static void take_arguments(struct cursor *c, json_t *list, json_t *names)
{
    while (c->j->result == JINJA_DONE && !take(c, ")")) {
        char name[NAME_BYTES];
        const char *before = c->at;
        bool is_named = take_name(c, name) && take(c, "=") && *c->at != '=';
        if (!is_named)
            c->at = before;
        const json_t *value = evaluate(c);
        json_t *kept = value ? (json_t *)value : json_null();
        if (is_named)
            json_object_set(names, name, kept);
        else
            json_array_append(list, kept);
        if (!take(c, ",")) {
            expect(c, ")");
            break;
        }
    }
}

static const json_t *call_function(struct cursor *c, const char *name)
{
    struct jinja *j = c->j;
    json_t *list = keep(j, json_array()), *names = keep(j, json_object());
    take_arguments(c, list, names);
    if (j->skip)
        return NULL;
    if (strcmp(name, "raise_exception") == 0) {
        const char *text = json_string_value(json_array_get(list, 0));
        stop(j, JINJA_RAISED, "%.160s", text ? text : "");
        return NULL;
    }
    if (strcmp(name, "namespace") == 0)
        return names;
    if (strcmp(name, "strftime_now") == 0)
        return keep(j, json_string("01 Jan 2026"));
    if (strcmp(name, "range") == 0 && json_array_size(list) == 1) {
        json_t *range = keep(j, json_array());
        json_int_t most = json_integer_value(json_array_get(list, 0));
        for (json_int_t i = 0; i < most && i < STEPS_MAX; i++)
            json_array_append_new(range, json_integer(i));
        return range;
    }
    stop(j, JINJA_UNKNOWN, "%s()", name);
    return NULL;
}

static const json_t *stripped(
        struct jinja *j, const json_t *value, bool left, bool right,
        const char *set)
{
    const char *text = json_string_value(value);
    size_t bytes = json_string_length(value);
    while (left && bytes && strchr(set, text[0]))
        text++, bytes--;
    while (right && bytes && strchr(set, text[bytes - 1]))
        bytes--;
    return text_value(j, text, bytes);
}

static const json_t *split(struct jinja *j, const char *text, const char *mark)
{
    json_t *list = keep(j, json_array());
    const char *next;
    while (mark[0] && (next = strstr(text, mark))) {
        json_array_append_new(list, json_stringn(text, (size_t)(next - text)));
        text = next + strlen(mark);
    }
    json_array_append_new(list, json_string(text));
    return list;
}

static const json_t *replaced(
        struct jinja *j, const char *text, const char *from, const char *to)
{
    char *out = NULL;
    size_t bytes;
    FILE *stream = text_stream_open(&out, &bytes);
    const char *next;
    while (from[0] && (next = strstr(text, from))) {
        fwrite(text, 1, (size_t)(next - text), stream);
        fputs(to, stream);
        text = next + strlen(from);
    }
    fputs(text, stream);
    fclose(stream);
    const json_t *value = text_value(j, out, bytes);
    free(out);
    return value;
}

static const json_t *in_case(struct jinja *j, const json_t *value, bool upper)
{
    char *text = strdup(json_string_value(value));
    for (char *at = text; at && *at; at++)
        *at =
                (char)(upper ? toupper((unsigned char)*at)
                             : tolower((unsigned char)*at));
    const json_t *out = text ? text_value(j, text, strlen(text)) : NULL;
    free(text);
    return out;
}

static const json_t *pairs_of(struct jinja *j, const json_t *object)
{
    json_t *list = keep(j, json_array()), *value;
    const char *key;
    json_object_foreach((json_t *)object, key, value)
            json_array_append_new(list, json_pack("[s, O]", key, value));
    return list;
}

#define BLANKS " \t\n\r\v\f"

static const json_t *call_method(
        struct cursor *c, const json_t *value, const char *name)
{
    struct jinja *j = c->j;
    json_t *list = keep(j, json_array()), *names = keep(j, json_object());
    take_arguments(c, list, names);
    if (j->skip)
        return NULL;
    const char *first = json_string_value(json_array_get(list, 0));
    const char *second = json_string_value(json_array_get(list, 1));
    const char *text = json_string_value(value);
    size_t bytes = text ? strlen(text) : 0, length = first ? strlen(first) : 0;
    const char *set = first ? first : BLANKS;
    if (text && strcmp(name, "strip") == 0)
        return stripped(j, value, true, true, set);
    if (text && strcmp(name, "lstrip") == 0)
        return stripped(j, value, true, false, set);
    if (text && strcmp(name, "rstrip") == 0)
        return stripped(j, value, false, true, set);
    if (text && first && strcmp(name, "startswith") == 0)
        return truth(strncmp(text, first, length) == 0);
    if (text && first && strcmp(name, "endswith") == 0)
        return truth(
                length <= bytes && strcmp(text + bytes - length, first) == 0);
    if (text && first && strcmp(name, "split") == 0)
        return split(j, text, first);
    if (text && first && second && strcmp(name, "replace") == 0)
        return replaced(j, text, first, second);
    if (text && (strcmp(name, "upper") == 0 || strcmp(name, "lower") == 0))
        return in_case(j, value, name[0] == 'u');
    if (json_is_object(value) && strcmp(name, "items") == 0)
        return pairs_of(j, value);
    if (json_is_object(value) && first && strcmp(name, "get") == 0) {
        const json_t *found = json_object_get(value, first);
        const json_t *other = json_array_get(list, 1);
        return found ? found : other ? other : json_null();
    }
    stop(j, JINJA_UNKNOWN, ".%s()", name);
    return NULL;
}

static const json_t *item_of(
        struct jinja *j, const json_t *value, const json_t *key)
{
    if (json_is_object(value) && json_is_string(key))
        return json_object_get(value, json_string_value(key));
    if (json_is_array(value) && json_is_integer(key)) {
        json_int_t at = json_integer_value(key);
        at += at < 0 ? (json_int_t)json_array_size(value) : 0;
        return at < 0 ? NULL : json_array_get(value, (size_t)at);
    }
    if (!j->skip && !value)
        stop(j, JINJA_UNKNOWN, "an item of what is undefined");
    return NULL;
}

/* Behind "[" and, if there is one, its first value. */
static const json_t *take_slice(
        struct cursor *c, const json_t *value, const json_t *from)
{
    struct jinja *j = c->j;
    const json_t *to = NULL, *by = NULL;
    skip_blanks(c);
    if (c->at < c->end && *c->at != ']' && *c->at != ':')
        to = evaluate(c);
    if (take(c, ":") && c->at < c->end && *c->at != ']')
        by = evaluate(c);
    expect(c, "]");
    if (j->skip)
        return NULL;
    bool is_text = json_is_string(value);
    json_int_t size = is_text ? (json_int_t)json_string_length(value)
                              : (json_int_t)json_array_size(value);
    json_int_t step = by ? json_integer_value(by) : 1;
    json_int_t first = from ? json_integer_value(from) : 0;
    json_int_t last = to ? json_integer_value(to) : size;
    first += first < 0 ? size : 0;
    last += last < 0 ? size : 0;
    first = first < 0 ? 0 : first > size ? size : first;
    last = last < first ? first : last > size ? size : last;
    if (is_text && step == 1)
        return text_value(
                j, json_string_value(value) + first, (size_t)(last - first));
    if (!json_is_array(value) || (step != 1 && (step != -1 || from || to))) {
        stop(j, JINJA_UNKNOWN, "a slice");
        return NULL;
    }
    json_t *list = keep(j, json_array());
    for (json_int_t i = first; i < last; i++)
        json_array_append(
                list,
                json_array_get(value, (size_t)(step == 1 ? i : size - 1 - i)));
    return list;
}

static const json_t *apply_filter(struct cursor *c, const json_t *value)
{
    struct jinja *j = c->j;
    char name[NAME_BYTES];
    json_t *list = keep(j, json_array()), *names = keep(j, json_object());
    if (!take_name(c, name)) {
        stop(j, JINJA_UNKNOWN, "a filter without a name");
        return NULL;
    }
    if (take(c, "("))
        take_arguments(c, list, names);
    if (j->skip)
        return NULL;
    bool is_text = json_is_string(value);
    if (is_text && strcmp(name, "trim") == 0)
        return stripped(j, value, true, true, BLANKS);
    if (is_text && (strcmp(name, "upper") == 0 || strcmp(name, "lower") == 0))
        return in_case(j, value, name[0] == 'u');
    if (strcmp(name, "safe") == 0 || strcmp(name, "list") == 0)
        return value;
    if (strcmp(name, "length") == 0 || strcmp(name, "count") == 0)
        return keep(
                j,
                json_integer(
                        is_text ? (json_int_t)json_string_length(value)
                                : (json_int_t)(json_array_size(value) + json_object_size(value))));
    if (strcmp(name, "default") == 0)
        return value ? value : json_array_get(list, 0);
    if (strcmp(name, "first") == 0)
        return json_array_get(value, 0);
    if (strcmp(name, "last") == 0 && json_array_size(value) > 0)
        return json_array_get(value, json_array_size(value) - 1);
    if (json_is_object(value) && strcmp(name, "items") == 0)
        return pairs_of(j, value);
    if (strcmp(name, "string") == 0 || strcmp(name, "tojson") == 0) {
        char *text = name[0] == 's' ? spell(value)
                                    : json_dumps(value, JSON_ENCODE_ANY);
        const json_t *out = text ? text_value(j, text, strlen(text)) : NULL;
        free(text);
        return out;
    }
    stop(j, JINJA_UNKNOWN, "the filter %s", name);
    return NULL;
}

static const json_t *primary(struct cursor *c)
{
    char name[NAME_BYTES];
    skip_blanks(c);
    if (c->at == c->end) {
        stop(c->j, JINJA_UNKNOWN, "an expression that ends early");
        return NULL;
    }
    if (*c->at == '\'' || *c->at == '"')
        return take_string(c);
    if (isdigit((unsigned char)*c->at)) {
        json_int_t number = 0;
        while (c->at < c->end && isdigit((unsigned char)*c->at))
            number = number * 10 % 1000000000000 + (*c->at++ - '0');
        return keep(c->j, json_integer(number));
    }
    if (take(c, "(")) {
        const json_t *value = evaluate(c);
        expect(c, ")");
        return value;
    }
    if (take(c, "["))
        return take_list(c, "]");
    if (take(c, "{"))
        return take_mapping(c);
    if (!take_name(c, name)) {
        expect(c, "an expression");
        return NULL;
    }
    if (strcmp(name, "true") == 0 || strcmp(name, "True") == 0)
        return json_true();
    if (strcmp(name, "false") == 0 || strcmp(name, "False") == 0)
        return json_false();
    if (strcmp(name, "none") == 0 || strcmp(name, "None") == 0)
        return json_null();
    if (take(c, "("))
        return call_function(c, name);
    /* "strftime_now is defined" */
    return strcmp(name, "strftime_now") == 0 ? json_true()
                                             : find_variable(c->j, name);
}

static const json_t *postfix(struct cursor *c)
{
    const json_t *value = primary(c);
    while (c->j->result == JINJA_DONE) {
        char name[NAME_BYTES];
        if (take(c, ".")) {
            if (!take_name(c, name))
                stop(c->j, JINJA_UNKNOWN, "an attribute without a name");
            else if (take(c, "("))
                value = call_method(c, value, name);
            else
                value = item_of(c->j, value, keep(c->j, json_string(name)));
        } else if (take(c, "[")) {
            if (take(c, ":")) {
                value = take_slice(c, value, NULL);
                continue;
            }
            const json_t *key = evaluate(c);
            if (take(c, ":")) {
                value = take_slice(c, value, key);
                continue;
            }
            expect(c, "]");
            value = item_of(c->j, value, key);
        } else if (take(c, "|")) {
            value = apply_filter(c, value);
        } else {
            break;
        }
    }
    return value;
}

static const json_t *unary(struct cursor *c)
{
    if (!take(c, "-"))
        return postfix(c);
    const json_t *value = postfix(c);
    return keep(c->j, json_integer(-json_integer_value(value)));
}

static const json_t *product(struct cursor *c)
{
    const json_t *value = unary(c);
    while (c->j->result == JINJA_DONE) {
        bool is_rest = take(c, "%");
        if (!is_rest && !take(c, "*"))
            break;
        json_int_t b = json_integer_value(unary(c));
        json_int_t a = json_integer_value(value);
        value =
                keep(c->j, json_integer(
                                   !is_rest ? a * b
                                   : b      ? ((a % b) + b) % b
                                            : 0));
    }
    return value;
}

static const json_t *joined(struct cursor *c, const json_t *a, const json_t *b)
{
    char *left = spell(a), *right = spell(b), *both = NULL;
    const json_t *value = NULL;
    if (left && right && asprintf(&both, "%s%s", left, right) >= 0)
        value = text_value(c->j, both, strlen(both));
    free(left);
    free(right);
    free(both);
    return value;
}

static const json_t *sum(struct cursor *c)
{
    const json_t *value = product(c);
    while (c->j->result == JINJA_DONE) {
        char sign = take(c, "~")   ? '~'
                    : take(c, "+") ? '+'
                    : take(c, "-") ? '-'
                                   : 0;
        if (!sign)
            break;
        const json_t *other = product(c);
        bool are_numbers = json_is_integer(value) && json_is_integer(other);
        json_int_t a = json_integer_value(value), b = json_integer_value(other);
        if (sign != '~' && are_numbers)
            value = keep(c->j, json_integer(sign == '+' ? a + b : a - b));
        else if (sign == '+' && json_is_array(value) && json_is_array(other)) {
            json_t *list = keep(c->j, json_copy((json_t *)value));
            json_array_extend(list, (json_t *)other);
            value = list;
        } else if (
                sign == '~' || (json_is_string(value) && json_is_string(other)))
            value = joined(c, value, other);
        else if (!c->j->skip)
            stop(c->j, JINJA_UNKNOWN, "a sum of other things than two texts");
    }
    return value;
}

static bool is_in(const json_t *value, const json_t *where)
{
    size_t i;
    json_t *item;
    if (json_is_string(where))
        return json_is_string(value) &&
               strstr(json_string_value(where), json_string_value(value));
    if (json_is_object(where))
        return json_is_string(value) &&
               json_object_get(where, json_string_value(value));
    json_array_foreach(where, i, item) if (json_equal(item, value)) return true;
    return false;
}

static bool passes(struct cursor *c, const json_t *value)
{
    char name[NAME_BYTES];
    if (!take_name(c, name))
        name[0] = '\0';
    if (strcmp(name, "defined") == 0)
        return value != NULL;
    if (strcmp(name, "undefined") == 0)
        return value == NULL;
    if (strcmp(name, "none") == 0)
        return value && json_is_null(value);
    if (strcmp(name, "string") == 0)
        return json_is_string(value);
    if (strcmp(name, "mapping") == 0)
        return json_is_object(value);
    if (strcmp(name, "sequence") == 0 || strcmp(name, "iterable") == 0)
        return json_is_string(value) || json_is_array(value) ||
               json_is_object(value);
    if (strcmp(name, "true") == 0 || strcmp(name, "false") == 0)
        return value &&
               (name[0] == 't' ? json_is_true(value) : json_is_false(value));
    if (strcmp(name, "boolean") == 0)
        return value && json_is_boolean(value);
    if (strcmp(name, "number") == 0)
        return json_is_number(value);
    stop(c->j, JINJA_UNKNOWN, "the test %s", name);
    return false;
}

static bool are_equal(const json_t *a, const json_t *b)
{
    return a && b ? json_equal(a, b) : a == b;
}

static const json_t *comparison(struct cursor *c)
{
    const json_t *value = sum(c);
    while (c->j->result == JINJA_DONE) {
        if (take(c, "==")) {
            value = truth(are_equal(value, sum(c)));
        } else if (take(c, "!=")) {
            value = truth(!are_equal(value, sum(c)));
        } else if (take_word(c, "is")) {
            bool is_not = take_word(c, "not");
            value = truth(passes(c, value) != is_not);
        } else if (take_word(c, "in")) {
            value = truth(is_in(value, sum(c)));
        } else if (take_word(c, "not")) {
            if (!take_word(c, "in"))
                stop(c->j, JINJA_UNKNOWN, "`not` behind a value");
            value = truth(!is_in(value, sum(c)));
        } else if (
                take(c, "<=") || take(c, ">=") || take(c, "<") ||
                take(c, ">")) {
            const char *sign = c->at - 1;
            bool or_equal = *sign == '=';
            bool is_less = sign[or_equal ? -1 : 0] == '<';
            double a = json_number_value(value), b = json_number_value(sum(c));
            value =
                    truth(is_less ? a < b || (or_equal && a == b)
                                  : a > b || (or_equal && a == b));
        } else {
            break;
        }
    }
    return value;
}

static const json_t *negation(struct cursor *c)
{
    if (take_word(c, "not"))
        return truth(!is_true(negation(c)));
    return comparison(c);
}

/* The right side is evaluated only where Jinja would: it may raise. */
static const json_t *both(struct cursor *c, bool is_or)
{
    const json_t *value = is_or ? both(c, false) : negation(c);
    while (c->j->result == JINJA_DONE && take_word(c, is_or ? "or" : "and")) {
        bool is_settled = is_true(value) == is_or;
        c->j->skip += is_settled;
        const json_t *other = is_or ? both(c, false) : negation(c);
        c->j->skip -= is_settled;
        value = is_settled ? value : other;
    }
    return value;
}

/* VALUE if CONDITION else OTHER: the condition comes behind what it decides. */
static const json_t *evaluate(struct cursor *c)
{
    if (++c->j->depth > DEPTH_MAX || ++c->j->steps > STEPS_MAX)
        stop(c->j, JINJA_UNKNOWN, "an expression that is too deep or too long");
    const char *begin = c->at;
    c->j->skip++;
    both(c, true);
    const char *behind = c->at;
    bool is_choice = c->j->result == JINJA_DONE && take_word(c, "if");
    c->j->skip--;
    const json_t *value = NULL;
    if (c->j->result == JINJA_DONE && !is_choice) {
        c->at = begin;
        value = both(c, true);
    } else if (c->j->result == JINJA_DONE) {
        bool holds = is_true(both(c, true));
        const char *rest = c->at;
        struct cursor chosen = {c->j, begin, behind};
        if (holds)
            value = both(&chosen, true);
        c->at = rest;
        if (take_word(c, "else")) {
            c->j->skip += holds;
            const json_t *other = evaluate(c);
            c->j->skip -= holds;
            value = holds ? value : other;
        }
    }
    c->j->depth--;
    return value;
}

/* --- statements -------------------------------------------------------------
 */

static struct cursor cursor_of(struct jinja *j, const struct item *item)
{
    return (struct cursor){j, item->text, item->text + item->bytes};
}

static bool begins(struct jinja *j, int at, const char *word)
{
    struct cursor c = cursor_of(j, &j->items[at]);
    return j->items[at].kind == STATEMENT && take_word(&c, word);
}

/* The next elif, else or endif (endfor) of the block that begins at `at`. */
static int find_next(struct jinja *j, int at, int end)
{
    for (int i = at + 1, depth = 0; i < end; i++) {
        if (begins(j, i, "if") || begins(j, i, "for"))
            depth++;
        else if (begins(j, i, "endif") || begins(j, i, "endfor")) {
            if (depth-- == 0)
                return i;
        } else if (depth == 0 && (begins(j, i, "elif") || begins(j, i, "else")))
            return i;
    }
    stop(j, JINJA_UNKNOWN, "a block without its end");
    return end;
}

static int find_end(struct jinja *j, int at, int end)
{
    while (j->result == JINJA_DONE &&
           !begins(j, at = find_next(j, at, end), "endif") && at < end &&
           !begins(j, at, "endfor"))
        ;
    return at;
}

static void run(struct jinja *j, int from, int to);

static void run_if(struct jinja *j, int at, int end)
{
    bool is_done = false;
    while (j->result == JINJA_DONE && !begins(j, at, "endif")) {
        int next = find_next(j, at, end);
        struct cursor c = cursor_of(j, &j->items[at]);
        if (j->result != JINJA_DONE || is_done) {
            at = next;
            continue;
        }
        if (take_word(&c, "if") || take_word(&c, "elif"))
            is_done = is_true(evaluate(&c));
        else
            is_done = true; /* else */
        if (is_done)
            run(j, at + 1, next);
        at = next;
    }
}

static void bind(
        struct jinja *j, char names[2][NAME_BYTES], int count, json_t *item)
{
    json_t *scope = j->scopes[j->scope_count - 1];
    if (count == 1)
        json_object_set(scope, names[0], item);
    for (int i = 0; count == 2 && i < 2; i++) {
        json_t *part = json_array_get(item, (size_t)i);
        json_object_set(scope, names[i], part ? part : json_null());
    }
}

static void run_for(struct jinja *j, int at, int end)
{
    struct cursor c = cursor_of(j, &j->items[at]);
    char names[2][NAME_BYTES];
    int count = 1;
    take_word(&c, "for");
    bool is_good = take_name(&c, names[0]);
    if (is_good && take(&c, ","))
        is_good = take_name(&c, names[count++]);
    if (!is_good || !take_word(&c, "in"))
        stop(j, JINJA_UNKNOWN, "a loop of another form");
    const json_t *list = j->result == JINJA_DONE ? both(&c, true) : NULL;
    skip_blanks(&c);
    if (c.at < c.end)
        stop(j, JINJA_UNKNOWN, "a loop with a condition");
    if (json_is_object(list)) {
        json_t *keys = keep(j, json_array()), *value;
        const char *key;
        json_object_foreach((json_t *)list, key, value)
                json_array_append_new(keys, json_string(key));
        list = keys;
    }
    int body = find_next(j, at, end);
    size_t size = json_array_size(list);
    for (size_t i = 0; i < size && j->result == JINJA_DONE; i++) {
        push_scope(j);
        if (j->result != JINJA_DONE)
            break;
        json_t *loop = json_pack(
                "{s:I, s:I, s:b, s:b, s:I}", "index", (json_int_t)i + 1,
                "index0", (json_int_t)i, "first", i == 0, "last", i + 1 == size,
                "length", (json_int_t)size);
        if (i > 0)
            json_object_set(loop, "previtem", json_array_get(list, i - 1));
        if (i + 1 < size)
            json_object_set(loop, "nextitem", json_array_get(list, i + 1));
        json_object_set_new(j->scopes[j->scope_count - 1], "loop", loop);
        bind(j, names, count, json_array_get(list, i));
        run(j, at + 1, body);
        j->scope_count--;
    }
}

static void run_set(struct jinja *j, struct cursor *c)
{
    char name[NAME_BYTES], attribute[NAME_BYTES] = "";
    bool is_good = take_name(c, name);
    if (is_good && take(c, "."))
        is_good = take_name(c, attribute);
    if (!is_good || !take(c, "=")) {
        stop(j, JINJA_UNKNOWN, "{%% set %%} of a block");
        return;
    }
    const json_t *value = evaluate(c);
    json_t *target = attribute[0] ? (json_t *)find_variable(j, name)
                                  : j->scopes[j->scope_count - 1];
    if (j->result == JINJA_DONE)
        json_object_set(
                target, attribute[0] ? attribute : name,
                value ? (json_t *)value : json_null());
}

static void print(struct jinja *j, const struct item *item)
{
    struct cursor c = cursor_of(j, item);
    const json_t *value = evaluate(&c);
    skip_blanks(&c);
    if (c.at < c.end)
        stop(j, JINJA_UNKNOWN, "`%.*s`",
             (int)(c.end - c.at > 40 ? 40 : c.end - c.at), c.at);
    char *text = j->result == JINJA_DONE ? spell(value) : NULL;
    if (text)
        fputs(text, j->out);
    free(text);
}

static void run(struct jinja *j, int from, int to)
{
    for (int i = from; i < to && j->result == JINJA_DONE; i++) {
        const struct item *item = &j->items[i];
        struct cursor c = cursor_of(j, item);
        if (++j->steps > STEPS_MAX)
            stop(j, JINJA_UNKNOWN, "a template that takes too long");
        else if (item->kind == TEXT)
            fwrite(item->text, 1, item->bytes, j->out);
        else if (item->kind == OUTPUT)
            print(j, item);
        else if (begins(j, i, "if")) {
            run_if(j, i, to);
            i = find_end(j, i, to);
        } else if (begins(j, i, "for")) {
            run_for(j, i, to);
            i = find_end(j, i, to);
        } else if (take_word(&c, "set"))
            run_set(j, &c);
        else if (
                !take_word(&c, "generation") && !take_word(&c, "endgeneration"))
            stop(j, JINJA_UNKNOWN, "`%.*s`",
                 (int)(item->bytes > 40 ? 40 : item->bytes), item->text);
    }
}

enum jinja_result jinja_render(
        const char *source, const json_t *context, char **text_out, char *why,
        size_t why_bytes)
{
    struct jinja j = {.why = why, .why_bytes = why_bytes};
    char *text = NULL;
    size_t bytes;
    why[0] = '\0';
    j.items = calloc(ITEMS_MAX, sizeof *j.items);
    j.pool = json_array();
    j.out = text_stream_open(&text, &bytes);
    if (!j.items || !j.pool) {
        stop(&j, JINJA_UNKNOWN, "no memory");
    } else {
        j.scopes[j.scope_count++] = keep(&j, json_copy((json_t *)context));
        cut(&j, source);
        run(&j, 0, j.count);
    }
    fclose(j.out);
    json_decref(j.pool);
    free(j.items);
    if (j.result != JINJA_DONE) {
        free(text);
        return j.result;
    }
    *text_out = text;
    return JINJA_DONE;
}
