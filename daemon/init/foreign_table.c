/* foreign_table.c - the tables of foreign.h, each with those of its base. */
#include "daemon/init/embedded.h"
#include "daemon/init/foreign.h"
#include "daemon/init/yaml_door.h"

#include <assert.h>
#include <string.h>

static json_t *parse(const char *option)
{
    struct embedded file = embedded_find(embedded_formats, option);
    json_t *table = NULL;
    assert(file.name);
    enum zd_status status =
            yaml_parse(file.text, strlen(file.text), option, &table);
    assert(status == ZD_OK);
    (void)status;
    return table;
}

/* A row under each of its names; the first table that has a name counts. */
static void add_row(json_t *rows, const char *names, json_t *row)
{
    char name[100];
    json_object_set_new(row, "names", json_string(names));
    for (size_t bytes; *names; names += bytes + strspn(names + bytes, " ")) {
        bytes = strcspn(names, " ");
        snprintf(name, sizeof name, "%.*s", (int)bytes, names);
        if (!json_object_get(rows, name))
            json_object_set(rows, name, row);
    }
    json_decref(row);
}

static void add_rows(json_t *rows, const json_t *table)
{
    static const char *const sections[] = {"notes", "off"};
    const char *key;
    json_t *value, *name;
    size_t i;
    json_object_foreach(json_object_get(table, "rows"), key, value)
            add_row(rows, key,
                    json_is_string(value) ? json_pack("{s:O}", "key", value)
                                          : json_incref(value));
    for (int s = 0; s < 2; s++)
        json_object_foreach(json_object_get(table, sections[s]), key, value)
                json_array_foreach(value, i, name)
                        add_row(rows, json_string_value(name),
                                json_pack("{s:s}", s ? "off" : "note", key));
}

json_t *foreign_table(const char *option)
{
    json_t *table = parse(option), *rows = json_object();
    json_t *defaults = json_array();
    const char *base = json_string_value(json_object_get(table, "base"));
    add_rows(rows, table);
    json_array_extend(defaults, json_object_get(table, "defaults"));
    if (base) {
        json_t *below = foreign_table(base);
        json_object_update_missing(rows, json_object_get(below, "rows"));
        json_array_extend(defaults, json_object_get(below, "defaults"));
        json_decref(below);
    }
    json_object_set_new(table, "rows", rows);
    json_object_set_new(table, "defaults", defaults);
    return table;
}

/* In the order of embedded.S: LLaMA-Factory's files have keys of hf. */
const char *foreign_guess(const json_t *root)
{
    struct embedded file;
    const char *found = NULL;
    json_t *mark;
    size_t i;
    for (int n = 0; !found && (file = embedded_at(embedded_formats, n)).name;
         n++) {
        json_t *table = parse(file.name);
        json_array_foreach(json_object_get(table, "marks"), i, mark)
        {
            if (json_object_get(root, json_string_value(mark)))
                found = file.name;
        }
        json_decref(table);
    }
    return found;
}
