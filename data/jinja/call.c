/* call.c - functions, methods, filters and tests. */
#include "data/jinja/internal.h"

#include "base/must.h"
#include "base/text_stream.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const json_t *date_as(struct jinja *j, const char *format)
{
    const char *date = json_string_value(jinja_find(j, "strftime_now", NULL));
    struct tm day = {0};
    char text[256];
    if (!date || !format || !strptime(date, "%Y-%m-%d", &day)) {
        jinja_stop(j, JINJA_UNKNOWN, "strftime_now()");
        return NULL;
    }
    return jinja_text(j, text, strftime(text, sizeof text, format, &day));
}

const json_t *jinja_function(
        struct jinja *j, const char *name, const json_t *list, json_t *names)
{
    if (strcmp(name, "raise_exception") == 0) {
        const char *text = json_string_value(json_array_get(list, 0));
        jinja_stop(j, JINJA_RAISED, "%.160s", text ? text : "");
        return NULL;
    }
    if (strcmp(name, "namespace") == 0 && json_array_size(list) == 0)
        return j->fresh = names;
    if (strcmp(name, "strftime_now") == 0)
        return date_as(j, json_string_value(json_array_get(list, 0)));
    if (strcmp(name, "range") == 0 && json_array_size(list) == 1) {
        json_t *range = jinja_list(j);
        json_int_t most = json_integer_value(json_array_get(list, 0));
        for (json_int_t i = 0; i < most && j->result == JINJA_DONE; i++)
            jinja_append(j, range, jinja_keep(j, json_integer(i)));
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
    bool strips[256] = {false};
    if (!jinja_read(j, bytes + strlen(set)))
        return NULL;
    for (const char *at = set; *at; at++)
        strips[(unsigned char)*at] = true;
    while (left && bytes && strips[(unsigned char)text[0]])
        text++, bytes--;
    while (right && bytes && strips[(unsigned char)text[bytes - 1]])
        bytes--;
    return jinja_text(j, text, bytes);
}

/* A part of a text that is searched. */
struct part {
    const char *at;
    size_t bytes;
};

static struct part part_of(const json_t *text)
{
    return (struct part){json_string_value(text), json_string_length(text)};
}

/* What stands before the next `mark`, which is taken with it; false: `rest` has
 * none. */
static bool cut_at(struct part *rest, struct part mark, struct part *before)
{
    const char *next =
            mark.bytes ? memmem(rest->at, rest->bytes, mark.at, mark.bytes)
                       : NULL;
    if (!next)
        return false;
    *before = (struct part){rest->at, (size_t)(next - rest->at)};
    rest->at += before->bytes + mark.bytes;
    rest->bytes -= before->bytes + mark.bytes;
    return true;
}

static const json_t *split(
        struct jinja *j, const json_t *text, const json_t *mark)
{
    json_t *list = jinja_list(j);
    struct part rest = part_of(text), before;
    while (j->result == JINJA_DONE && cut_at(&rest, part_of(mark), &before))
        jinja_append(j, list, jinja_text(j, before.at, before.bytes));
    jinja_append(j, list, jinja_text(j, rest.at, rest.bytes));
    return list;
}

static const json_t *replaced(
        struct jinja *j, const json_t *text, const json_t *from,
        const json_t *to)
{
    char *out = NULL;
    size_t bytes;
    FILE *stream = text_stream_open(&out, &bytes);
    struct part rest = part_of(text), before, with = part_of(to);
    while (jinja_charge(j, 1 + with.bytes / 64, with.bytes) &&
           cut_at(&rest, part_of(from), &before)) {
        fwrite(before.at, 1, before.bytes, stream);
        fwrite(with.at, 1, with.bytes, stream);
    }
    fwrite(rest.at, 1, rest.bytes, stream);
    fclose(stream);
    const json_t *value = jinja_text(j, out, bytes);
    free(out);
    return value;
}

static const json_t *in_case(struct jinja *j, const json_t *value, bool upper)
{
    size_t bytes = json_string_length(value);
    if (!jinja_charge(j, 1 + bytes / 16, bytes))
        return NULL;
    char *text = zd_must(malloc(bytes + 1));
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)json_string_value(value)[i];
        text[i] = (char)(upper ? toupper(c) : tolower(c));
    }
    const json_t *out = jinja_text(j, text, bytes);
    free(text);
    return out;
}

static const json_t *pairs_of(struct jinja *j, const json_t *object)
{
    json_t *list = jinja_list(j), *value;
    const char *key;
    json_object_foreach((json_t *)object, key, value)
    {
        json_t *pair = jinja_list(j);
        jinja_append(j, pair, jinja_text(j, key, strlen(key)));
        jinja_append(j, pair, value);
        jinja_append(j, list, pair);
        if (j->result != JINJA_DONE)
            break;
    }
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
    size_t bytes = json_string_length(value);
    size_t length = json_string_length(json_array_get(list, 0));
    const char *set = first ? first : BLANKS;
    if (!jinja_read(j, bytes + length))
        return NULL;
    if (text && strcmp(name, "strip") == 0)
        return stripped(j, value, true, true, set);
    if (text && strcmp(name, "lstrip") == 0)
        return stripped(j, value, true, false, set);
    if (text && strcmp(name, "rstrip") == 0)
        return stripped(j, value, false, true, set);
    if (text && first && strcmp(name, "startswith") == 0)
        return jinja_truth(length <= bytes && memcmp(text, first, length) == 0);
    if (text && first && strcmp(name, "endswith") == 0)
        return jinja_truth(
                length <= bytes &&
                memcmp(text + bytes - length, first, length) == 0);
    if (text && first && strcmp(name, "split") == 0)
        return split(j, value, json_array_get(list, 0));
    if (text && first && second && strcmp(name, "replace") == 0)
        return replaced(
                j, value, json_array_get(list, 0), json_array_get(list, 1));
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
    if (strcmp(name, "string") == 0)
        return jinja_spell(j, value);
    if (strcmp(name, "tojson") == 0)
        return jinja_json(j, value);
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
