/* value_node.c - TOML as it is: a value as JSON, and the words of keys that do
 * nothing in this version. */
#include "daemon/job/job_internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static json_t *table_json(struct job *job, const struct toml_node *node);

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
        return table_json(job, node);
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

static json_t *table_json(struct job *job, const struct toml_node *node)
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

/* --- keys that do nothing yet --- */

static bool is_literal(const struct toml_node *node, const char *word)
{
    double number;
    char *end;
    switch (node->kind) {
    case TOML_STRING:
        return strcasecmp(node->string, word) == 0;
    case TOML_BOOL:
        return strcmp(word, node->boolean ? "true" : "false") == 0;
    case TOML_INTEGER:
    case TOML_REAL:
        number = strtod(word, &end);
        return end != word && !*end &&
               number == (node->kind == TOML_REAL ? node->real
                                                  : (double)node->integer);
    case TOML_ARRAY:
        return node->count == 0 && strcmp(word, "[]") == 0;
    default:
        return false;
    }
}

bool value_is_off(const struct schema_key *key, const struct toml_node *node)
{
    const char *list = key->off;
    while (list) {
        char word[32];
        const char *bar = strchr(list, '|');
        int length = bar ? (int)(bar - list) : (int)strlen(list);
        snprintf(word, sizeof word, "%.*s", length, list);
        if (is_literal(node, word))
            return true;
        list = bar ? bar + 1 : NULL;
    }
    return false;
}
