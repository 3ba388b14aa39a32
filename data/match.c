#include "data/match.h"

#include "base/file/fs.h"
#include "base/must.h"

#include <dirent.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Found paths are the keys of an object: each once. */
static void add_path(json_t *found, const char *path)
{
    json_object_set_new_nocheck(found, path, json_null());
}

/* Each `**` is a whole name, and stands outside braces. */
static enum zd_status check_deep(const char *pattern)
{
    int depth = 0;
    for (const char *at = pattern; *at; at++) {
        depth += *at == '{' ? 1 : *at == '}' ? -1 : 0;
        if (strncmp(at, "**", 2) != 0)
            continue;
        bool is_name =
                (at == pattern || at[-1] == '/') && (!at[2] || at[2] == '/');
        if (depth != 0 || !is_name) {
            ZD_FAIL(ZD_ERR_CONFIG, "E0448",
                    "%s: `**` must stand alone between slashes and outside of "
                    "braces",
                    pattern);
            return zd_fail_help("data/**/*.jsonl: below data, at any depth");
        }
        at++;
    }
    return ZD_OK;
}

bool match_escape(const char *name, char *out, size_t out_bytes)
{
    size_t used = 0;
    for (; *name; name++) {
        if (used + 3 > out_bytes)
            return false;
        if (strchr("*?[]{},\\~", *name))
            out[used++] = '\\';
        out[used++] = *name;
    }
    out[used] = '\0';
    return true;
}

static void match_plain(const char *pattern, bool files_only, json_t *found)
{
    glob_t all = {0};
    int result = glob(pattern, GLOB_BRACE, NULL, &all);
    if (result == GLOB_NOSPACE)
        zd_out_of_memory();
    for (size_t i = 0; result == 0 && i < all.gl_pathc; i++)
        if (!files_only || !fs_is_dir(all.gl_pathv[i]))
            add_path(found, all.gl_pathv[i]);
    globfree(&all);
}

static void match_any(const char *pattern, bool files_only, json_t *found);

/* `rest` below `folder` ("" or with a slash at its end) and, so that ** stands
 * for any depth, below each of its folders. */
static void descend(const char *folder, const char *rest, json_t *found)
{
    char pattern[PATH_MAX], path[PATH_MAX];
    struct dirent *item;
    struct stat info;
    if (!match_escape(folder, pattern, sizeof pattern) ||
        strlen(pattern) + strlen(rest) >= sizeof pattern)
        return; /* no file has such a path */
    strcat(pattern, rest);
    match_any(pattern, true, found);
    DIR *dir = opendir(folder[0] ? folder : ".");
    while (dir && (item = readdir(dir))) {
        int length = ZD_PRINT(path, "%s%s", folder, item->d_name);
        if (item->d_name[0] == '.' || length + 1 >= (int)sizeof path ||
            lstat(path, &info) != 0 || !S_ISDIR(info.st_mode))
            continue;
        strcpy(path + length, "/");
        descend(path, rest, found);
    }
    if (dir)
        closedir(dir);
}

/* A pattern that check_deep has passed. */
static void match_any(const char *pattern, bool files_only, json_t *found)
{
    char before[PATH_MAX] = "";
    const char *deep = strstr(pattern, "**");
    json_auto_t *folders = json_object();
    size_t bytes = deep ? (size_t)(deep - pattern) : 0;
    if (!deep) {
        match_plain(pattern, files_only, found);
        return;
    }
    if (bytes >= sizeof before)
        return;
    memcpy(before, pattern, bytes);
    if (bytes == 0)
        add_path(folders, "");
    else
        match_plain(before, false, folders);
    JSON_MEMBERS(folder, unused, folders)
        descend(folder, deep[2] ? deep + 3 : "*", found);
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

enum zd_status match_files(const char *pattern, json_t **paths_out)
{
    json_auto_t *found = json_object();
    size_t count = 0;
    if (fs_exists(pattern)) { /* brackets in it may simply be a name's */
        add_path(found, pattern);
    } else {
        ZD_TRY(check_deep(pattern));
        match_any(pattern, false, found);
    }
    ZD_FREED const char **paths =
            zd_array(json_object_size(found) + 1, sizeof *paths);
    JSON_MEMBERS(path, unused, found)
        paths[count++] = path;
    qsort(paths, count, sizeof *paths, compare_paths);
    *paths_out = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(*paths_out, json_string_nocheck(paths[i]));
    return ZD_OK;
}
