#include "base/library.h"

#include "base/text_buffer.h"
#include "base/words.h"

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

/* `folder` may be a pattern, of which each match is tried. A missing file is
 * not reported: the dynamic linker's own message says more. */
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

static void *open_in_list(const struct search *search, const char *list)
{
    char folder[PATH_MAX];
    void *handle = NULL;
    while (!handle && words_next(&list, ":", folder, sizeof folder))
        handle = open_in(search, folder);
    return handle;
}

/* The folders to look in after the dynamic linker's own. */
static void list_folders(char *out, size_t bytes)
{
    static const char packages[] = "lib/python3*/site-packages/nvidia/*/lib";
    const struct {
        const char *root, *below;
    } folders[] = {
            {getenv("CUDA_HOME"), "lib64"},
            {"/usr/local/cuda", "lib64"},
            {getenv("VIRTUAL_ENV"), packages},
            {getenv("CONDA_PREFIX"), packages}};
    struct text_buffer text = {.out = out, .bytes = bytes};
    char program[PATH_MAX] = "";
    if (readlink("/proc/self/exe", program, sizeof program - 1) > 0) {
        *strrchr(program, '/') = '\0';
        text_buffer_add(&text, "%s/lib:%s/../lib", program, program);
    }
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        if (folders[i].root && *folders[i].root)
            text_buffer_add(&text, ":%s/%s", folders[i].root, folders[i].below);
}

void *library_open(const char *const *names, char *why, size_t why_bytes)
{
    const struct search search = {names, why, why_bytes};
    char folders[4 * PATH_MAX];
    *why = 0;
    if (strchr(names[0], '/'))
        return open_one(&search, names[0]);
    void *handle = open_in_list(&search, getenv("ZEROD_LIBRARY_PATH"));
    for (const char *const *name = names; *name && !handle; name++)
        handle = open_one(&search, *name);
    if (!handle) {
        list_folders(folders, sizeof folders);
        handle = open_in_list(&search, folders);
    }
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
