/* value.c - values: JSON's, in a pool until the end. Templates are small, and
 * are rendered a few times. */
#include "data/jinja/internal.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void jinja_stop(
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

json_t *jinja_keep(struct jinja *j, json_t *value)
{
    if (value)
        json_array_append_new(j->pool, value);
    return value;
}

json_t *jinja_text(struct jinja *j, const char *text, size_t bytes)
{
    return jinja_keep(j, json_stringn(text, bytes));
}

bool jinja_is_true(const json_t *value)
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

json_t *jinja_truth(bool value)
{
    return value ? json_true() : json_false();
}

char *jinja_spell(const json_t *value)
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

const json_t *jinja_joined(struct jinja *j, const json_t *a, const json_t *b)
{
    char *left = jinja_spell(a), *right = jinja_spell(b), *both = NULL;
    const json_t *value = NULL;
    if (left && right && asprintf(&both, "%s%s", left, right) >= 0)
        value = jinja_text(j, both, strlen(both));
    free(left);
    free(right);
    free(both);
    return value;
}

const json_t *jinja_find(const struct jinja *j, const char *name)
{
    for (int i = j->scope_count - 1; i >= 0; i--) {
        const json_t *value = json_object_get(j->scopes[i], name);
        if (value)
            return value;
    }
    return NULL;
}

void jinja_push(struct jinja *j)
{
    if (j->scope_count == JINJA_SCOPES_MAX) {
        jinja_stop(j, JINJA_UNKNOWN, "loops within loops");
        return;
    }
    j->scopes[j->scope_count++] = jinja_keep(j, json_object());
}

const json_t *jinja_item(
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
        jinja_stop(j, JINJA_UNKNOWN, "an item of what is undefined");
    return NULL;
}

const json_t *jinja_sliced(
        struct jinja *j, const json_t *value, const json_t *from,
        const json_t *to, const json_t *by)
{
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
        return jinja_text(
                j, json_string_value(value) + first, (size_t)(last - first));
    if (!json_is_array(value) || (step != 1 && (step != -1 || from || to))) {
        jinja_stop(j, JINJA_UNKNOWN, "a slice");
        return NULL;
    }
    json_t *list = jinja_keep(j, json_array());
    for (json_int_t i = first; i < last; i++)
        json_array_append(
                list,
                json_array_get(value, (size_t)(step == 1 ? i : size - 1 - i)));
    return list;
}

bool jinja_is_in(const json_t *value, const json_t *where)
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
