/* Cutting files into units: whole lines of UNIT_BYTES together, or a part of a
 * text. What a unit does not take of the text that was read is kept as `rest`
 * for the next one. */
#include "data/tokenize.h"

#include "base/must.h"
#include "data/stream.h"

#include <stdlib.h>
#include <string.h>

enum { KEEP_BYTES = 1 << 20 };

void unit_reader_init(
        struct unit_reader *reader, const struct file_list *list,
        const struct tokenizer *tokenizer)
{
    *reader = (struct unit_reader){
            .list = list,
            .tokenizer = tokenizer,
            .most = RECORD_MAX_BYTES,
            .file = -1};
}

void unit_reader_fini(struct unit_reader *reader)
{
    data_stream_close(reader->stream);
    free(reader->rest);
    *reader = (struct unit_reader){.list = NULL};
}

static enum zd_status open_next(struct unit_reader *reader)
{
    ZD_TRY(data_stream_open(
            &reader->list->files[++reader->file], reader->most,
            &reader->stream));
    reader->offset = 0;
    reader->line = 1;
    reader->has_ended = reader->has_unit = false;
    return ZD_OK;
}

int64_t count_newlines(const char *text, size_t bytes)
{
    int64_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += text[i] == '\n';
    return count;
}

/* Whole lines at the beginning of the unit's text. */
static size_t cut_lines(const struct unit *unit)
{
    const char *end = memrchr(unit->text, '\n', unit->bytes);
    return end ? (size_t)(end - unit->text) + 1 : 0;
}

static enum zd_status fail_long(
        const struct unit_reader *reader, const struct data_file *file)
{
    if (file->has_lines)
        ZD_FAIL(ZD_ERR_DATA, "E0440", "%s %lld of %s has more than %zu bytes",
                source_unit(file), (long long)reader->line, file->path,
                reader->most);
    else
        ZD_FAIL(ZD_ERR_DATA, "E0440",
                "%s has more than %zu bytes from byte %llu on without a blank "
                "after a letter or a number, where the tokenizer may cut it",
                file->path, reader->most, (unsigned long long)reader->offset);
    source_place(file, reader->line);
    if (reader->most < RECORD_MAX_BYTES)
        zd_fail_help(
                "`zerod data inspect --job JOB --count 0` tokenizes the data "
                "into the cache, of records of up to %d MiB; then start again",
                RECORD_MAX_BYTES >> 20);
    return ZD_ERR_DATA;
}

/* Up to `want` bytes of text and one more, which shows that more follow. */
static enum zd_status fill(
        struct unit_reader *reader, struct unit *unit, size_t want)
{
    size_t bytes = 0;
    if (reader->has_ended || unit->bytes > want)
        return ZD_OK;
    ZD_GROW(unit->text, unit->capacity, want + 1);
    ZD_TRY(data_stream_read(
            reader->stream, unit->text + unit->bytes, want + 1 - unit->bytes,
            &bytes));
    unit->bytes += bytes;
    reader->has_ended = unit->bytes <= want;
    return ZD_OK;
}

/* As much as UNIT_BYTES holds, or more where it cannot be cut there, into the
 * unit; *part_out: so much of its text belongs to it. */
static enum zd_status read_text(
        struct unit_reader *reader, const struct data_file *file,
        struct unit *unit, size_t *part_out)
{
    for (size_t want = UNIT_BYTES;;) {
        ZD_TRY(fill(reader, unit, want));
        *part_out = reader->has_ended ? unit->bytes
                    : file->has_lines ? cut_lines(unit)
                                      : tokenizer_cut(
                                                reader->tokenizer, unit->text,
                                                unit->bytes - 1);
        if (*part_out > 0 || reader->has_ended)
            return ZD_OK;
        if (unit->bytes > reader->most)
            return fail_long(reader, file);
        if (unit->bytes >= want)
            want = 2 * want < reader->most ? 2 * want : reader->most;
    }
}

/* The text after the first `part` bytes of the unit is kept. */
static void keep_rest(
        struct unit_reader *reader, const struct unit *unit, size_t part)
{
    size_t rest = unit->bytes - part;
    if (reader->rest_capacity > KEEP_BYTES) {
        free(reader->rest);
        reader->rest = NULL;
        reader->rest_capacity = 0;
    }
    if (rest > reader->rest_capacity)
        ZD_GROW(reader->rest, reader->rest_capacity, rest);
    if (rest > 0)
        memcpy(reader->rest, unit->text + part, rest);
    reader->rest_bytes = rest;
}

/* A byte-order mark at the beginning is no text. */
static void skip_mark(
        struct unit_reader *reader, struct unit *unit, size_t *part)
{
    if (reader->offset > 0 || *part < 3 ||
        memcmp(unit->text, "\xef\xbb\xbf", 3) != 0)
        return;
    reader->offset = 3;
    unit->bytes -= 3;
    *part -= 3;
    memmove(unit->text, unit->text + 3, unit->bytes);
}

/* A unit of the open file; *has_out false: there is no more. */
static enum zd_status read_unit(
        struct unit_reader *reader, struct unit *unit, bool *has_out)
{
    const struct data_file *file = &reader->list->files[reader->file];
    size_t part;
    /* what was kept is the beginning */
    ZD_GROW(unit->text, unit->capacity, reader->rest_bytes + 1);
    unit->bytes = reader->rest_bytes;
    memcpy(unit->text, reader->rest ? reader->rest : "", unit->bytes);
    ZD_TRY(read_text(reader, file, unit, &part));
    skip_mark(reader, unit, &part);
    *has_out = part > 0;
    if (part == 0 && !reader->has_unit)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0439", "%s holds no document", file->path);
    bool is_last = reader->has_ended && part == unit->bytes;
    keep_rest(reader, unit, part);
    unit->file = file;
    unit->offset = reader->offset;
    unit->first_line = reader->line;
    unit->consumed = data_stream_consumed(reader->stream);
    unit->begins = !reader->has_unit;
    unit->ends = is_last;
    unit->bytes = part;
    reader->has_unit |= part > 0;
    reader->offset += part;
    reader->line += count_newlines(unit->text, part);
    if (!is_last && part > 0)
        return ZD_OK;
    data_stream_close(reader->stream);
    reader->stream = NULL;
    return ZD_OK;
}

enum zd_status unit_read(
        struct unit_reader *reader, struct unit *unit, bool *more_out)
{
    *more_out = false;
    while (!*more_out) {
        if (!reader->stream && reader->file + 1 == reader->list->count)
            break;
        if (!reader->stream)
            ZD_TRY(open_next(reader));
        ZD_TRY(read_unit(reader, unit, more_out));
    }
    return ZD_OK;
}
