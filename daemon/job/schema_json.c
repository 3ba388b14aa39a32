/* schema_json.c - the table of keys as JSON Schema, for editors: names, types,
 * ranges, words, defaults and help. What a schema cannot say (batches that do
 * not divide, paths that are not there) `zerod validate` says. */
#include "daemon/job/schema.h"

#include "daemon/job/value.h"

#include <string.h>

static json_t *typed(const char *type)
{
    return json_pack("{s:s}", "type", type);
}

static json_t *string_like(const char *pattern)
{
    return json_pack("{s:s, s:s}", "type", "string", "pattern", pattern);
}

/* The words that are there, and true and false where they are words. */
static json_t *words_json(const struct schema_key *key)
{
    json_t *words = json_array();
    bool has_bools = false;
    for (const struct schema_choice *c = key->choices; c->name; c++) {
        json_array_append_new(words, json_string(c->name));
        has_bools = has_bools || strcmp(c->name, "true") == 0;
    }
    if (has_bools) {
        json_array_append_new(words, json_true());
        json_array_append_new(words, json_false());
    }
    return json_pack("{s:o}", "enum", words);
}

static json_t *range_json(const struct schema_key *key, const char *type)
{
    json_t *json = typed(type);
    bool above = key->flags & SCHEMA_ABOVE_MIN;
    bool below = key->flags & SCHEMA_BELOW_MAX;
    if (!schema_is_number(key) || (key->min == 0 && key->max == 0))
        return json;
    json_object_set_new(
            json, above ? "exclusiveMinimum" : "minimum", json_real(key->min));
    json_object_set_new(
            json, below ? "exclusiveMaximum" : "maximum", json_real(key->max));
    return json;
}

static json_t *section_json(const char *section);

/* One of value_type.schema. */
static json_t *form_json(const struct schema_key *key, const char *form)
{
    if (form[0] == '^')
        return string_like(form);
    if (form[0] == '[')
        return json_pack(
                "{s:s, s:o}", "type", "array", "items", typed(form + 1));
    return range_json(key, form);
}

static json_t *type_json(const struct schema_key *key)
{
    const struct value_type *type = value_type_of(key);
    char section[2 * SCHEMA_NAME_MAX];
    snprintf(section, sizeof section, "%s.%s", key->section, key->name);
    if (key->type == SCHEMA_ENTRIES)
        return json_pack(
                "{s:s, s:o}", "type", "array", "items", section_json(section));
    if (!type->schema[0])
        return words_json(key);
    json_t *any = json_array();
    for (int i = 0; i < 3 && type->schema[i]; i++)
        json_array_append_new(any, form_json(key, type->schema[i]));
    json_t *json = json_array_size(any) == 1
                           ? json_incref(json_array_get(any, 0))
                           : json_pack("{s:O}", "anyOf", any);
    json_decref(any);
    return json;
}

static json_t *key_json(const struct schema_key *key)
{
    json_t *json = type_json(key);
    if (key->flags & SCHEMA_AUTO)
        json = json_pack("{s:[o, {s:s}]}", "anyOf", json, "const", "auto");
    json_object_set_new(json, "description", json_string(key->help));
    json_t *value = value_default(key);
    if (value && !json_is_null(value))
        json_object_set(json, "default", value);
    json_decref(value);
    return json;
}

/* Sections below this one: "train.fp16" in "train". */
static void add_inner(json_t *properties, const char *section)
{
    size_t length = strlen(section);
    for (int i = 0; i < schema_count; i++) {
        const char *other = schema_table[i].section;
        if (strncmp(other, section, length) != 0 || other[length] != '.')
            continue;
        const char *name = other + length + 1;
        if (!json_object_get(properties, name))
            json_object_set_new(properties, name, section_json(other));
    }
}

static json_t *section_json(const char *section)
{
    json_t *properties = json_object();
    for (int i = 0; i < schema_count; i++)
        if (strcmp(schema_table[i].section, section) == 0)
            json_object_set_new(
                    properties, schema_table[i].name,
                    key_json(&schema_table[i]));
    add_inner(properties, section);
    return json_pack(
            "{s:s, s:b, s:o}", "type", "object", "additionalProperties", 0,
            "properties", properties);
}

json_t *schema_json(void)
{
    json_t *json = section_json("");
    json_t *properties = json_object_get(json, "properties");
    json_object_set_new(
            json, "$schema",
            json_string("https://json-schema.org/draft/2020-12/schema"));
    json_object_set_new(json, "title", json_string("job.toml of zerod"));
    for (int i = 0; i < schema_count; i++) {
        const char *section = schema_table[i].section;
        if (section[0] && !strchr(section, '.') &&
            !json_object_get(properties, section))
            json_object_set_new(properties, section, section_json(section));
    }
    return json;
}
