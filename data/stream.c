#include "data/stream.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "data/parquet/parquet.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

struct data_stream {
    const struct data_file *file;
    int fd;
    uint64_t at;               /* next byte of the file to be read */
    struct unpacker *unpacker; /* of gzip and zstd; owned */
    struct parquet *parquet;   /* owned */
    size_t row_most, row_left; /* of a row; of `row`, not handed out yet */
    const char *row;

    /* of an array of records */
    enum { ARRAY_BEFORE, ARRAY_ELEMENT, ARRAY_VALUE, ARRAY_AFTER } phase;
    int depth;
    bool in_string, is_escaped;
    int64_t elements;
};

/* --- compressed ------------------------------------------------------------
 *
 * Read by the compressors' own libraries: gzip's members (RFC 1952) or zstd's
 * frames (RFC 8878), one after the other. zstd's own limit of a window is kept:
 * `zstd -d` has the same without --long. */

enum { INPUT_BYTES = 256 << 10 };

struct unpacker {
    z_stream gzip;
    ZSTD_DStream *zstd;     /* NULL: gzip */
    bool in_part, has_part; /* a member or frame is being read; one was read */
    size_t at, end;         /* in `input`; end 0: the end of the file */
    unsigned char input[INPUT_BYTES];
};

static struct unpacker *unpacker_create(enum data_container container)
{
    struct unpacker *unpacker = zd_array(1, sizeof *unpacker);
    if (container == CONTAINER_ZSTD) {
        unpacker->zstd = zd_must(ZSTD_createDStream());
        ZSTD_DCtx_setParameter(
                unpacker->zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG_MAX);
    } else if (inflateInit2(&unpacker->gzip, 15 + 16) != Z_OK) {
        zd_out_of_memory();
    }
    return unpacker;
}

static void unpacker_destroy(struct unpacker *unpacker)
{
    if (unpacker && unpacker->zstd)
        ZSTD_freeDStream(unpacker->zstd);
    else if (unpacker)
        inflateEnd(&unpacker->gzip);
    free(unpacker);
}

/* `is_after`: it begins no other part. */
static enum zd_status fail_damaged(
        const struct data_stream *s, bool is_after, const char *reason)
{
    const struct unpacker *unpacker = s->unpacker;
    const char *name = unpacker->zstd ? "zstd" : "gzip";
    return is_after && unpacker->has_part
                   ? ZD_BAD("E0451",
                            "%s: what follows its last %s %s is not %s",
                            s->file->path, name,
                            unpacker->zstd ? "frame" : "member", name)
                   : ZD_BAD("E0451", "%s is damaged: %s says \"%s\"",
                            s->file->path, name, reason);
}

static enum zd_status gzip_step(
        struct data_stream *s, char *text, size_t bytes, size_t *bytes_out)
{
    struct unpacker *unpacker = s->unpacker;
    z_stream *z = &unpacker->gzip;
    unsigned room = bytes < 1u << 30 ? (unsigned)bytes : 1u << 30;
    z->next_in = unpacker->input + unpacker->at;
    z->avail_in = (unsigned)(unpacker->end - unpacker->at);
    z->next_out = (Bytef *)text;
    z->avail_out = room;
    int result = inflate(z, Z_NO_FLUSH);
    if (result == Z_MEM_ERROR)
        zd_out_of_memory();
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
        return fail_damaged(s, z->total_out == 0, z->msg ? z->msg : "no data");
    unpacker->at = unpacker->end - z->avail_in;
    unpacker->in_part = result != Z_STREAM_END;
    if (result == Z_STREAM_END) {
        unpacker->has_part = true;
        inflateReset(z);
    }
    *bytes_out = room - z->avail_out;
    return ZD_OK;
}

static enum zd_status zstd_step(
        struct data_stream *s, char *text, size_t bytes, size_t *bytes_out)
{
    struct unpacker *unpacker = s->unpacker;
    ZSTD_outBuffer out = {text, bytes, 0};
    ZSTD_inBuffer in = {unpacker->input, unpacker->end, unpacker->at};
    size_t result = ZSTD_decompressStream(unpacker->zstd, &out, &in);
    ZSTD_ErrorCode code = ZSTD_getErrorCode(result);
    if (code == ZSTD_error_memory_allocation)
        zd_out_of_memory();
    if (code == ZSTD_error_frameParameter_windowTooLarge) {
        ZD_BAD("E0451", "%s was compressed with a window above 128 MiB",
               s->file->path);
        return zd_fail_help(
                "compress it again without --long, or with --long=27");
    }
    if (ZSTD_isError(result))
        return fail_damaged(
                s, code == ZSTD_error_prefix_unknown,
                ZSTD_getErrorName(result));
    unpacker->at = in.pos;
    unpacker->in_part = result != 0;
    unpacker->has_part |= result == 0;
    *bytes_out = out.pos;
    return ZD_OK;
}

static enum zd_status read_packed(
        struct data_stream *s, char *text, size_t bytes, size_t *bytes_out)
{
    struct unpacker *unpacker = s->unpacker;
    /* zstd may have text that it did not give yet */
    bool may_hold_more = unpacker->zstd && unpacker->in_part;
    for (*bytes_out = 0; *bytes_out == 0; may_hold_more = false) {
        if (unpacker->at == unpacker->end && !may_hold_more) {
            uint64_t left = s->file->bytes - s->at;
            unpacker->at = 0;
            unpacker->end = left < INPUT_BYTES ? (size_t)left : INPUT_BYTES;
            ZD_TRY(fs_pread(
                    s->fd, s->file->path, unpacker->input, unpacker->end,
                    s->at));
            s->at += unpacker->end;
            if (unpacker->end == 0 && unpacker->in_part)
                return ZD_BAD(
                        "E0451", "%s: the file ends inside a %s", s->file->path,
                        unpacker->zstd ? "zstd frame" : "gzip member");
            if (unpacker->end == 0)
                break;
        }
        ZD_TRY((unpacker->zstd ? zstd_step
                               : gzip_step)(s, text, bytes, bytes_out));
    }
    return ZD_OK;
}

/* --- any file ------------------------------------------------------------- */

enum { ARRAY_BYTES = 256 << 10 };

static enum zd_status read_plain(
        struct data_stream *s, char *text, size_t bytes, size_t *bytes_out)
{
    uint64_t left = s->file->bytes - s->at;
    if (bytes > left)
        bytes = (size_t)left;
    *bytes_out = bytes;
    ZD_TRY(fs_pread(s->fd, s->file->path, text, bytes, s->at));
    s->at += bytes;
    return ZD_OK;
}

static enum zd_status read_row(
        struct data_stream *s, char *text, size_t bytes, size_t *bytes_out)
{
    if (s->row_left == 0)
        ZD_TRY(parquet_row(s->parquet, s->row_most, &s->row, &s->row_left));
    s->at = parquet_consumed(s->parquet);
    *bytes_out = bytes < s->row_left ? bytes : s->row_left;
    if (*bytes_out > 0)
        memcpy(text, s->row, *bytes_out);
    s->row += *bytes_out;
    s->row_left -= *bytes_out;
    return ZD_OK;
}

/* At least one byte, up to `bytes`; 0: the end. */
static enum zd_status read_part(
        struct data_stream *s, char *text, size_t bytes, size_t *bytes_out)
{
    return (s->parquet    ? read_row
            : s->unpacker ? read_packed
                          : read_plain)(s, text, bytes, bytes_out);
}

static enum zd_status begin(struct data_stream *s)
{
    const struct data_file *file = s->file;
    uint64_t bytes = 0;
    ZD_TRY(fs_open_read(file->path, &s->fd, &bytes));
    if (bytes != file->bytes)
        return ZD_BAD("E0441", "%s changed while it was read", file->path);
    if (file->container == CONTAINER_PARQUET)
        return parquet_open(s->fd, file->path, bytes, &s->parquet);
    if (file->container != CONTAINER_PLAIN)
        s->unpacker = unpacker_create(file->container);
    return ZD_OK;
}

enum zd_status data_stream_open(
        const struct data_file *file, size_t row_most, struct data_stream **out)
{
    struct data_stream *s = zd_array(1, sizeof *s);
    *s = (struct data_stream){.file = file, .fd = -1, .row_most = row_most};
    enum zd_status status = begin(s);
    if (status == ZD_OK)
        *out = s;
    else
        data_stream_close(s);
    return status;
}

/* --- an array of records ---------------------------------------------------
 *
 * Elements are told apart by depth and strings alone; each one is parsed, and
 * refused if it is not JSON, where lines are. */

static enum zd_status fail_array(const struct data_stream *s, const char *what)
{
    long long row = (long long)s->elements;
    ZD_BAD("E0436", "row %lld of the array in %s: %s", row, s->file->path,
           what);
    return zd_fail_where("%s:row %lld", s->file->path, row);
}

/* A byte of an element; *out: what stands for it in the element's line. Line
 * feeds between its parts become blanks. One inside a string is not JSON, and
 * a carriage return, which is not either, keeps it so. */
static void take_value(struct data_stream *s, char c, char *out)
{
    *out = c;
    if (s->in_string) {
        if (c == '\n')
            *out = '\r';
        if (s->is_escaped)
            s->is_escaped = false;
        else if (c == '\\')
            s->is_escaped = true;
        else if (c == '"')
            s->in_string = false;
    } else if (c == '"') {
        s->in_string = true;
    } else if (c == '{' || c == '[') {
        s->depth++;
    } else if ((c == '}' || c == ']') && s->depth > 0) {
        s->depth--;
    } else if (c == '\n') {
        *out = ' ';
    } else if (s->depth == 0 && (c == ',' || c == ']')) {
        s->phase = c == ',' ? ARRAY_ELEMENT : ARRAY_AFTER;
        *out = '\n';
    }
}

/* It may give a byte of text, at text[*used]. */
static enum zd_status take_byte(
        struct data_stream *s, char c, char *text, size_t *used)
{
    if (s->phase == ARRAY_VALUE) {
        take_value(s, c, &text[(*used)++]);
        return ZD_OK;
    }
    if (is_json_space(c))
        return ZD_OK;
    if (s->phase == ARRAY_BEFORE) { /* '[', perhaps after a mark */
        s->phase = c == '[' ? ARRAY_ELEMENT : ARRAY_BEFORE;
        return ZD_OK;
    }
    if (s->phase == ARRAY_AFTER)
        return fail_array(s, "text follows the array");
    if (c == ']' && s->elements == 0) {
        s->phase = ARRAY_AFTER;
        return ZD_OK;
    }
    s->elements++;
    if (c == ']' || c == ',')
        return fail_array(s, "there is no value before this comma or bracket");
    s->phase = ARRAY_VALUE;
    take_value(s, c, &text[(*used)++]);
    return ZD_OK;
}

static enum zd_status array_read(
        struct data_stream *s, char *text, size_t bytes, size_t *bytes_out)
{
    size_t used = 0;
    while (used == 0) {
        size_t count = 0, want = bytes < ARRAY_BYTES ? bytes : ARRAY_BYTES;
        /* a byte gives at most one, so it is taken apart where it lies */
        ZD_TRY(read_part(s, text, want, &count));
        if (count == 0 && s->phase != ARRAY_AFTER)
            return fail_array(s, "the file ends inside the array");
        for (size_t i = 0; i < count; i++)
            ZD_TRY(take_byte(s, text[i], text, &used));
        if (count == 0)
            break;
    }
    *bytes_out = used;
    return ZD_OK;
}

/* -------------------------------------------------------------------------- */

enum zd_status data_stream_read(
        struct data_stream *s, char *text, size_t bytes, size_t *bytes_out)
{
    size_t done = 0, part = 1;
    while (done < bytes && part > 0) {
        ZD_TRY((s->file->is_array ? array_read : read_part)(
                s, text + done, bytes - done, &part));
        done += part;
    }
    *bytes_out = done;
    return ZD_OK;
}

uint64_t data_stream_consumed(const struct data_stream *s)
{
    return s->at;
}

void data_stream_close(struct data_stream *s)
{
    if (!s)
        return;
    parquet_close(s->parquet);
    unpacker_destroy(s->unpacker);
    if (s->fd >= 0)
        close(s->fd);
    free(s);
}
