/* parquet.h - reads the rows of a Parquet file in order, each as a line of JSON
 * with its columns in the order of the schema.
 *
 *   file "PAR1", row groups, footer, its length (u32), "PAR1" row group a chunk
 *   for each leaf of the schema chunk an optional dictionary page, then data
 *   pages
 *
 * A null is written as null; lists of 3 and 2 levels are arrays, groups are
 * objects. Numbers are written so that reading them back is exact, NaN and
 * infinities as null; dates and times as the stored integers.
 *
 * Supported: BOOLEAN, INT32, INT64, FLOAT, DOUBLE, BYTE_ARRAY; PLAIN,
 * dictionary, RLE, DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY,
 * DELTA_BYTE_ARRAY; pages v1 and v2; UNCOMPRESSED, SNAPPY, GZIP, ZSTD.
 *
 * Source:  apache/parquet-format: parquet.thrift, Encodings.md,
 *          LogicalTypes.md; Melnik et al. 2010 (Dremel), section 4.
 * Memory:  the footer, a page and a dictionary per leaf, and one compressed
 *          page: together at most PARQUET_HELD_MAX.
 * Errors:  ZD_ERR_DATA naming the file: E0452 if it is damaged or a size, count
 *          or level is false; E0453 for an unsupported type, encoding or codec,
 *          with its column. */
#pragma once

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#define PARQUET_HELD_MAX (UINT64_C(512) << 20)

struct parquet;

/* `fd` and `path` are borrowed until parquet_close; `bytes`: of the file. */
enum zd_status parquet_open(
        int fd, const char *path, uint64_t bytes, struct parquet **out);
/* The next row and a line feed, together at most `most` bytes; valid until the
 * next call. 0 bytes: no more rows. */
enum zd_status parquet_row(
        struct parquet *parquet, size_t most, const char **text_out,
        size_t *bytes_out);
/* The file offset after the pages read so far. */
uint64_t parquet_consumed(const struct parquet *parquet);
void parquet_close(struct parquet *parquet);
