/* foreign_file.c - files of other trainers, and those that they name. */
#include "base/file/fs.h"
#include "daemon/init/foreign.h"
#include "daemon/init/yaml_door.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 1 << 20 };

enum zd_status foreign_read(
        const struct foreign_format *format, const char *path,
        json_t **root_out)
{
    char *text;
    size_t bytes;
    ZD_TRY(fs_read_file(path, FILE_MAX, &text, &bytes));
    enum zd_status status =
            format->is_yaml
                    ? yaml_parse(text, bytes, path, root_out)
                    : json_parse(text, bytes, path, ZD_ERR_DATA, root_out);
    free(text);
    if (status == ZD_OK && !json_is_object(*root_out)) {
        json_decref(*root_out);
        ZD_FAIL(ZD_ERR_DATA, "E0221", "%s is not %s: it has no keys", path,
                format->name);
        return ZD_ERR_DATA;
    }
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
    if (foreign_read(&foreign_deepspeed, path, &root) != ZD_OK) {
        problem_take_record(&foreign->draft->problems, (struct toml_place){0});
        return;
    }
    foreign_take_part(&foreign_deepspeed, path, root, foreign->draft);
    json_decref(root);
}
