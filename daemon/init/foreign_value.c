/* foreign_value.c - values of a file, as tables have them, and conditions. */
#include "daemon/init/foreign.h"

#include "daemon/job/schema.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* --- values --------------------------------------------------------------- */

void foreign_word(const json_t *value, char *out, size_t bytes)
{
    char *dumped = NULL;
    const char *text = json_string_value(value);
    if (!text)
        text = dumped = json_dumps(
                value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));
    snprintf(out, bytes, "%s", text ? text : "?");
    free(dumped);
}

static bool is_word(const json_t *value, const char *word)
{
    char text[200];
    foreign_word(value, text, sizeof text);
    return strcasecmp(text, word) == 0 ||
           (strchr(word, '*') && fnmatch(word, text, FNM_CASEFOLD) == 0);
}

const json_t *foreign_find_word(const json_t *words, const json_t *value)
{
    const char *word;
    json_t *ours;
    json_object_foreach((json_t *)words, word, ours)
    {
        if (is_word(value, word))
            return ours;
    }
    return NULL;
}

bool foreign_is_same(const json_t *same, const json_t *value)
{
    size_t i;
    json_t *item;
    char word[200];
    json_array_foreach((json_t *)same, i, item)
    {
        if (foreign_is_same(item, value))
            return true;
    }
    if (!same || json_is_array(same))
        return false;
    foreign_word(same, word, sizeof word);
    return is_word(value, word);
}

bool foreign_is_off(const json_t *value)
{
    return json_is_false(value) || json_is_null(value) ||
           (json_is_number(value) && json_number_value(value) == 0) ||
           (json_is_array(value) && !json_array_size(value)) ||
           (json_is_object(value) &&
            (!json_object_size(value) ||
             json_is_false(json_object_get(value, "enabled")))) ||
           (json_is_string(value) && !json_string_length(value));
}

json_t *foreign_for_key(const char *key, const json_t *value)
{
    char section[SCHEMA_NAME_MAX], *end;
    const char *dot = strrchr(key, '.'), *text = json_string_value(value);
    snprintf(section, sizeof section, "%.*s", (int)(dot - key), key);
    const struct schema_key *schema = schema_find(section, dot + 1);
    if (schema && schema->type == SCHEMA_STRING && json_array_size(value) == 1)
        return json_deep_copy(json_array_get(value, 0));
    if (schema && schema_is_number(schema) && text && *text) {
        double number = strtod(text, &end);
        if (!*end && isfinite(number))
            return json_real(number);
    }
    return json_deep_copy(value);
}

bool foreign_is_open(const json_t *value)
{
    return !value || json_is_null(value) ||
           (json_is_string(value) && !strcmp(json_string_value(value), "auto"));
}

const json_t *foreign_get(const struct foreign *foreign, const char *name)
{
    const json_t *at = foreign->root;
    char part[100];
    while (at && *name) {
        size_t bytes = strcspn(name, ".");
        snprintf(part, sizeof part, "%.*s", (int)bytes, name);
        at = json_object_get(at, part);
        name += bytes + (name[bytes] == '.');
    }
    return at;
}

/* --- conditions ----------------------------------------------------------- */

static bool is_variant(const struct foreign *foreign)
{
    size_t i;
    json_t *key;
    json_array_foreach(json_object_get(foreign->table, "variant"), i, key)
    {
        if (json_object_get(foreign->root, json_string_value(key)))
            return true;
    }
    return false;
}

static bool holds_one(const struct foreign *foreign, const char *condition)
{
    bool is_not = condition[0] == '!', holds;
    char name[100];
    condition += is_not;
    size_t bytes = strcspn(condition, "!=");
    const char *equals = condition[bytes] ? strchr(condition, '=') : NULL;
    snprintf(name, sizeof name, "%.*s", (int)bytes, condition);
    const json_t *value = foreign_get(foreign, name);
    if (!strcmp(name, "--data"))
        holds = json_array_size(foreign->draft->train) > 0;
    else if (!strcmp(name, "@"))
        holds = is_variant(foreign);
    else if (!equals)
        holds = value && !foreign_is_off(value) && !is_word(value, "no");
    else
        holds = (value && is_word(value, equals + 1)) ==
                (condition[bytes] == '=');
    return holds != is_not;
}

bool foreign_holds(const struct foreign *foreign, const char *condition)
{
    char one[200];
    while (condition && *condition) {
        const char *next = strstr(condition, " & ");
        size_t bytes = next ? (size_t)(next - condition) : strlen(condition);
        snprintf(one, sizeof one, "%.*s", (int)bytes, condition);
        if (!holds_one(foreign, one))
            return false;
        condition = next ? next + 3 : NULL;
    }
    return true;
}
