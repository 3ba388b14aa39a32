/* table.c - Parquet files as a stream of lines. */
#include "data/parquet/parquet.h"
#include "data/stream_source.h"

#include "base/must.h"

#include <stdlib.h>
#include <string.h>

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
