#include "daemon/job/toml/toml_json.h"

#include "base/units.h"

#include <string.h>

json_t *toml_json(const struct toml_node *node, struct problems *problems)
{
    json_t *json = NULL;
    switch (node->kind) {
    case TOML_STRING:
        return json_string(node->string);
    case TOML_INTEGER:
        return json_integer(node->integer);
    case TOML_BOOL:
        return json_boolean(node->boolean);
    case TOML_REAL:
        json = json_real(node->real); /* NULL for nan and inf */
        break;
    case TOML_ARRAY:
        json = json_array();
        break;
    case TOML_TABLE:
        json = json_object();
        break;
    case TOML_DATETIME:
        break;
    }
    if (!json)
        problem_add(
                problems, ZD_ERR_CONFIG, "E0205", node->place, NULL,
                "this table cannot hold %s",
                node->kind == TOML_REAL ? "inf or nan"
                                        : toml_kind_name(node->kind));
    for (int i = 0; json && i < node->count; i++) {
        json_t *item = toml_json(node->items[i], problems);
        if (node->kind == TOML_ARRAY
                    ? json_array_append_new(json, item)
                    : json_object_set_new(json, node->items[i]->key, item)) {
            json_decref(json);
            return NULL;
        }
    }
    return json;
}

/* The fewest digits that come back exactly, marked as a number with a fraction.
 */
static void put_real(FILE *stream, double value)
{
    char text[UNITS_TEXT];
    units_exact(value, text);
    fputs(text, stream);
    if (!strpbrk(text, ".en"))
        fputs(".0", stream);
}

void toml_write_key(FILE *stream, const char *key)
{
    static const char bare[] = "abcdefghijklmnopqrstuvwxyz"
                               "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    if (key[0] && strspn(key, bare) == strlen(key)) {
        fputs(key, stream);
        return;
    }
    json_auto_t *string = json_string(key);
    json_dumpf(string, stream, JSON_ENCODE_ANY);
}

/* JSON as a TOML value: strings are written alike. */
void toml_write(FILE *stream, const json_t *value)
{
    bool is_first = true;
    switch (json_typeof(value)) {
    case JSON_REAL:
        put_real(stream, json_real_value(value));
        break;
    case JSON_ARRAY:
        fputc('[', stream);
        JSON_EACH_AT(i, item, value) {
            fputs(i ? ", " : "", stream);
            toml_write(stream, item);
        }
        fputc(']', stream);
        break;
    case JSON_OBJECT:
        fputc('{', stream);
        JSON_MEMBERS(key, item, value) {
            fputs(is_first ? " " : ", ", stream);
            is_first = false;
            toml_write_key(stream, key);
            fputs(" = ", stream);
            toml_write(stream, item);
        }
        fputs(is_first ? "}" : " }", stream);
        break;
    default:
        json_dumpf(value, stream, JSON_ENCODE_ANY);
        break;
    }
}
