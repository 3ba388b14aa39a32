/* unpack.c - files that are compressed, read by the compressors' own libraries:
 * gzip's members (RFC 1952) or zstd's frames (RFC 8878), one after the other;
 * and Parquet files as lines.
 *
 * zstd's own limit of a window is kept: `zstd -d` has the same without --long.
 */
#include "data/stream_source.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "data/parquet/parquet.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

enum { INPUT_BYTES = 256 << 10 };

struct unpacker {
    z_stream gzip;
    ZSTD_DStream *zstd;     /* NULL: gzip */
    bool in_part, has_part; /* a member or frame is being read; one was read */
    size_t at, end;         /* in `input`; end 0: the end of the file */
    unsigned char input[INPUT_BYTES];
};

static enum zd_status open_packed(struct data_stream *stream)
{
    struct unpacker *unpacker = zd_array(1, sizeof *unpacker);
    stream->state = unpacker;
    if (stream->file->container == CONTAINER_ZSTD) {
        unpacker->zstd = zd_must(ZSTD_createDStream());
        ZSTD_DCtx_setParameter(
                unpacker->zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG_MAX);
    } else if (inflateInit2(&unpacker->gzip, 15 + 16) != Z_OK) {
        zd_out_of_memory();
    }
    return ZD_OK;
}

static void close_packed(struct data_stream *stream)
{
    struct unpacker *unpacker = stream->state;
    if (unpacker && unpacker->zstd)
        ZSTD_freeDStream(unpacker->zstd);
    else if (unpacker)
        inflateEnd(&unpacker->gzip);
    free(unpacker);
}

/* `is_after`: it begins no other part. */
static enum zd_status fail_damaged(
        const struct data_stream *stream, bool is_after, const char *reason)
{
    const struct unpacker *unpacker = stream->state;
    const char *name = unpacker->zstd ? "zstd" : "gzip";
    return is_after && unpacker->has_part
                   ? ZD_FAIL(ZD_ERR_DATA, "E0451",
                             "%s: what follows its last %s %s is not %s",
                             stream->file->path, name,
                             unpacker->zstd ? "frame" : "member", name)
                   : ZD_FAIL(ZD_ERR_DATA, "E0451",
                             "%s is damaged: %s says \"%s\"",
                             stream->file->path, name, reason);
}

static enum zd_status gzip_step(
        struct data_stream *stream, char *text, size_t bytes, size_t *bytes_out)
{
    struct unpacker *unpacker = stream->state;
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
        return fail_damaged(
                stream, z->total_out == 0, z->msg ? z->msg : "no data");
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
        struct data_stream *stream, char *text, size_t bytes, size_t *bytes_out)
{
    struct unpacker *unpacker = stream->state;
    ZSTD_outBuffer out = {text, bytes, 0};
    ZSTD_inBuffer in = {unpacker->input, unpacker->end, unpacker->at};
    size_t result = ZSTD_decompressStream(unpacker->zstd, &out, &in);
    ZSTD_ErrorCode code = ZSTD_getErrorCode(result);
    if (code == ZSTD_error_memory_allocation)
        zd_out_of_memory();
    if (code == ZSTD_error_frameParameter_windowTooLarge) {
        ZD_FAIL(ZD_ERR_DATA, "E0451",
                "%s was compressed with a window above 128 MiB",
                stream->file->path);
        return zd_fail_help(
                "compress it again without --long, or with --long=27");
    }
    if (ZSTD_isError(result))
        return fail_damaged(
                stream, code == ZSTD_error_prefix_unknown,
                ZSTD_getErrorName(result));
    unpacker->at = in.pos;
    unpacker->in_part = result != 0;
    unpacker->has_part |= result == 0;
    *bytes_out = out.pos;
    return ZD_OK;
}

static enum zd_status read_packed(
        struct data_stream *stream, char *text, size_t bytes, size_t *bytes_out)
{
    struct unpacker *unpacker = stream->state;
    /* zstd may have text that it did not give yet */
    bool may_hold_more = unpacker->zstd && unpacker->in_part;
    for (*bytes_out = 0; *bytes_out == 0; may_hold_more = false) {
        if (unpacker->at == unpacker->end && !may_hold_more) {
            uint64_t left = stream->file->bytes - stream->at;
            unpacker->at = 0;
            unpacker->end = left < INPUT_BYTES ? (size_t)left : INPUT_BYTES;
            ZD_TRY(fs_pread(
                    stream->fd, stream->file->path, unpacker->input,
                    unpacker->end, stream->at));
            stream->at += unpacker->end;
            if (unpacker->end == 0 && unpacker->in_part)
                return ZD_FAIL(
                        ZD_ERR_DATA, "E0451", "%s: the file ends inside a %s",
                        stream->file->path,
                        unpacker->zstd ? "zstd frame" : "gzip member");
            if (unpacker->end == 0)
                break;
        }
        ZD_TRY((unpacker->zstd ? zstd_step
                               : gzip_step)(stream, text, bytes, bytes_out));
    }
    return ZD_OK;
}

const struct container packed_container = {
        open_packed, read_packed, close_packed};

/* --- Parquet ------------------------------------------------------------- */

enum { KEEP_BYTES = 4 << 20 };

struct table {
    struct parquet *parquet;
    struct parquet_text row; /* handed out up to `at` */
    size_t at;
};

static enum zd_status table_open(struct data_stream *stream)
{
    const struct data_file *file = stream->file;
    struct table *table = zd_array(1, sizeof *table);
    stream->state = table;
    return parquet_open(stream->fd, file->path, file->bytes, &table->parquet);
}

static enum zd_status next_row(struct table *table, size_t most, bool *more_out)
{
    if (table->row.capacity > KEEP_BYTES) {
        free(table->row.bytes);
        table->row = (struct parquet_text){0};
    }
    table->at = table->row.used = 0;
    return parquet_row(table->parquet, most, &table->row, more_out);
}

static enum zd_status table_read(
        struct data_stream *stream, char *text, size_t bytes, size_t *bytes_out)
{
    struct table *table = stream->state;
    bool more = true;
    if (table->at == table->row.used)
        ZD_TRY(next_row(table, stream->row_most, &more));
    stream->at = parquet_consumed(table->parquet);
    size_t left = more ? table->row.used - table->at : 0;
    if (bytes > left)
        bytes = left;
    if (bytes > 0)
        memcpy(text, table->row.bytes + table->at, bytes);
    table->at += bytes;
    *bytes_out = bytes;
    return ZD_OK;
}

static void table_close(struct data_stream *stream)
{
    struct table *table = stream->state;
    if (!table)
        return;
    parquet_close(table->parquet);
    free(table->row.bytes);
    free(table);
}

const struct container parquet_container = {
        table_open, table_read, table_close};
