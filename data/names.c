#include "data/names.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

bool name_ends_with(const char *path, const char *end)
{
    size_t length = strlen(path), end_length = strlen(end);
    return length >= end_length &&
           strcasecmp(path + length - end_length, end) == 0;
}

enum data_container name_container(const char *path)
{
    return name_ends_with(path, ".gz")        ? CONTAINER_GZIP
           : name_ends_with(path, ".zst")     ? CONTAINER_ZSTD
           : name_ends_with(path, ".parquet") ? CONTAINER_PARQUET
                                              : CONTAINER_PLAIN;
}

enum name_kind name_kind(const char *path)
{
    static const struct {
        const char *end;
        enum name_kind kind;
    } ends[] = {
            {".jsonl", NAME_RECORDS},
            {".ndjson", NAME_RECORDS},
            {".json", NAME_RECORDS},
            {".txt", NAME_TEXT},
            {".text", NAME_TEXT}};
    char inside[PATH_MAX];
    enum data_container container = name_container(path);
    if (container == CONTAINER_PARQUET)
        return NAME_TABLE;
    snprintf(inside, sizeof inside, "%s", path);
    if (container != CONTAINER_PLAIN)
        *strrchr(inside, '.') = '\0';
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (name_ends_with(inside, ends[i].end))
            return ends[i].kind;
    return NAME_OTHER;
}

/* --- places in files, for messages --- */

static bool has_rows(const struct data_file *file)
{
    return file->is_array || file->container == CONTAINER_PARQUET;
}

struct source_label source_label(const struct data_entry *entry)
{
    struct source_label label;
    snprintf(
            label.text, sizeof label.text, "%s%s%.80s", entry->path,
            entry->name[0] ? ", set " : "", entry->name);
    return label;
}

const char *source_unit(const struct data_file *file)
{
    return has_rows(file) ? "row" : "line";
}

void source_row(
        const struct data_file *file, int64_t line, char *out, size_t bytes)
{
    snprintf(
            out, bytes, "%s:%s%lld", file->path, has_rows(file) ? "row " : "",
            (long long)line);
}

void source_place(const struct data_file *file, int64_t line)
{
    char row[PATH_MAX + 40];
    source_row(file, line, row, sizeof row);
    zd_fail_where("%s", row);
}
