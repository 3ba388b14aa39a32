#include "data/source.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "base/text_buffer.h"
#include "data/folder.h"
#include "data/format.h"
#include "data/stream.h"
#include "data/tokenize.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    WHOLE_MAX = 64 << 20, /* up to here identity is all of the content */
    PART_COUNT = 64,      /* above, that many parts */
    PART_BYTES = 64 << 10,
};

bool source_is_tokens(const struct data_entry *entry, const char *path)
{
    return entry->format == DATA_AUTO ? name_ends_with(path, ".bin")
                                      : format_of(entry->format)->open != NULL;
}

/* --- formats -------------------------------------------------------------- */

/* An array is told by its first byte, after a mark and no more blanks than a
 * record may have. */
static enum zd_status find_array(struct data_file *file)
{
    struct data_stream *stream;
    char part[64 << 10];
    size_t count = sizeof part, at = count;
    enum zd_status status = ZD_OK;
    ZD_TRY(data_stream_open(file, RECORD_MAX_BYTES, &stream));
    for (size_t read = 0;
         status == ZD_OK && count > 0 && at == count && read < RECORD_MAX_BYTES;
         read += count) {
        status = data_stream_read(stream, part, sizeof part, &count);
        for (at = 0;
             status == ZD_OK && at < count &&
             (is_json_space(part[at]) || memchr("\xef\xbb\xbf", part[at], 3));)
            at++;
    }
    file->is_array = status == ZD_OK && at < count && part[at] == '[';
    data_stream_close(stream);
    return status;
}

/* The unit with the first line that is not blank, which begins at
 * *begin_out. */
static enum zd_status read_first_line(
        struct data_file *file, struct unit *unit, size_t *begin_out)
{
    const struct file_list one = {.files = file, .count = 1};
    ZD_SCOPED(unit_reader_fini)
    struct unit_reader reader = {
            .list = &one, .most = RECORD_MAX_BYTES, .file = -1};
    bool more = true;
    *begin_out = 0;
    while (more && *begin_out == unit->bytes &&
           reader.offset < RECORD_MAX_BYTES) {
        ZD_TRY(unit_read(&reader, unit, &more));
        *begin_out = json_blanks(unit->text, unit->bytes);
    }
    if (*begin_out < unit->bytes)
        return ZD_OK;
    return ZD_BAD(
            "E0439", "%s holds no document%s", file->path,
            reader.offset >= RECORD_MAX_BYTES ? " in its first 256 MiB" : "");
}

/* The format by the first record. An error in it is reported, with its place,
 * when it is read. */
static enum zd_status detect_record(
        const struct data_entry *entry, struct data_file *file,
        const struct unit *unit, size_t begin)
{
    json_auto_t *record = NULL;
    struct zd_error before = *zd_error_get();
    const char *line = unit->text + begin;
    size_t bytes = unit->bytes - begin;
    const char *end = memchr(line, '\n', bytes);
    if (json_parse_record(
                line, end ? (size_t)(end - line) : bytes, file->path,
                ZD_ERR_DATA, &record) != ZD_OK)
        zd_error_set(&before);
    file->format = DATA_TEXT;
    if (!record)
        return ZD_OK;
    record = columns_apply(entry, record);
    enum data_format format = format_recognize(record, entry);
    enum zd_status status = format_check(record, entry, format);
    if (format != DATA_AUTO)
        file->format = format;
    else if (status == ZD_OK && json_is_object(record)) {
        struct text_buffer keys = TEXT_BUFFER(400);
        format_keys(entry, &keys);
        status = ZD_BAD(
                "E0431",
                "the keys of the records in %s match no known format: %s",
                file->path, keys.out);
        zd_fail_help("name the key of the text: field = \"...\"; or those of a "
                     "known format: columns = [\"question=prompt\", "
                     "\"answer=completion\"]");
    }
    if (status != ZD_OK)
        source_place(
                file, unit->first_line + count_newlines(unit->text, begin));
    return status;
}

/* Of a file of records, how they are stored and what they are. */
static enum zd_status look_at_record(
        const struct data_entry *entry, struct data_file *file)
{
    ZD_SCOPED(unit_fini) struct unit unit = {0};
    size_t begin;
    if (file->container != CONTAINER_PARQUET)
        ZD_TRY(find_array(file));
    ZD_TRY(read_first_line(file, &unit, &begin));
    return file->format == DATA_AUTO ? detect_record(entry, file, &unit, begin)
                                     : ZD_OK;
}

static enum zd_status detect_tokens(struct data_file *file, int fd)
{
    int32_t magic = 0;
    if (file->bytes >= sizeof magic)
        ZD_TRY(fs_pread(fd, file->path, &magic, sizeof magic, 0));
    file->format = format_recognize_tokens(file->path, magic);
    if (file->format != DATA_AUTO)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_CONFIG, "E0431",
            "cannot tell the format of %s: it has no .idx beside it and no "
            "llm.c header",
            file->path);
    return zd_fail_help(
            "set format = \"nanogpt\" if it holds bare 16-bit tokens");
}

/* A table of text is made records by Python's own csv. */
static enum zd_status help_with_name(const char *path)
{
    struct text_buffer quoted = TEXT_BUFFER(2 * PATH_MAX);
    const char *reader = name_ends_with(path, ".gz")    ? "gzip -dc"
                         : name_ends_with(path, ".zst") ? "zstd -dc"
                                                        : "cat";
    bool has_tabs = strcasestr(path, ".tsv") != NULL;
    if (!has_tabs && !strcasestr(path, ".csv"))
        return zd_fail_help("format = \"text\" trains on the file as it is");
    text_buffer_add_word(&quoted, path);
    return zd_fail_help(
            "%s %s | python3 -c \"import csv, json, sys; "
            "[print(json.dumps(r)) for r in csv.DictReader(sys.stdin%s)]\" "
            ">data.jsonl",
            reader, quoted.out, has_tabs ? ", delimiter='\\t'" : "");
}

static enum zd_status settle_format(
        const struct data_entry *entry, struct data_file *file)
{
    int fd;
    bool is_tokens = source_is_tokens(entry, file->path);
    enum name_kind kind = name_kind(file->path);
    file->format = entry->format;
    file->container = is_tokens ? CONTAINER_PLAIN : name_container(file->path);
    enum zd_status status = fs_open_read(file->path, &fd, &file->bytes);
    ZD_TRY(status);
    if (file->bytes == 0)
        status = ZD_BAD("E0439", "%s is empty", file->path);
    else if (!is_tokens)
        status = foreign_check(fd, file->path, file->container);
    else if (file->format == DATA_AUTO)
        status = detect_tokens(file, fd);
    close(fd);
    if (status != ZD_OK || is_tokens)
        return status;
    file->has_lines = kind == NAME_RECORDS || kind == NAME_TABLE ||
                      (file->format != DATA_AUTO && file->format != DATA_TEXT);
    if (file->has_lines)
        return look_at_record(entry, file);
    if (file->format == DATA_AUTO && kind != NAME_TEXT) {
        /* no known ending: a CSV table would be trained on as text */
        ZD_FAIL(ZD_ERR_CONFIG, "E0431",
                "cannot tell the format of %s: .txt and .text are text, "
                ".jsonl, .ndjson and .json are records, each also as .gz or "
                ".zst, .parquet is records, .bin is tokens",
                file->path);
        return help_with_name(file->path);
    }
    file->format = DATA_TEXT;
    return ZD_OK;
}

/* The paths that the entry names. */
static enum zd_status find_paths(
        const struct data_entry *entry, struct file_list *list,
        json_t **paths_out)
{
    if (fs_is_dir(entry->path)) {
        enum zd_status status = folder_find(entry, list, paths_out);
        return status == ZD_OK ? ZD_OK : zd_fail_where("%s", entry->path);
    }
    ZD_TRY(match_files(entry->path, paths_out));
    bool is_train = strcmp(entry->split, "auto") == 0 ||
                    strcmp(entry->split, "train") == 0;
    if (json_array_size(*paths_out) > 0 && !is_train)
        return ZD_BAD(
                "E0454", "%s has no split \"%s\": splits are of folders",
                entry->path, entry->split);
    return ZD_OK;
}

/* An index is part of its .bin. */
static enum zd_status expand(
        const struct data_entry *entry, struct file_list *list)
{
    json_auto_t *found = NULL;
    ZD_TRY(find_paths(entry, list, &found));
    const char *first = json_string_value(json_array_get(found, 0));
    bool is_plain =
            json_array_size(found) == 1 && strcmp(first, entry->path) == 0;
    list->files = zd_array(json_array_size(found), sizeof *list->files);
    JSON_EACH(path, found) {
        const char *name = json_string_value(path);
        if (is_plain || !name_ends_with(name, ".idx"))
            list->files[list->count++].path = zd_must(strdup(name));
    }
    if (is_plain && name_ends_with(first, ".idx"))
        memcpy(strrchr(list->files->path, '.'), ".bin", 4);
    if (list->count > 0)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_NO_INPUT, "E0430",
            strpbrk(entry->path, "*?[{") ? "no file matches %s"
                                         : "%s does not exist",
            entry->path);
    return zd_fail_help("paths are relative to where zerod is started");
}

enum zd_status sources_find(
        const struct data_entry *entry, struct file_list *list_out)
{
    ZD_SCOPED(sources_free) struct file_list list = {.entry = *entry};
    ZD_TRY(columns_check(entry));
    ZD_TRY(expand(entry, &list));
    for (int i = 0; i < list.count; i++) {
        ZD_TRY(settle_format(&list.entry, &list.files[i]));
        enum data_format format = list.files[i].format;
        if (i > 0 && format != list.files[0].format &&
            (format_of(format)->open != NULL || list.is_tokens))
            return ZD_FAIL(
                    ZD_ERR_CONFIG, "E0432",
                    "%s is %s and %s is %s; make them two entries",
                    list.files[0].path, format_of(list.files[0].format)->name,
                    list.files[i].path, format_of(format)->name);
        list.is_tokens = format_of(format)->open != NULL;
        list.is_text = format == DATA_TEXT && (i == 0 || list.is_text);
        list.has_chat |= format_of(format)->is_chat;
    }
    *list_out = ZD_TAKE(list);
    return ZD_OK;
}

void sources_free(struct file_list *list)
{
    for (int i = 0; i < list->count; i++)
        free(list->files[i].path);
    free(list->files);
    free(list->columns);
    free(list->roles);
    json_decref(list->strings);
    memset(list, 0, sizeof *list);
}

static enum zd_status hash_parts(
        int fd, const char *path, uint64_t file_bytes, struct hasher *hasher)
{
    ZD_FREED char *part = zd_must(malloc(1 << 20));
    bool whole = file_bytes <= WHOLE_MAX;
    uint64_t bytes = whole ? 1 << 20 : PART_BYTES;
    uint64_t step = whole ? bytes : (file_bytes - bytes) / (PART_COUNT - 1);
    for (uint64_t at = 0; at < file_bytes; at += step) {
        if (at + bytes > file_bytes)
            bytes = file_bytes - at;
        ZD_TRY(fs_pread(fd, path, part, (size_t)bytes, at));
        hasher_update(hasher, part, (size_t)bytes);
    }
    return ZD_OK;
}

static enum zd_status path_identity(
        const char *path, bool portable, struct hasher *hasher)
{
    struct stat info;
    uint64_t bytes;
    int fd;
    ZD_TRY(fs_open_read(path, &fd, &bytes));
    hasher_update(hasher, &bytes, sizeof bytes);
    enum zd_status status = hash_parts(fd, path, bytes, hasher);
    if (status == ZD_OK && !portable && bytes > WHOLE_MAX &&
        fstat(fd, &info) == 0) {
        int64_t stamp[] = {
                (int64_t)info.st_dev,         (int64_t)info.st_ino,
                (int64_t)info.st_mtim.tv_sec, (int64_t)info.st_mtim.tv_nsec,
                (int64_t)info.st_ctim.tv_sec, (int64_t)info.st_ctim.tv_nsec};
        hasher_update(hasher, stamp, sizeof stamp);
    }
    close(fd);
    return status;
}

enum zd_status source_identity(
        const struct data_file *file, bool portable, struct hasher *hasher)
{
    char index[PATH_MAX];
    ZD_TRY(path_identity(file->path, portable, hasher));
    if (!format_of(file->format)->has_index)
        return ZD_OK;
    megatron_index_path(file->path, index);
    return path_identity(index, portable, hasher);
}

enum zd_status sources_identity(
        const struct file_list *list, bool portable, struct hasher *hasher)
{
    ZD_EACH(file, list->files, list->count) {
        const int64_t facts[] = {file->format, file->has_lines};
        hasher_update(hasher, facts, sizeof facts);
        ZD_TRY(source_identity(file, portable, hasher));
    }
    return ZD_OK;
}
