/* scratch.h - a folder of its own for a test, gone at its end, and small files
 * in it. For tests only: whatever fails here ends the test. */
#pragma once

#include "base/file/fs.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct scratch {
    char dir[64];
    char path[PATH_MAX]; /* of the last scratch_path or scratch_file */
};

static inline void scratch_init(struct scratch *scratch)
{
    strcpy(scratch->dir, "/tmp/zerod-test-XXXXXX");
    if (!mkdtemp(scratch->dir))
        abort();
}

static inline void scratch_fini(struct scratch *scratch)
{
    fs_remove_tree(scratch->dir);
}

static inline const char *scratch_path(
        struct scratch *scratch, const char *name)
{
    fs_join(scratch->path, sizeof scratch->path, scratch->dir, name);
    return scratch->path;
}

static inline const char *scratch_file(
        struct scratch *scratch, const char *name, const void *data,
        size_t bytes)
{
    FILE *file = fopen(scratch_path(scratch, name), "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0)
        abort();
    return scratch->path;
}

/* A text, in folders that are made. */
static inline const char *scratch_text(
        struct scratch *scratch, const char *name, const char *text)
{
    char *slash = strrchr(scratch_path(scratch, name), '/');
    *slash = '\0';
    fs_make_dirs(scratch->path);
    return scratch_file(scratch, name, text, strlen(text));
}
