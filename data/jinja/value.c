/* value.c - values: JSON's, in a pool until the end. Templates are small, and
 * are rendered a few times. */
#include "data/jinja/internal.h"

#include "base/must.h"

#include <stdlib.h>
#include <string.h>

enum {
    VALUE_BYTES = 64,
    MAPPING_BYTES = 256,
    SLOT_BYTES = 16,
    PAIR_BYTES = 64
};

json_t *jinja_keep(struct jinja *j, json_t *value)
{
    if (j->pool_count == j->pool_capacity) {
        j->pool_capacity = j->pool_capacity ? 2 * j->pool_capacity : 64;
        j->pool = zd_must(realloc(j->pool, j->pool_capacity * sizeof *j->pool));
    }
    jinja_charge(j, 0, VALUE_BYTES);
    return j->pool[j->pool_count++] = zd_must(value);
}

json_t *jinja_text(struct jinja *j, const char *text, size_t bytes)
{
    if (!jinja_charge(j, 1 + bytes / 64, bytes))
        return NULL;
    json_t *value = json_stringn(text, bytes);
    if (!value) {
        jinja_stop(j, JINJA_UNKNOWN, "text that is not UTF-8");
        return NULL;
    }
    return jinja_keep(j, value);
}

json_t *jinja_list(struct jinja *j)
{
    return jinja_charge(j, 1, VALUE_BYTES) ? jinja_keep(j, json_array()) : NULL;
}

json_t *jinja_mapping(struct jinja *j)
{
    return jinja_charge(j, 1, MAPPING_BYTES) ? jinja_keep(j, json_object())
                                             : NULL;
}

void jinja_append(struct jinja *j, json_t *list, const json_t *value)
{
    if (list && jinja_charge(j, 1, SLOT_BYTES))
        json_array_append(list, value ? (json_t *)value : json_null());
}

void jinja_put(
        struct jinja *j, json_t *mapping, const char *key, const json_t *value)
{
    size_t bytes = strlen(key);
    if (mapping && jinja_charge(j, 1 + bytes / 64, PAIR_BYTES + bytes))
        json_object_set(mapping, key, value ? (json_t *)value : json_null());
}

json_t *jinja_keys(struct jinja *j, const json_t *mapping)
{
    json_t *list = jinja_list(j), *value;
    const char *key;
    json_object_foreach((json_t *)mapping, key, value)
            jinja_append(j, list, jinja_text(j, key, strlen(key)));
    return list;
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

/* Of one kind and, if they hold others, of one size. */
static bool are_containers_equal(
        struct jinja *j, const json_t *a, const json_t *b)
{
    const char *key;
    json_t *value;
    size_t i;
    if (!jinja_enter(j))
        return false;
    bool equal = true;
    json_array_foreach(a, i, value)
    {
        equal = jinja_equal(j, value, json_array_get(b, i));
        if (!equal)
            break;
    }
    json_object_foreach((json_t *)a, key, value)
    {
        equal = jinja_read(j, strlen(key)) &&
                jinja_equal(j, value, json_object_get(b, key));
        if (!equal)
            break;
    }
    jinja_leave(j);
    return equal;
}

bool jinja_equal(struct jinja *j, const json_t *a, const json_t *b)
{
    if (!a || !b || a == b)
        return a == b;
    if (json_typeof(a) != json_typeof(b) || !jinja_charge(j, 1, 0))
        return false;
    if (json_array_size(a) != json_array_size(b) ||
        json_object_size(a) != json_object_size(b) ||
        json_string_length(a) != json_string_length(b))
        return false;
    if (json_is_array(a) || json_is_object(a))
        return are_containers_equal(j, a, b);
    return jinja_read(j, json_string_length(a)) && json_equal(a, b);
}

/* --- as text --------------------------------------------------------------
 */

/* Pays for what jansson will write of the value, level by level. */
static void charge_json(struct jinja *j, const json_t *value)
{
    const char *key;
    json_t *item;
    size_t i;
    if (!jinja_enter(j))
        return;
    jinja_charge(
            j, 1 + json_string_length(value) / 64,
            SLOT_BYTES + json_string_length(value));
    json_array_foreach(value, i, item)
    {
        if (j->result != JINJA_DONE)
            break;
        charge_json(j, item);
    }
    json_object_foreach((json_t *)value, key, item)
    {
        if (!jinja_charge(j, 1 + strlen(key) / 64, SLOT_BYTES + strlen(key)))
            break;
        charge_json(j, item);
    }
    jinja_leave(j);
}

const json_t *jinja_json(struct jinja *j, const json_t *value)
{
    charge_json(j, value);
    if (j->result != JINJA_DONE)
        return NULL;
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    const json_t *out =
            jinja_text(j, text ? text : "", text ? strlen(text) : 0);
    free(text);
    return out;
}

const json_t *jinja_spell(struct jinja *j, const json_t *value)
{
    if (json_is_string(value))
        return value;
    const char *text = !value                   ? ""
                       : json_is_true(value)    ? "True"
                       : json_is_boolean(value) ? "False"
                       : json_is_null(value)    ? "None"
                                                : NULL;
    return text ? jinja_text(j, text, strlen(text)) : jinja_json(j, value);
}

const json_t *jinja_joined(struct jinja *j, const json_t *a, const json_t *b)
{
    const json_t *left = jinja_spell(j, a), *right = jinja_spell(j, b);
    size_t first = json_string_length(left), second = json_string_length(right);
    if (!jinja_charge(j, 1 + (first + second) / 64, first + second))
        return NULL;
    char *both = zd_must(malloc(first + second + 1));
    memcpy(both, json_string_value(left), first);
    memcpy(both + first, json_string_value(right), second);
    const json_t *value = jinja_text(j, both, first + second);
    free(both);
    return value;
}

/* --- variables ------------------------------------------------------------
 */

const json_t *jinja_find(
        const struct jinja *j, const char *name, bool *is_namespace_out)
{
    for (int i = j->scope_count - 1; i >= 0; i--) {
        const json_t *value = json_object_get(j->scopes[i].values, name);
        const json_t *space = json_object_get(j->scopes[i].namespaces, name);
        if (is_namespace_out)
            *is_namespace_out = space != NULL;
        if (value || space)
            return value ? value : space;
    }
    return NULL;
}

void jinja_bind(
        struct jinja *j, const char *name, const json_t *value,
        bool is_namespace)
{
    struct jinja_scope *scope = &j->scopes[j->scope_count - 1];
    json_object_del(is_namespace ? scope->values : scope->namespaces, name);
    jinja_put(j, is_namespace ? scope->namespaces : scope->values, name, value);
}

bool jinja_push(struct jinja *j)
{
    if (!jinja_charge(j, 8, 0)) /* as much work as 8 tokens */
        return false;
    if (j->scope_count == JINJA_SCOPES_MAX) {
        jinja_stop(j, JINJA_OVER, "has too many loops within loops");
        return false;
    }
    j->scopes[j->scope_count++] = (struct jinja_scope){
            zd_must(json_object()), zd_must(json_object())};
    return true;
}

void jinja_pop(struct jinja *j)
{
    struct jinja_scope *scope = &j->scopes[--j->scope_count];
    json_decref(scope->namespaces);
    json_decref(scope->values);
}

/* --- parts of values ------------------------------------------------------
 */

const json_t *jinja_item(
        struct jinja *j, const json_t *value, const json_t *key)
{
    if (json_is_object(value) && json_is_string(key))
        return jinja_read(j, json_string_length(key))
                       ? json_object_get(value, json_string_value(key))
                       : NULL;
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
    json_t *list = jinja_list(j);
    for (json_int_t i = first; i < last && j->result == JINJA_DONE; i++)
        jinja_append(
                j, list,
                json_array_get(value, (size_t)(step == 1 ? i : size - 1 - i)));
    return list;
}

bool jinja_is_in(struct jinja *j, const json_t *value, const json_t *where)
{
    size_t i, bytes = json_string_length(value);
    json_t *item;
    if (!jinja_read(j, bytes + json_string_length(where)))
        return false;
    if (json_is_string(where))
        return json_is_string(value) &&
               memmem(json_string_value(where), json_string_length(where),
                      json_string_value(value), bytes);
    if (json_is_object(where))
        return json_is_string(value) &&
               json_object_get(where, json_string_value(value));
    json_array_foreach(where, i, item)
    {
        if (jinja_equal(j, item, value))
            return true;
        if (j->result != JINJA_DONE)
            break;
    }
    return false;
}
