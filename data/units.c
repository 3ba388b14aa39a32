/* Cutting files into units: whole lines of about a megabyte, or a whole text.
 */
#include "data/tokenize.h"

#include "base/file/fs.h"
#include "base/must.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { UNIT_BYTES = 1 << 20, LINE_MAX_BYTES = 256 << 20, TAIL_BYTES = 4096 };

void unit_reader_init(
        struct unit_reader *reader, const struct file_list *list,
        const struct tokenizer *tokenizer)
{
    *reader = (struct unit_reader){
            .list = list, .tokenizer = tokenizer, .file = -1, .fd = -1};
}

void unit_reader_fini(struct unit_reader *reader)
{
    if (reader->fd >= 0)
        close(reader->fd);
    reader->fd = -1;
}

/* Where the last line that is not blank ends: trailing blank lines are fine. */
static enum zd_status find_end(struct unit_reader *reader, const char *path)
{
    char tail[TAIL_BYTES];
    while (reader->end > reader->at) {
        uint64_t bytes = reader->end - reader->at;
        if (bytes > sizeof tail)
            bytes = sizeof tail;
        ZD_TRY(fs_pread(
                reader->fd, path, tail, (size_t)bytes, reader->end - bytes));
        for (uint64_t i = bytes; i > 0; i--)
            if (!memchr(" \t\r\n", tail[i - 1], 4)) {
                reader->end -= bytes - i;
                return ZD_OK;
            }
        reader->end -= bytes;
    }
    return ZD_OK;
}

static enum zd_status open_next(struct unit_reader *reader)
{
    const struct data_file *file = &reader->list->files[++reader->file];
    uint64_t bytes;
    char mark[3];
    ZD_TRY(fs_open_read(file->path, &reader->fd, &bytes));
    if (bytes != file->bytes)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0441", "%s changed while it was read",
                file->path);
    reader->at = 0;
    reader->end = bytes;
    reader->line = 1;
    if (bytes >= sizeof mark) {
        ZD_TRY(fs_pread(reader->fd, file->path, mark, sizeof mark, 0));
        if (memcmp(mark, "\xef\xbb\xbf", sizeof mark) == 0)
            reader->at = sizeof mark;
    }
    if (file->has_lines)
        ZD_TRY(find_end(reader, file->path));
    if (reader->at == reader->end)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0439", "%s holds no document", file->path);
    return ZD_OK;
}

/* How much of `text`, after which the file goes on, makes a unit; 0: none. */
static size_t cut(
        const struct unit_reader *reader, const struct data_file *file,
        const char *text, size_t bytes)
{
    if (!file->has_lines)
        return tokenizer_cut(reader->tokenizer, text, bytes);
    const char *newline = memrchr(text, '\n', bytes);
    return newline ? (size_t)(newline - text) + 1 : 0;
}

static enum zd_status fail_long_line(
        const struct unit_reader *reader, const char *path)
{
    enum zd_status status =
            ZD_FAIL(ZD_ERR_DATA, "E0440",
                    "line %lld of %s has more than %d "
                    "bytes",
                    (long long)reader->line, path, LINE_MAX_BYTES);
    zd_fail_where("%s:%lld", path, (long long)reader->line);
    return status;
}

/* As much as UNIT_BYTES holds, or more when it cannot be cut there. */
static enum zd_status read_text(
        struct unit_reader *reader, const struct data_file *file,
        struct unit *unit)
{
    uint64_t left = reader->end - reader->at;
    for (size_t want = UNIT_BYTES;; want *= 2) {
        if (want > left)
            want = (size_t)left;
        unit->text = zd_grow(unit->text, &unit->capacity, want, 1);
        ZD_TRY(fs_pread(
                reader->fd, file->path, unit->text + unit->bytes,
                want - unit->bytes, reader->at + unit->bytes));
        unit->bytes = want;
        if (want == left)
            return ZD_OK;
        size_t part = cut(reader, file, unit->text, want);
        if (part > 0) {
            unit->bytes = part;
            return ZD_OK;
        }
        if (file->has_lines && want > LINE_MAX_BYTES)
            return fail_long_line(reader, file->path);
    }
}

int64_t count_newlines(const char *text, size_t bytes)
{
    int64_t count = 0;
    const char *end = text + bytes;
    for (; (text = memchr(text, '\n', (size_t)(end - text))) != NULL; text++)
        count++;
    return count;
}

enum zd_status unit_read(
        struct unit_reader *reader, struct unit *unit, bool *more_out)
{
    bool is_done = reader->fd < 0 || reader->at == reader->end;
    if (is_done) {
        unit_reader_fini(reader);
        *more_out = reader->file + 1 < reader->list->count;
        if (!*more_out)
            return ZD_OK;
        ZD_TRY(open_next(reader));
    }
    const struct data_file *file = &reader->list->files[reader->file];
    unit->file = file;
    unit->offset = reader->at;
    unit->first_line = reader->line;
    unit->begins = is_done; /* the file before was done, this one is new */
    unit->bytes = 0;
    ZD_TRY(read_text(reader, file, unit));
    reader->at += unit->bytes;
    reader->line += count_newlines(unit->text, unit->bytes);
    unit->ends = reader->at == reader->end;
    *more_out = true;
    return ZD_OK;
}
