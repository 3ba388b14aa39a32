#include "data/parquet/inflate.h"

#include <snappy-c.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

enum { UNCOMPRESSED = 0, SNAPPY = 1, GZIP = 2, ZSTD = 6 };

enum zd_status parquet_check_codec(
        const struct parquet_file *file, const char *column, int codec)
{
    static const char *const names[] = {"UNCOMPRESSED", "SNAPPY", "GZIP",
                                        "LZO",          "BROTLI", "LZ4",
                                        "ZSTD",         "LZ4_RAW"};
    if (codec == UNCOMPRESSED || codec == SNAPPY || codec == GZIP ||
        codec == ZSTD)
        return ZD_OK;
    return codec < 0 || codec >= (int)(sizeof names / sizeof names[0])
                   ? parquet_unsupported(file, column, "codec number %d", codec)
                   : parquet_unsupported(
                             file, column, "the codec %s", names[codec]);
}

static bool inflate_gzip(
        const unsigned char *in, size_t in_bytes, unsigned char *out,
        size_t out_bytes)
{
    z_stream z = {
            .next_in = (Bytef *)in,
            .avail_in = (unsigned)in_bytes,
            .next_out = out,
            .avail_out = (unsigned)out_bytes};
    if (inflateInit2(&z, 15 + 32) != Z_OK)
        return false;
    int result = inflate(&z, Z_FINISH);
    inflateEnd(&z);
    return result == Z_STREAM_END && z.avail_out == 0;
}

enum zd_status parquet_inflate(
        const struct parquet_file *file, const char *column, int codec,
        const unsigned char *in, size_t in_bytes, unsigned char *out,
        size_t out_bytes)
{
    size_t got = 0;
    bool is_good = false;
    switch (codec) {
    case UNCOMPRESSED:
        is_good = in_bytes == out_bytes;
        if (is_good && in_bytes > 0)
            memcpy(out, in, in_bytes);
        break;
    case SNAPPY: /* the length first: it may not exceed the room */
        is_good = snappy_uncompressed_length(
                          (const char *)in, in_bytes, &got) == SNAPPY_OK &&
                  got == out_bytes &&
                  snappy_uncompress(
                          (const char *)in, in_bytes, (char *)out, &got) ==
                          SNAPPY_OK &&
                  got == out_bytes;
        break;
    case GZIP:
        is_good = inflate_gzip(in, in_bytes, out, out_bytes);
        break;
    case ZSTD:
        got = ZSTD_decompress(out, out_bytes, in, in_bytes);
        is_good = !ZSTD_isError(got) && got == out_bytes;
        break;
    default:
        return parquet_check_codec(file, column, codec);
    }
    return is_good ? ZD_OK
                   : parquet_damaged(
                             file, column,
                             "a page does not decompress to its %zu bytes",
                             out_bytes);
}
