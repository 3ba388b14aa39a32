/* inflate.h - pages, decompressed by the compressors' libraries. */
#ifndef ZD_DATA_PARQUET_INFLATE_H
#define ZD_DATA_PARQUET_INFLATE_H

#include "data/parquet/file.h"

/* Codec 0 copies. E0452 unless the result has `out_bytes`; E0453 for a codec
 * that is not read. */
enum zd_status parquet_inflate(
        const struct parquet_file *file, const char *column, int codec,
        const unsigned char *in, size_t in_bytes, unsigned char *out,
        size_t out_bytes);
enum zd_status parquet_check_codec(
        const struct parquet_file *file, const char *column, int codec);

#endif
