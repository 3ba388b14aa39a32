/* foreign_file.c - files of other trainers, and those that they name. */
#include "base/file/fs.h"
#include "base/must.h"
#include "daemon/init/foreign.h"
#include "daemon/init/yaml_door.h"

#include <assert.h>
#include <limits.h>
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
        const struct foreign_format *format, const struct toml_source *source,
        json_t **out)
{
    const char *text = source->text;
    bool is_json = !format->is_yaml &&
                   text[strspn(text, " \t\r\n\xef\xbb\xbf")] == '{';
    *out = NULL;
    ZD_TRY(is_json ? json_parse(
                             text, source->bytes, source->name, ZD_ERR_DATA,
                             out)
                   : yaml_parse(text, source->bytes, source->name, out));
    if (json_is_object(*out))
        return ZD_OK;
    return ZD_FAIL(
            ZD_ERR_DATA, "E0221", "%s is not %s: it has no keys", source->name,
            format->name);
}

enum zd_status foreign_read(
        const struct foreign_format *format, const char *path,
        struct draft *draft, json_t **root_out)
{
    struct toml_source *source = &draft->sources[draft->source_count];
    assert(draft->source_count < DRAFT_SOURCES);
    ZD_TRY(fs_read_file(path, FILE_MAX, &source->text, &source->bytes));
    source->name = zd_must(strdup(path));
    draft->source_count++;
    enum zd_status status = parse(format, source, root_out);
    if (status == ZD_OK)
        return ZD_OK;
    if (!json_is_object(*root_out) && is_command_line(source->text)) {
        zd_error_clear();
        ZD_FAIL(ZD_ERR_DATA, "E0221", "%s is a command line, not %s", path,
                format->name);
        zd_fail_help("write its arguments as JSON, for --from-hf: "
                     "{\"model_name_or_path\": \"...\", \"train_file\": "
                     "\"...\"}");
    }
    json_decref(*root_out);
    return status;
}

/* Where it is, seen from here or from the file that names it. */
static bool find_file(
        const struct foreign *foreign, const char *path, char out[PATH_MAX])
{
    const char *slash = strrchr(foreign->path, '/');
    snprintf(out, PATH_MAX, "%s", path);
    if (fs_exists(out) || path[0] == '/' || !slash)
        return fs_exists(out);
    if ((size_t)(slash - foreign->path) + strlen(path) + 2 > PATH_MAX)
        return false;
    snprintf(
            out, PATH_MAX, "%.*s/%s", (int)(slash - foreign->path),
            foreign->path, path);
    return fs_exists(out);
}

void foreign_take_deepspeed(
        struct foreign *foreign, const char *name, const json_t *value)
{
    char path[PATH_MAX];
    json_t *root = NULL;
    if (foreign_is_open(value) || json_is_false(value))
        return;
    if (json_is_object(value)) {
        snprintf(path, sizeof path, "%s: %s", foreign->path, name);
        foreign_take_part(&foreign_deepspeed, path, value, foreign->draft);
        return;
    }
    if (!json_is_string(value) ||
        !find_file(foreign, json_string_value(value), path)) {
        foreign_refuse(
                foreign, name, value,
                "this DeepSpeed configuration is not there to be read");
        return;
    }
    if (foreign_read(&foreign_deepspeed, path, foreign->draft, &root) !=
        ZD_OK) {
        problem_take_record(&foreign->draft->problems, (struct toml_place){0});
        return;
    }
    foreign_take_part(&foreign_deepspeed, path, root, foreign->draft);
    json_decref(root);
}
