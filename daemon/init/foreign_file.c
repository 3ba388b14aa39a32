/* foreign_file.c - the tables of foreign.h, each with those of its base, and
 * the files that they are for. */
#include "base/file/fs.h"
#include "base/file/yaml.h"
#include "base/must.h"
#include "base/words.h"
#include "daemon/init/embedded.h"
#include "daemon/init/foreign.h"

#include <assert.h>
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
    while (words_next(&names, " ", name, sizeof name))
        if (!json_object_get(rows, name))
            json_object_set(rows, name, row);
    json_decref(row);
}

static void add_rows(json_t *rows, const json_t *table)
{
    static const char *const sections[] = {"notes", "off"};
    JSON_MEMBERS(key, value, json_object_get(table, "rows"))
        add_row(rows, key,
                json_is_string(value) ? json_pack("{s:O}", "key", value)
                                      : json_incref(value));
    for (int s = 0; s < 2; s++)
        JSON_MEMBERS(key, value, json_object_get(table, sections[s])) {
            JSON_EACH(name, value)
                add_row(rows, json_string_value(name),
                        json_pack("{s:s}", s ? "off" : "note", key));
        }
}

json_t *foreign_table(const char *option)
{
    json_t *table = parse_table(option), *rows = json_object();
    json_t *defaults = json_array();
    const char *base = json_string_at(table, "base");
    add_rows(rows, table);
    json_array_extend(defaults, json_object_get(table, "defaults"));
    if (base) {
        json_auto_t *below = foreign_table(base);
        json_object_update_missing(rows, json_object_get(below, "rows"));
        json_array_extend(defaults, json_object_get(below, "defaults"));
    }
    json_object_set_new(table, "rows", rows);
    json_object_set_new(table, "defaults", defaults);
    return table;
}

/* The format that has one of the keys of `root` as a mark; NULL: none. In the
 * order of embedded.S: LLaMA-Factory's files have keys of hf. */
static const char *guess(const json_t *root)
{
    struct embedded file;
    const char *found = NULL;
    for (int n = 0; !found && (file = embedded_at(embedded_formats, n)).name;
         n++) {
        json_auto_t *table = parse_table(file.name);
        const json_t *marks = json_object_get(table, "marks");
        JSON_EACH(mark, marks)
            if (json_object_get(root, json_string_value(mark)))
                found = file.name;
    }
    return found;
}

/* --- a file -------------------------------------------------------------- */

enum { FILE_MAX = 1 << 20 };

/* A shell script, or the words of one: `python run_clm.py --seed 1`. */
static bool is_command_line(const char *text)
{
    return strncmp(text, "#!", 2) == 0 || strncmp(text, "--", 2) == 0 ||
           strstr(text, " --") != NULL;
}

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

/* A file of another of these trainers. */
static enum zd_status check_format(
        const char *option, const json_t *table, const char *path,
        const json_t *root)
{
    const char *other = guess(root);
    const char *base = json_string_at(table, "base");
    if (!other || !strcmp(other, option) || (base && !strcmp(other, base)))
        return ZD_OK;
    json_auto_t *its = foreign_table(other);
    ZD_FAIL(ZD_ERR_DATA, "E0221", "%s is %s, not %s", path,
            json_string_at(its, "name"), json_string_at(table, "name"));
    zd_fail_help("zerod init --from-%s %s", other, path);
    return ZD_ERR_DATA;
}

static enum zd_status tell_command_line(const char *path, const char *format)
{
    zd_error_clear();
    ZD_FAIL(ZD_ERR_DATA, "E0221", "%s is a command line, not %s", path, format);
    return zd_fail_help(
            "write its arguments as JSON, for --from-hf: "
            "{\"model_name_or_path\": \"...\", \"train_file\": \"...\"}");
}

enum zd_status foreign_read(
        const char *option, const char *path, struct draft *draft,
        json_t **root_out)
{
    struct toml_source *source = &draft->sources[draft->source_count];
    assert(draft->source_count < DRAFT_SOURCES);
    ZD_TRY(fs_read_file(path, FILE_MAX, &source->text, &source->bytes));
    source->name = zd_must(strdup(path));
    draft->source_count++;
    json_auto_t *table = foreign_table(option);
    const char *format = json_string_at(table, "name");
    bool is_yaml = json_is_true(json_object_get(table, "yaml"));
    enum zd_status status = parse_file(format, is_yaml, source, root_out);
    if (status == ZD_OK)
        status = check_format(option, table, path, *root_out);
    else if (!json_is_object(*root_out) && is_command_line(source->text))
        status = tell_command_line(path, format);
    if (status != ZD_OK) {
        json_decref(*root_out);
        *root_out = NULL;
    }
    return status;
}
