/* names.c - what a file's name and its first bytes say of it. */
#include "data/source.h"

#include "base/text_buffer.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

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

/* --- by its first bytes -------------------------------------------------- */

static const struct {
    const char *magic;
    const char *what;
    /* how to make text of it; the path follows a blank at the end */
    const char *help;
    enum data_container container; /* files of that name are read */
} kinds[] = {
        {"PAR1", "a Parquet table",
         "give it a name that ends in .parquet, and its rows are read",
         CONTAINER_PARQUET},
        {"ARROW1", "an Arrow file",
         "python3 -c \"import pyarrow.feather as f, sys; "
         "f.read_feather(sys.argv[1]).to_json(sys.argv[1] + '.jsonl', "
         "orient='records', lines=True)\" "},
        {"\xff\xff\xff\xff", "an Arrow stream",
         "python3 -c \"import datasets as d, sys; "
         "d.Dataset.from_file(sys.argv[1]).to_json(sys.argv[1] + '.jsonl')\" "},
        {"\x28\xb5\x2f\xfd", "compressed by zstd",
         "give it a name that ends in .zst, and it is decompressed",
         CONTAINER_ZSTD},
        {"\x1f\x8b", "compressed by gzip",
         "give it a name that ends in .gz, and it is decompressed",
         CONTAINER_GZIP},
        {"BZh", "compressed by bzip2", "bunzip2 -k "},
        {"\xfd"
         "7zXZ",
         "compressed by xz", "unxz -k "},
        {"PK\3\4", "a zip archive", "unzip "},
        {"\x89HDF", "an HDF5 file", NULL},
        {"\x93NUMPY", "an array of NumPy", NULL},
        {"SQLite format 3", "an SQLite database", NULL},
        {"%PDF-", "a PDF", "pdftotext "},
        {"version https://git-lfs.github.com/spec/",
         "a pointer of Git LFS, not the data itself", "git lfs pull"},
};

enum zd_status foreign_check(
        int fd, const char *path, enum data_container container)
{
    static const char *const names[] = {
            [CONTAINER_GZIP] = "a gzip file",
            [CONTAINER_ZSTD] = "a zstd file",
            [CONTAINER_PARQUET] = "a Parquet file"};
    char head[64], word[2 * PATH_MAX] = "";
    struct text_buffer text = {.out = word, .bytes = sizeof word};
    ssize_t bytes = pread(fd, head, sizeof head, 0);
    /* a frame that zstd skips, where pzstd has sizes */
    if (bytes >= 4 && (head[0] & 0xf0) == 0x50 &&
        memcmp(head + 1, "\x2a\x4d\x18", 3) == 0)
        memcpy(head, "\x28\xb5\x2f\xfd", 4);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t length = strlen(kinds[i].magic);
        if (bytes < (ssize_t)length || memcmp(head, kinds[i].magic, length))
            continue;
        if (container && kinds[i].container == container)
            return ZD_OK;
        ZD_FAIL(ZD_ERR_DATA, "E0431", "%s is %s; data is text or records", path,
                kinds[i].what);
        text_buffer_add_word(&text, path);
        const char *help = kinds[i].help;
        if (help)
            zd_fail_help(
                    "%s%s", help, help[strlen(help) - 1] == ' ' ? word : "");
        else
            zd_fail_help("write its texts as JSON Lines: {\"text\": \"...\"}");
        return ZD_ERR_DATA;
    }
    return container ? ZD_FAIL(ZD_ERR_DATA, "E0431", "%s is not %s", path,
                               names[container])
                     : ZD_OK;
}
