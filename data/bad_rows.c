#include "data/bad_rows.h"

#include "base/file/fs.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

void bad_rows_take(struct bad_rows *rows)
{
    const struct zd_error *error = zd_error_get();
    if (rows->count++ < BAD_ROWS_KEPT) {
        char *row = rows->rows[rows->kept++];
        snprintf(
                row, BAD_ROW_BYTES, "%.160s: %.230s", error->where,
                error->what);
        for (char *c = row; *c; c++) /* a line each */
            *c = *c == '\n' ? ' ' : *c;
    }
    zd_error_clear();
}

void bad_rows_append(struct bad_rows *rows, struct bad_rows *from)
{
    for (int i = 0; i < from->kept && rows->kept < BAD_ROWS_KEPT; i++)
        memcpy(rows->rows[rows->kept++], from->rows[i], BAD_ROW_BYTES);
    rows->count += from->count;
    from->count = from->kept = 0;
}

static void path_of(char out[PATH_MAX], const char *cache)
{
    const char *dot = strrchr(cache, '.');
    size_t stem = dot ? (size_t)(dot - cache) : strlen(cache);
    snprintf(out, PATH_MAX, "%.*s.skipped", (int)stem, cache);
}

enum zd_status bad_rows_save(const struct bad_rows *rows, const char *path)
{
    char text[BAD_ROWS_KEPT * (BAD_ROW_BYTES + 1)], name[PATH_MAX];
    size_t bytes = 0;
    path_of(name, path);
    for (int i = 0; i < rows->kept; i++)
        bytes += (size_t)snprintf(
                text + bytes, sizeof text - bytes, "%s\n", rows->rows[i]);
    return fs_write_file(name, text, bytes);
}

void bad_rows_load(struct bad_rows *rows, const char *path)
{
    char name[PATH_MAX];
    path_of(name, path);
    FILE *file = fs_open_lines(name);
    while (file && rows->kept < BAD_ROWS_KEPT &&
           fgets(rows->rows[rows->kept], BAD_ROW_BYTES, file)) {
        char *row = rows->rows[rows->kept++];
        row[strcspn(row, "\n")] = '\0';
    }
    if (file)
        fclose(file);
}
