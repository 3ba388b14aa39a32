/* call.c - functions, methods, filters and tests. */
#include "data/jinja/internal.h"

#include "base/text_stream.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

const json_t *jinja_function(
        struct jinja *j, const char *name, const json_t *list, json_t *names)
{
    if (strcmp(name, "raise_exception") == 0) {
        const char *text = json_string_value(json_array_get(list, 0));
        jinja_stop(j, JINJA_RAISED, "%.160s", text ? text : "");
        return NULL;
    }
    if (strcmp(name, "namespace") == 0)
        return names;
    if (strcmp(name, "strftime_now") == 0)
        return jinja_keep(j, json_string("01 Jan 2026"));
    if (strcmp(name, "range") == 0 && json_array_size(list) == 1) {
        json_t *range = jinja_keep(j, json_array());
        json_int_t most = json_integer_value(json_array_get(list, 0));
        for (json_int_t i = 0; i < most && i < JINJA_STEPS_MAX; i++)
            json_array_append_new(range, json_integer(i));
        return range;
    }
    jinja_stop(j, JINJA_UNKNOWN, "%s()", name);
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
    return jinja_text(j, text, bytes);
}

static const json_t *split(struct jinja *j, const char *text, const char *mark)
{
    json_t *list = jinja_keep(j, json_array());
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
    const json_t *value = jinja_text(j, out, bytes);
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
    const json_t *out = text ? jinja_text(j, text, strlen(text)) : NULL;
    free(text);
    return out;
}

static const json_t *pairs_of(struct jinja *j, const json_t *object)
{
    json_t *list = jinja_keep(j, json_array()), *value;
    const char *key;
    json_object_foreach((json_t *)object, key, value)
            json_array_append_new(list, json_pack("[s, O]", key, value));
    return list;
}

#define BLANKS " \t\n\r\v\f"

const json_t *jinja_method(
        struct jinja *j, const json_t *value, const char *name,
        const json_t *list)
{
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
        return jinja_truth(strncmp(text, first, length) == 0);
    if (text && first && strcmp(name, "endswith") == 0)
        return jinja_truth(
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
    jinja_stop(j, JINJA_UNKNOWN, ".%s()", name);
    return NULL;
}

const json_t *jinja_filter(
        struct jinja *j, const json_t *value, const char *name,
        const json_t *list)
{
    bool is_text = json_is_string(value);
    if (is_text && strcmp(name, "trim") == 0)
        return stripped(j, value, true, true, BLANKS);
    if (is_text && (strcmp(name, "upper") == 0 || strcmp(name, "lower") == 0))
        return in_case(j, value, name[0] == 'u');
    if (strcmp(name, "safe") == 0 || strcmp(name, "list") == 0)
        return value;
    if (strcmp(name, "length") == 0 || strcmp(name, "count") == 0)
        return jinja_keep(
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
        char *text = name[0] == 's' ? jinja_spell(value)
                                    : json_dumps(value, JSON_ENCODE_ANY);
        const json_t *out = text ? jinja_text(j, text, strlen(text)) : NULL;
        free(text);
        return out;
    }
    jinja_stop(j, JINJA_UNKNOWN, "the filter %s", name);
    return NULL;
}

bool jinja_test(struct jinja *j, const json_t *value, const char *name)
{
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
    jinja_stop(j, JINJA_UNKNOWN, "the test %s", name);
    return false;
}
