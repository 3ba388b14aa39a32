/* stream.h - the text of a data file from its beginning to its end, whatever
 * container it is stored in:
 *
 *   plain            the bytes of the file
 *   gzip, zstd       decompressed; members and frames may be concatenated
 *   JSON array       each element as one line
 *   Parquet          each row as a line of JSON (data/parquet/parquet.h)
 *
 * Memory does not grow with the file: a buffer, what the decompressor keeps (a
 * window of at most 128 MiB for zstd), and for Parquet a page of each column.
 *
 * Errors: ZD_ERR_DATA with the file's name for a damaged or truncated file, for
 * bytes after the last member or frame, and for a zstd window above 128 MiB. */
#pragma once

#include "data/source.h"

/* A record, or a stretch of text that the tokenizer cannot cut, is at most this
 * long. */
enum { RECORD_MAX_BYTES = 256 << 20 };
enum { ZSTD_WINDOW_LOG_MAX = 27, ZSTD_WINDOW_MAX = 1 << ZSTD_WINDOW_LOG_MAX };

/* White space of JSON. */
static inline bool is_json_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Bytes of it that a text begins with. */
static inline size_t json_blanks(const char *text, size_t bytes)
{
    size_t n = 0;
    while (n < bytes && is_json_space(text[n]))
        n++;
    return n;
}

struct data_stream;

/* `file` is borrowed until the stream is closed; its format and has_lines need
 * not be known yet. A row of Parquet has at most `row_most` bytes. */
enum zd_status data_stream_open(
        const struct data_file *file, size_t row_most,
        struct data_stream **out);
/* Up to `bytes` of text; fewer only at the end. */
enum zd_status data_stream_read(
        struct data_stream *stream, char *text, size_t bytes,
        size_t *bytes_out);
/* Bytes of the file that were read so far. */
uint64_t data_stream_consumed(const struct data_stream *stream);
void data_stream_close(struct data_stream *stream);
