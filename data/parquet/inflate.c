#include "data/parquet/inflate.h"

#include <snappy-c.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

/* Each fills all of `out`, or fails. */
typedef bool inflate_fn(
        const unsigned char *in, size_t in_bytes, unsigned char *out,
        size_t out_bytes);

static bool copy(
        const unsigned char *in, size_t in_bytes, unsigned char *out,
        size_t out_bytes)
{
    if (in_bytes == out_bytes && in_bytes > 0)
        memcpy(out, in, in_bytes);
    return in_bytes == out_bytes;
}

/* The length first: it may not exceed the room. */
static bool inflate_snappy(
        const unsigned char *in, size_t in_bytes, unsigned char *out,
        size_t out_bytes)
{
    const char *packed = (const char *)in;
    size_t got = 0;
    return snappy_uncompressed_length(packed, in_bytes, &got) == SNAPPY_OK &&
           got == out_bytes &&
           snappy_uncompress(packed, in_bytes, (char *)out, &got) ==
                   SNAPPY_OK &&
           got == out_bytes;
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

static bool inflate_zstd(
        const unsigned char *in, size_t in_bytes, unsigned char *out,
        size_t out_bytes)
{
    return ZSTD_decompress(out, out_bytes, in, in_bytes) == out_bytes;
}

static const struct {
    const char *name;
    inflate_fn *inflate;
} codecs[] = {
        {"UNCOMPRESSED", copy}, {"SNAPPY", inflate_snappy},
        {"GZIP", inflate_gzip}, {"LZO", NULL},
        {"BROTLI", NULL},       {"LZ4", NULL},
        {"ZSTD", inflate_zstd}, {"LZ4_RAW", NULL},
};

enum zd_status parquet_check_codec(
        const struct parquet_file *file, const char *column, int codec)
{
    if (codec < 0 || codec >= (int)(sizeof codecs / sizeof codecs[0]))
        return parquet_unsupported(file, column, "codec number %d", codec);
    return codecs[codec].inflate
                   ? ZD_OK
                   : parquet_unsupported(
                             file, column, "the codec %s", codecs[codec].name);
}

enum zd_status parquet_inflate(
        const struct parquet_file *file, const char *column, int codec,
        const unsigned char *in, size_t in_bytes, unsigned char *out,
        size_t out_bytes)
{
    ZD_TRY(parquet_check_codec(file, column, codec));
    return codecs[codec].inflate(in, in_bytes, out, out_bytes)
                   ? ZD_OK
                   : parquet_damaged(
                             file, column,
                             "a page does not decompress to its %zu bytes",
                             out_bytes);
}
