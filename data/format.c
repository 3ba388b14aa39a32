/* format.c - which format a file or a record has, and reading it. */
#include "data/format.h"

#include "base/file/fs.h"
#include "base/text_buffer.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* --- what the name of a file says ----------------------------------------- */

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
    ZD_PRINT(inside, "%s", path);
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
    ZD_PRINT(
            label.text, "%s%s%.80s", entry->path,
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

enum zd_status source_place(const struct data_file *file, int64_t line)
{
    char row[PATH_MAX + 40];
    source_row(file, line, row, sizeof row);
    return zd_fail_where("%s", row);
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
    char head[64];
    struct text_buffer word = TEXT_BUFFER(2 * PATH_MAX);
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
        ZD_BAD("E0431", "%s is %s; data is text or records", path,
               kinds[i].what);
        text_buffer_add_word(&word, path);
        const char *help = kinds[i].help;
        if (help)
            zd_fail_help(
                    "%s%s", help,
                    help[strlen(help) - 1] == ' ' ? word.out : "");
        else
            zd_fail_help("write its texts as JSON Lines: {\"text\": \"...\"}");
        return ZD_ERR_DATA;
    }
    return container ? ZD_BAD("E0431", "%s is not %s", path, names[container])
                     : ZD_OK;
}

/* --- formats -------------------------------------------------------------- */

static const struct format formats[] = {
#define FORMAT(value, word, help, ...) [value] = {.name = word, __VA_ARGS__},
#include "data/formats.inc"
#undef FORMAT
};

enum { FORMATS = sizeof formats / sizeof formats[0] };

const struct format *format_of(enum data_format format)
{
    return &formats[format];
}

/* --- recognized by their keys --- */

static bool has_keys(
        const json_t *record, const struct data_entry *entry,
        const struct format *format)
{
    for (int i = 0; i < 2 && format->keys[i]; i++)
        if (!record_get(record, record_key(entry, format->keys[i])))
            return false;
    return format->keys[0] != NULL;
}

enum data_format format_recognize(
        const json_t *record, const struct data_entry *entry)
{
    for (int i = 0; i < FORMATS; i++)
        if (formats[i].fits ? formats[i].fits(record, entry)
                            : has_keys(record, entry, &formats[i]))
            return (enum data_format)i;
    return DATA_AUTO;
}

void format_keys(const struct data_entry *entry, struct text_buffer *out)
{
    for (int i = 0; i < FORMATS; i++)
        for (int k = 0; k < 2 && formats[i].keys[k]; k++)
            text_buffer_add(
                    out, "%s\"%s\"",
                    k           ? " and "
                    : out->used ? ", "
                                : "",
                    record_key(entry, formats[i].keys[k]));
}

enum data_format format_recognize_tokens(const char *path, int32_t magic)
{
    char index[PATH_MAX];
    megatron_index_path(path, index);
    for (int i = 0; i < FORMATS; i++) {
        bool is_it = formats[i].has_index && fs_exists(index);
        for (int m = 0; m < 3 && magic; m++)
            is_it |= magic == formats[i].magics[m];
        if (is_it)
            return (enum data_format)i;
    }
    return DATA_AUTO;
}

/* Two formats that fit are two ways to train: only the job can say which. */
static enum zd_status check_one_fits(
        const json_t *record, const struct data_entry *entry)
{
    const char *key = NULL;
    int first = 0;
    for (int i = 0; i < FORMATS; i++) {
        if (!has_keys(record, entry, &formats[i]))
            continue;
        const char *other = record_key(entry, formats[i].keys[0]);
        bool is_same = formats[first].is_chat && formats[i].is_chat &&
                       strcmp(key, other) == 0;
        if (key && !is_same) {
            ZD_BAD("E0431",
                   "the record fits two forms: it has \"%s\" and \"%s\"", key,
                   other);
            return zd_fail_help(
                    "say which is meant: format = \"%s\", or format = \"%s\"",
                    formats[first].name, formats[i].name);
        }
        key = other;
        first = i;
    }
    return ZD_OK;
}

enum zd_status format_check(
        const json_t *record, const struct data_entry *entry,
        enum data_format format)
{
    /* that their author expects to change what is trained */
    static const char *const keys[] = {
            "labels", "loss_mask", "images", "videos", "audios"};
    const json_t *weight = record_get(record, "weight");
    if (entry->format == DATA_AUTO)
        ZD_TRY(check_one_fits(record, entry));
    bool is_named = formats[entry->format].is_chat || format == DATA_TEXT;
    if (!is_named)
        ZD_TRY(record_check_preference(record));
    if (format != DATA_TEXT &&
        json_is_boolean(json_object_get(record, "label")))
        return record_refuse_preference("a KTO \"label\"");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(keys[i], entry->field) != 0)
            ZD_TRY(record_refuse_filled(record, keys[i], "a record", NULL));
    if (formats[format].is_chat)
        ZD_TRY(record_refuse_filled(
                record, "functions", "a conversation",
                "write them as \"tools\""));
    if (weight && !(json_is_number(weight) && json_number_value(weight) == 1))
        return record_refuse_key(
                "weight", "a record",
                "sources have a weight, in [[data.train]]; so have messages, "
                "of 0 or 1");
    return ZD_OK;
}

enum zd_status format_read(
        const struct reading *reading, enum data_format format)
{
    static const char *const types[] = {"an object", "an array", "a string",
                                        "a number",  "a number", "true",
                                        "false",     "null"};
    const struct format *it = &formats[format];
    const struct recipe *recipe = reading->recipe;
    const json_t *record = reading->record;
    document_clear(reading->document);
    if (!json_is_object(record)) {
        ZD_BAD("E0436", "the row is %s, not a JSON object",
               types[json_typeof(record)]);
        return zd_fail_help("a row has to be an object: {\"text\": \"...\"}");
    }
    ZD_TRY(format_check(record, recipe->entry, format));
    bool is_messages = format == DATA_COMPLETION &&
                       json_is_array(json_object_get(record, "prompt"));
    if (is_messages && !recipe->chat)
        return chat_fail_none(recipe->tokenizer, ZD_ERR_DATA);
    bool is_own = it->talk && recipe->entry->format == DATA_AUTO &&
                  recipe->chat && !recipe->chat->is_layout;
    bool talks = is_messages || it->is_chat || is_own;
    return talks && it->talk ? it->talk(reading) : it->read(reading);
}
