/* file.h - an open Parquet file: reading it, memory that is counted, errors. */
#ifndef ZD_DATA_PARQUET_FILE_H
#define ZD_DATA_PARQUET_FILE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct parquet_buffer {
    unsigned char *bytes;
    size_t capacity;
};

struct parquet_file {
    int fd;
    const char *path;
    uint64_t bytes;
    uint64_t held;                /* of all buffers */
    int64_t row;                  /* that is being read, from 1; 0: none yet */
    struct parquet_buffer packed; /* a page as it is stored, of any column */
};

/* Room for so many bytes, whose content is lost. E0452 when all buffers take
 * more than PARQUET_HELD_MAX then. */
enum zd_status parquet_reserve(
        struct parquet_file *file, struct parquet_buffer *buffer,
        uint64_t bytes);
void parquet_release(struct parquet_file *file, struct parquet_buffer *buffer);

/* E0452, `column` may be NULL; or E0453: what of the column is not read. */
enum zd_status parquet_fail(
        const struct parquet_file *file, const char *column, bool is_damaged,
        const char *format, ...) __attribute__((format(printf, 4, 5)));
#define parquet_damaged(file, column, ...)                                     \
    parquet_fail(file, column, true, __VA_ARGS__)
#define parquet_unsupported(file, column, ...)                                 \
    parquet_fail(file, column, false, __VA_ARGS__)

#endif
