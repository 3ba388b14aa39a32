#include "data/parquet/internal.h"

#include "base/must.h"
#include "data/parquet/parquet.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum zd_status parquet_reserve(
        struct parquet_file *file, struct parquet_buffer *buffer,
        uint64_t bytes)
{
    if (bytes <= buffer->capacity)
        return ZD_OK;
    parquet_release(file, buffer);
    if (bytes > PARQUET_HELD_MAX - file->held)
        return parquet_damaged(
                file, NULL, "its pages take more than %llu MiB of memory",
                (unsigned long long)(PARQUET_HELD_MAX >> 20));
    buffer->bytes = zd_must(malloc((size_t)bytes));
    buffer->capacity = (size_t)bytes;
    file->held += bytes;
    return ZD_OK;
}

void parquet_release(struct parquet_file *file, struct parquet_buffer *buffer)
{
    file->held -= buffer->capacity;
    free(buffer->bytes);
    *buffer = (struct parquet_buffer){0};
}

enum zd_status parquet_fail(
        const struct parquet_file *file, const char *column, bool is_damaged,
        const char *format, ...)
{
    char what[240];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    if (is_damaged)
        ZD_BAD("E0452", "%s is damaged: %s%.120s%s%s", file->path,
               column ? "column " : "", column ? column : "",
               column ? ": " : "", what);
    else
        ZD_BAD("E0453", "column %.120s of %s has %s, which zerod does not read",
               column, file->path, what);
    if (!is_damaged)
        zd_fail_help("remove the column, or write the file again with "
                     "pyarrow's defaults");
    if (file->row > 0)
        zd_fail_where("%s:row %lld", file->path, (long long)file->row);
    return ZD_ERR_DATA;
}
