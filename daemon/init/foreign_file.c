/* foreign_file.c - the tables of foreign.h, each with those of its base, and
 * the files that they are for. */
#include "base/file/fs.h"
#include "base/file/yaml.h"
#include "daemon/init/embedded.h"
#include "daemon/init/foreign.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static json_t *parse_table(const char *option)
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
    json_t *table = parse_table(option), *rows = json_object();
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

/* --- a file -------------------------------------------------------------- */

enum { FILE_MAX = 1 << 20 };

static enum zd_status parse_file(
        const char *format, bool is_yaml, const struct toml_source *source,
        json_t **out)
{
    const char *text = source->text;
    const char *begin = text + strspn(text, " \t\r\n\xef\xbb\xbf");
    const char *why = "it has no keys";
    *out = NULL;
    if (!*begin)
        why = "it is empty";
    else if (is_yaml || *begin != '{')
        ZD_TRY(yaml_parse(text, source->bytes, source->name, out));
    else
        ZD_TRY(json_parse(text, source->bytes, source->name, ZD_ERR_DATA, out));
    if (json_is_object(*out))
        return ZD_OK;
    return ZD_FAIL(
            ZD_ERR_DATA, "E0221", "%s is not %s: %s", source->name, format,
            why);
}

enum zd_status foreign_read(
        const char *option, const char *path, json_t **root_out)
{
    struct toml_source source = {.name = (char *)path};
    ZD_TRY(fs_read_file(path, FILE_MAX, &source.text, &source.bytes));
    json_t *table = foreign_table(option);
    const char *format = json_string_value(json_object_get(table, "name"));
    bool is_yaml = json_is_true(json_object_get(table, "yaml"));
    enum zd_status status = parse_file(format, is_yaml, &source, root_out);
    if (status != ZD_OK) {
        json_decref(*root_out);
        *root_out = NULL;
    }
    free(source.text);
    json_decref(table);
    return status;
}
