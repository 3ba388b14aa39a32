/* value_json.c - fields of the options, and [model.config], as JSON. */
#include "base/rfc3339.h"
#include "daemon/job/job_internal.h"

#include <math.h>
#include <stdlib.h>

#define FIELD(type, base, offset)                                              \
    (*(const type *)((const char *)(base) + (offset)))

static json_t *number_json(double value)
{
    if (value == floor(value) && fabs(value) <= 9e15)
        return json_integer((json_int_t)value);
    return json_real(value);
}

static json_t *string_json(const char *string)
{
    json_t *json = json_string(string ? string : "");
    return json ? json : json_string("(not UTF-8)");
}

static json_t *choice_json(const struct schema_key *key, int value)
{
    for (const struct schema_choice *c = key->choices; c->name; c++)
        if (c->value == value && !c->note)
            return json_string(c->name);
    return json_string("?");
}

static json_t *enum_json(const struct schema_key *key, const void *base)
{
    if (key->flags & SCHEMA_AS_BOOL)
        return choice_json(key, FIELD(bool, base, key->offset));
    return choice_json(key, FIELD(int, base, key->offset));
}

static json_t *optimizer_json(
        const struct schema_key *key, const struct optim_options *optim)
{
    int value = (int)optim->name;
    if (optim->state_type == OPTIM_STATE_8BIT)
        value |= SCHEMA_STATES_8BIT;
    if (optim->paged)
        value |= SCHEMA_STATES_PAGED;
    return choice_json(key, value);
}

static json_t *integer_json(const struct schema_key *key, const void *base)
{
    json_int_t value = key->type == SCHEMA_INT ? FIELD(int, base, key->offset)
                       : key->type == SCHEMA_INT64
                               ? FIELD(int64_t, base, key->offset)
                               : (json_int_t)FIELD(uint64_t, base, key->offset);
    json_int_t automatic = key->flags & SCHEMA_ZERO ? -1 : 0;
    if (value == automatic && (key->flags & SCHEMA_AUTO))
        return json_string("auto");
    return json_integer(value);
}

static json_t *size_json(const struct schema_key *key, const void *base)
{
    char text[32];
    if (key->type == SCHEMA_LIMIT && FIELD(double, base, key->offset2) > 0) {
        snprintf(
                text, sizeof text, "%.15g%%",
                100 * FIELD(double, base, key->offset2));
        return json_string(text);
    }
    if ((key->flags & SCHEMA_AUTO) && !FIELD(uint64_t, base, key->offset))
        return json_string("auto");
    return json_integer((json_int_t)FIELD(uint64_t, base, key->offset));
}

static json_t *strings_json(const char *const *strings, int count)
{
    json_t *array = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(array, string_json(strings[i]));
    return array;
}

static json_t *resume_json(enum resume_mode mode, const char *path)
{
    static const char *const names[] = {"auto", "never", "must"};
    return string_json(mode == RESUME_PATH ? path : names[mode]);
}

static json_t *socket_json(enum control_socket what, const char *path)
{
    return string_json(
            what == CONTROL_PATH   ? path
            : what == CONTROL_NONE ? "none"
                                   : "auto");
}

static json_t *moment_json(double at, double after)
{
    char text[RFC3339_BYTES] = "";
    if (after > 0)
        snprintf(text, sizeof text, "%.15gs", after);
    else if (at > 0)
        rfc3339_print(at, text);
    return json_string(text);
}

static json_t *checkpointing_json(struct checkpointing checkpointing)
{
    char text[32];
    switch (checkpointing.mode) {
    case CHECKPOINTING_NONE:
        return json_string("none");
    case CHECKPOINTING_SELECTIVE:
        return json_string("selective");
    case CHECKPOINTING_FULL:
        return json_string("full");
    case CHECKPOINTING_SQRT:
        return json_string("sqrt");
    case CHECKPOINTING_AUTO:
        return json_string("auto");
    case CHECKPOINTING_EVERY:
        break;
    }
    snprintf(text, sizeof text, "every:%d", checkpointing.every);
    return json_string(text);
}

static json_t *entries_json(
        const char *section, const struct data_entry *entries, int count)
{
    json_t *array = json_array();
    for (int e = 0; e < count; e++) {
        json_t *object = json_object();
        for (int i = 0; i < schema_count; i++)
            if (strcmp(schema_table[i].section, section) == 0)
                json_object_set_new(
                        object, schema_table[i].name,
                        value_json(&schema_table[i], &entries[e]));
        json_array_append_new(array, object);
    }
    return array;
}

json_t *value_json(const struct schema_key *key, const void *base)
{
    char text[64];
    switch (key->type) {
    case SCHEMA_STRING:
    case SCHEMA_WORD:
        return string_json(FIELD(char *, base, key->offset));
    case SCHEMA_ENUM:
        return enum_json(key, base);
    case SCHEMA_OPTIMIZER:
        return optimizer_json(
                key, &FIELD(struct optim_options, base, key->offset));
    case SCHEMA_BOOL:
        return json_boolean(FIELD(bool, base, key->offset));
    case SCHEMA_INT:
    case SCHEMA_INT64:
    case SCHEMA_UINT64:
        return integer_json(key, base);
    case SCHEMA_REAL:
        return json_real(FIELD(double, base, key->offset));
    case SCHEMA_STEPS:
        return number_json(FIELD(double, base, key->offset));
    case SCHEMA_SIZE:
    case SCHEMA_LIMIT:
        return size_json(key, base);
    case SCHEMA_DURATION:
        if (FIELD(double, base, key->offset) ==
                    (key->flags & SCHEMA_ZERO ? -1 : 0) &&
            (key->flags & SCHEMA_AUTO))
            return json_string("auto");
        snprintf(text, sizeof text, "%.15gs", FIELD(double, base, key->offset));
        return json_string(text);
    case SCHEMA_MOMENT:
        return moment_json(
                FIELD(double, base, key->offset),
                FIELD(double, base, key->offset2));
    case SCHEMA_STRINGS:
        return strings_json(
                FIELD(char *const *, base, key->offset),
                FIELD(int, base, key->offset2));
    case SCHEMA_MODULES:
    case SCHEMA_LAYERS:
        if (FIELD(json_t *, base, key->offset))
            return json_incref((json_t *)FIELD(json_t *, base, key->offset));
        return key->flags & SCHEMA_NULLABLE ? json_array()
                                            : json_string("all-linear");
    case SCHEMA_RESUME:
        return resume_json(
                FIELD(enum resume_mode, base, key->offset),
                FIELD(char *, base, key->offset2));
    case SCHEMA_SOCKET:
        return socket_json(
                FIELD(enum control_socket, base, key->offset),
                FIELD(char *, base, key->offset2));
    case SCHEMA_CHECKPOINTING:
        return checkpointing_json(
                FIELD(struct checkpointing, base, key->offset));
    case SCHEMA_DTYPE:
        if (FIELD(bool, base, key->offset))
            return json_string("auto");
        return choice_json(key, (int)FIELD(enum dtype, base, key->offset2));
    case SCHEMA_ENTRIES:
        snprintf(text, sizeof text, "%s.%s", key->section, key->name);
        return entries_json(
                text, FIELD(struct data_entry *, base, key->offset),
                FIELD(int, base, key->offset2));
    case SCHEMA_TABLE:
        return FIELD(json_t *, base, key->offset)
                       ? json_incref(
                                 (json_t *)FIELD(json_t *, base, key->offset))
                       : json_null();
    case SCHEMA_VERSION:
        return json_integer(1);
    case SCHEMA_EXTENDS:
        return NULL;
    }
    return NULL;
}

/* --- a TOML table as JSON --- */

json_t *value_node_json(struct job *job, const struct toml_node *node)
{
    json_t *json = NULL;
    switch (node->kind) {
    case TOML_STRING:
        return json_string(node->string);
    case TOML_INTEGER:
        return json_integer(node->integer);
    case TOML_REAL:
        json = json_real(node->real); /* NULL for nan and inf */
        break;
    case TOML_BOOL:
        return json_boolean(node->boolean);
    case TOML_ARRAY:
        json = json_array();
        for (int i = 0; i < node->count; i++)
            if (json_array_append_new(
                        json, value_node_json(job, node->items[i]))) {
                json_decref(json);
                return NULL;
            }
        return json;
    case TOML_TABLE:
        return value_table_json(job, node);
    case TOML_DATETIME:
        break;
    }
    if (!json)
        problem_add(
                &job->problems, ZD_ERR_CONFIG, "E0205", node->place, NULL,
                "this table cannot hold %s",
                node->kind == TOML_REAL ? "inf or nan"
                                        : toml_kind_name(node->kind));
    return json;
}

json_t *value_table_json(struct job *job, const struct toml_node *node)
{
    json_t *object = json_object();
    for (int i = 0; i < node->count; i++) {
        const struct toml_node *item = node->items[i];
        if (json_object_set_new(
                    object, item->key, value_node_json(job, item))) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}
