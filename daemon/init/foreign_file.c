/* foreign_file.c - reads files of other trainers. */
#include "base/file/fs.h"
#include "base/must.h"
#include "daemon/init/foreign.h"
#include "daemon/init/yaml_door.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 1 << 20 };

/* A shell script, or the words of one: `python run_clm.py --seed 1`. */
static bool is_command_line(const char *text)
{
    return strncmp(text, "#!", 2) == 0 || strncmp(text, "--", 2) == 0 ||
           strstr(text, " --") != NULL;
}

static enum zd_status parse(
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
        ZD_TRY(json_parse(
                text, source->bytes, source->name, ZD_ERR_DATA, out));
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
    const char *other = foreign_guess(root);
    const char *base = json_string_value(json_object_get(table, "base"));
    if (!other || !strcmp(other, option) || (base && !strcmp(other, base)))
        return ZD_OK;
    json_t *its = foreign_table(other);
    ZD_FAIL(ZD_ERR_DATA, "E0221", "%s is %s, not %s", path,
            json_string_value(json_object_get(its, "name")),
            json_string_value(json_object_get(table, "name")));
    zd_fail_help("zerod init --from-%s %s", other, path);
    json_decref(its);
    return ZD_ERR_DATA;
}

static enum zd_status tell_command_line(const char *path, const char *format)
{
    zd_error_clear();
    ZD_FAIL(ZD_ERR_DATA, "E0221", "%s is a command line, not %s", path, format);
    zd_fail_help("write its arguments as JSON, for --from-hf: "
                 "{\"model_name_or_path\": \"...\", \"train_file\": \"...\"}");
    return ZD_ERR_DATA;
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
    json_t *table = foreign_table(option);
    const char *format = json_string_value(json_object_get(table, "name"));
    bool is_yaml = json_is_true(json_object_get(table, "yaml"));
    enum zd_status status = parse(format, is_yaml, source, root_out);
    if (status == ZD_OK)
        status = check_format(option, table, path, *root_out);
    else if (!json_is_object(*root_out) && is_command_line(source->text))
        status = tell_command_line(path, format);
    if (status != ZD_OK) {
        json_decref(*root_out);
        *root_out = NULL;
    }
    json_decref(table);
    return status;
}
