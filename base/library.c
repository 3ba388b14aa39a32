#include "base/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct search {
    const char *const *names;
    char *why;
    size_t why_bytes;
};

static void *open_one(const struct search *search, const char *path)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *error = handle ? NULL : dlerror();
    if (error)
        snprintf(search->why, search->why_bytes, "%s", error);
    return handle;
}

/* `folder` may be a pattern, of which each match is tried. A file that is not
 * there leaves no word: the dynamic linker's own says more. */
static void *open_in(const struct search *search, const char *folder)
{
    void *handle = NULL;
    for (const char *const *name = search->names; *name && !handle; name++) {
        char pattern[PATH_MAX];
        glob_t found;
        int length = snprintf(pattern, sizeof pattern, "%s/%s", folder, *name);
        if (length < 0 || (size_t)length >= sizeof pattern)
            continue;
        if (glob(pattern, 0, NULL, &found) == 0)
            for (size_t i = 0; i < found.gl_pathc && !handle; i++)
                handle = open_one(search, found.gl_pathv[i]);
        globfree(&found);
    }
    return handle;
}

static void *open_under(
        const struct search *search, const char *variable, const char *below)
{
    const char *root = getenv(variable);
    char folder[PATH_MAX];
    if (!root || !*root)
        return NULL;
    if (snprintf(folder, sizeof folder, "%s/%s", root, below) >=
        (int)sizeof folder)
        return NULL;
    return open_in(search, folder);
}

static void *open_in_list(const struct search *search, const char *list)
{
    void *handle = NULL;
    while (list && *list && !handle) {
        char folder[PATH_MAX];
        size_t length = strcspn(list, ":");
        if (length > 0 && length < sizeof folder) {
            memcpy(folder, list, length);
            folder[length] = 0;
            handle = open_in(search, folder);
        }
        list += length + (list[length] == ':');
    }
    return handle;
}

static void *open_near_executable(const struct search *search)
{
    static const char *const below[] = {"/lib", "/../lib"};
    void *handle = NULL;
    char path[PATH_MAX + 16];
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (length <= 0)
        return NULL;
    path[length] = 0;
    char *end = strrchr(path, '/');
    for (size_t i = 0; i < sizeof below / sizeof below[0] && !handle; i++) {
        strcpy(end, below[i]);
        handle = open_in(search, path);
    }
    return handle;
}

void *library_open(const char *const *names, char *why, size_t why_bytes)
{
    const struct search search = {names, why, why_bytes};
    static const char packages[] = "lib/python3*/site-packages/nvidia/*/lib";
    void *handle;
    *why = 0;
    if (strchr(names[0], '/'))
        return open_one(&search, names[0]);
    handle = open_in_list(&search, getenv("ZEROD_LIBRARY_PATH"));
    for (const char *const *name = names; *name && !handle; name++)
        handle = open_one(&search, *name);
    if (!handle)
        handle = open_near_executable(&search);
    if (!handle)
        handle = open_under(&search, "CUDA_HOME", "lib64");
    if (!handle)
        handle = open_in(&search, "/usr/local/cuda/lib64");
    if (!handle)
        handle = open_under(&search, "VIRTUAL_ENV", packages);
    if (!handle)
        handle = open_under(&search, "CONDA_PREFIX", packages);
    return handle;
}

struct path_search {
    const char *name;
    char *out;
    size_t bytes;
};

static int visit(struct dl_phdr_info *info, size_t size, void *ctx)
{
    struct path_search *search = ctx;
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *name = slash ? slash + 1 : info->dlpi_name;
    if (strncmp(name, search->name, strlen(search->name)) != 0)
        return 0;
    snprintf(search->out, search->bytes, "%s", info->dlpi_name);
    return 1;
}

bool library_path(const char *name, char *out, size_t bytes)
{
    struct path_search search = {name, out, bytes};
    return dl_iterate_phdr(visit, &search) == 1;
}
