#include "data/match.h"

#include "base/file/fs.h"
#include "base/must.h"

#include <dirent.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void add_path(struct match_list *list, const char *path)
{
    ZD_GROW(list->paths, list->capacity, list->count + 1);
    list->paths[list->count++] = zd_must(strdup(path));
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

static void match_plain(
        const char *pattern, bool files_only, struct match_list *list)
{
    glob_t found = {0};
    int result = glob(pattern, GLOB_BRACE, NULL, &found);
    if (result == GLOB_NOSPACE)
        zd_out_of_memory();
    for (size_t i = 0; result == 0 && i < found.gl_pathc; i++)
        if (!files_only || !fs_is_dir(found.gl_pathv[i]))
            add_path(list, found.gl_pathv[i]);
    globfree(&found);
}

static void match_any(
        const char *pattern, bool files_only, struct match_list *list);

/* `rest` below `folder` ("" or with a slash at its end) and, so that ** stands
 * for any depth, below each of its folders. */
static void descend(
        const char *folder, const char *rest, struct match_list *list)
{
    char pattern[PATH_MAX], path[PATH_MAX];
    struct dirent *item;
    struct stat info;
    if (!match_escape(folder, pattern, sizeof pattern) ||
        strlen(pattern) + strlen(rest) >= sizeof pattern)
        return; /* no file has such a path */
    strcat(pattern, rest);
    match_any(pattern, true, list);
    DIR *dir = opendir(folder[0] ? folder : ".");
    while (dir && (item = readdir(dir))) {
        int length = snprintf(path, sizeof path, "%s%s", folder, item->d_name);
        if (item->d_name[0] == '.' || length + 1 >= (int)sizeof path ||
            lstat(path, &info) != 0 || !S_ISDIR(info.st_mode))
            continue;
        strcpy(path + length, "/");
        descend(path, rest, list);
    }
    if (dir)
        closedir(dir);
}

/* A pattern that check_deep has passed. */
static void match_any(
        const char *pattern, bool files_only, struct match_list *list)
{
    char before[PATH_MAX];
    const char *deep = strstr(pattern, "**");
    struct match_list folders = {0};
    if (!deep) {
        match_plain(pattern, files_only, list);
        return;
    }
    snprintf(before, sizeof before, "%.*s", (int)(deep - pattern), pattern);
    if (deep == pattern)
        add_path(&folders, "");
    else if (deep - pattern < PATH_MAX)
        match_plain(before, false, &folders);
    for (int i = 0; i < folders.count; i++)
        descend(folders.paths[i], deep[2] ? deep + 3 : "*", list);
    match_free(&folders);
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void keep_each_once(struct match_list *list)
{
    int kept = 0;
    if (list->count > 1)
        qsort(list->paths, (size_t)list->count, sizeof *list->paths,
              compare_paths);
    for (int i = 0; i < list->count; i++) {
        if (kept > 0 && strcmp(list->paths[kept - 1], list->paths[i]) == 0)
            free(list->paths[i]);
        else
            list->paths[kept++] = list->paths[i];
    }
    list->count = kept;
}

enum zd_status match_files(const char *pattern, struct match_list *list_out)
{
    struct match_list list = {0};
    if (fs_exists(pattern)) { /* brackets in it may simply be a name's */
        add_path(&list, pattern);
    } else {
        ZD_TRY(check_deep(pattern));
        match_any(pattern, false, &list);
    }
    keep_each_once(&list);
    *list_out = list;
    return ZD_OK;
}

void match_free(struct match_list *list)
{
    for (int i = 0; i < list->count; i++)
        free(list->paths[i]);
    free(list->paths);
    *list = (struct match_list){0};
}
