#include "data/parquet/internal.h"

#include "base/file/fs.h"

#include <snappy-c.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

enum { PAGE_DATA = 0, PAGE_DICTIONARY = 2, PAGE_DATA_V2 = 3 };
enum { LEVELS_RLE = 3 };
static const uint64_t page_max = 256 << 20;

struct page_header {
    int type;
    int64_t bytes, packed_bytes; /* entries in the body */
    int64_t entries;
    int encoding, def_encoding, rep_encoding;
    int64_t def_bytes, rep_bytes; /* v2 */
    bool is_packed, has_crc;
    uint32_t crc; /* of the body as stored */
};

/* --- pages, decompressed by the compressors' libraries -------------------- */

/* Fills all of `out`, or fails. */
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

/* Checks the length first: it must not exceed the room. */
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

/* --- the header of a page ------------------------------------------------- */

/* Each kind of page numbers these fields differently. */
static void read_kind(struct thrift *thrift, int id, struct page_header *header)
{
    int64_t of[8] = {[7] = 1};
    bool is_v2 = id == 8;
    thrift_integers(thrift, of, 8);
    header->entries = of[1];
    header->encoding = (int)of[is_v2 ? 4 : 2];
    header->def_encoding = (int)of[3];
    header->rep_encoding = (int)of[4];
    header->def_bytes = is_v2 ? of[5] : 0;
    header->rep_bytes = is_v2 ? of[6] : 0;
    header->is_packed = of[7] != 0;
}

static void parse_header(struct thrift *thrift, struct page_header *header)
{
    struct thrift_field field = {0};
    int64_t of[5] = {[1] = -1};
    *header = (struct page_header){0};
    while (thrift_next(thrift, &field)) {
        if (field.id >= 5 && field.id <= 8 && field.type == THRIFT_STRUCT)
            read_kind(thrift, field.id, header);
        else if (field.id > 0 && field.id < 5)
            of[field.id] = thrift_integer(thrift, &field);
        else
            thrift_skip(thrift, field.type);
        header->has_crc |= field.id == 4;
    }
    header->type = (int)of[1];
    header->bytes = of[2];
    header->packed_bytes = of[3];
    header->crc = (uint32_t)of[4];
}

/* Reads `bytes` at c->at into the file's buffer. */
static enum zd_status read_packed(struct parquet_column *c, uint64_t bytes)
{
    struct parquet_file *file = c->file;
    ZD_TRY(parquet_reserve(file, &file->packed, bytes));
    return fs_pread(
            file->fd, file->path, file->packed.bytes, (size_t)bytes, c->at);
}

/* Reads a page header, whose length is unknown; moves c->at past it. */
static enum zd_status read_header(
        struct parquet_column *c, struct page_header *header)
{
    enum { FIRST_BYTES = 1 << 12, MOST_BYTES = 1 << 24 };
    struct thrift thrift = {.is_short = true};
    uint64_t left = c->chunk.end - c->at;
    for (uint64_t bytes = FIRST_BYTES; thrift.is_short; bytes *= 8) {
        bytes = bytes < left ? bytes : left;
        ZD_TRY(read_packed(c, bytes));
        const unsigned char *at = c->file->packed.bytes;
        thrift = (struct thrift){.at = at, .end = at + bytes};
        parse_header(&thrift, header);
        thrift.is_short &= bytes < left && bytes < MOST_BYTES;
    }
    if (thrift.is_bad)
        return column_damaged(c, "a page's header cannot be read");
    c->at += (uint64_t)(thrift.at - c->file->packed.bytes);
    left = c->chunk.end - c->at;
    if (header->bytes < 0 || (uint64_t)header->bytes > page_max ||
        header->packed_bytes < 0 || (uint64_t)header->packed_bytes > left ||
        (uint64_t)header->packed_bytes > page_max)
        return column_damaged(
                c, "a page's size is beyond its chunk, or 256 MiB");
    if (header->entries < 0)
        return column_damaged(c, "a page's count is negative");
    return ZD_OK;
}

/* Reads the body of a page into `out`; v2 levels are never compressed. */
static enum zd_status read_body(
        struct parquet_column *c, const struct page_header *header,
        struct parquet_buffer *out)
{
    size_t packed = (size_t)header->packed_bytes;
    size_t plain = (size_t)(header->def_bytes + header->rep_bytes);
    if (header->def_bytes < 0 || header->rep_bytes < 0 ||
        header->def_bytes > header->packed_bytes ||
        header->rep_bytes > header->packed_bytes - header->def_bytes ||
        plain > (size_t)header->bytes)
        return column_damaged(c, "a page's levels are longer than the page");
    ZD_TRY(parquet_reserve(c->file, out, (uint64_t)header->bytes));
    ZD_TRY(read_packed(c, packed));
    const unsigned char *in = c->file->packed.bytes;
    c->at += packed;
    if (header->has_crc && crc32(0, in, (unsigned)packed) != header->crc)
        return column_damaged(c, "a page's CRC does not match");
    if (plain > 0)
        memcpy(out->bytes, in, plain);
    size_t bytes = (size_t)header->bytes - plain;
    int codec = header->is_packed ? c->chunk.codec : 0;
    /* some writers compress empty bodies, some do not */
    if (bytes > 0 &&
        !codecs[codec].inflate(
                in + plain, packed - plain, out->bytes + plain, bytes))
        return column_damaged(
                c, "a page does not decompress to its %zu bytes", bytes);
    return ZD_OK;
}

/* --- pages ---------------------------------------------------------------- */

static int level_bits(int most)
{
    int bits = 0;
    while (most >> bits)
        bits++;
    return bits;
}

/* Levels of a v1 page: their length (u32), then runs. */
static enum zd_status begin_levels(
        struct parquet_column *c, struct hybrid *levels, int most, int encoding,
        const unsigned char **at, const unsigned char *end)
{
    if (most == 0)
        return ZD_OK;
    if (encoding != LEVELS_RLE)
        return column_unsupported(c, "levels of encoding number %d", encoding);
    if (!hybrid_begin_sized(levels, at, end, level_bits(most)))
        return column_damaged(c, "a page ends inside its levels");
    return ZD_OK;
}

static enum zd_status begin_data(
        struct parquet_column *c, const struct page_header *header)
{
    const struct parquet_leaf *leaf = c->leaf;
    ZD_TRY(read_body(c, header, &c->page));
    const unsigned char *at = c->page.bytes, *end = at + header->bytes;
    if (header->type == PAGE_DATA_V2) {
        const unsigned char *defs = at + header->rep_bytes;
        hybrid_begin(&c->reps, at, defs, level_bits(leaf->max_rep));
        at = defs + header->def_bytes;
        hybrid_begin(&c->defs, defs, at, level_bits(leaf->max_def));
    } else {
        ZD_TRY(begin_levels(
                c, &c->reps, leaf->max_rep, header->rep_encoding, &at, end));
        ZD_TRY(begin_levels(
                c, &c->defs, leaf->max_def, header->def_encoding, &at, end));
    }
    if (header->entries > c->entries_left)
        return column_damaged(c, "its pages have more values than its chunk");
    c->entries_left -= header->entries;
    c->page_left = header->entries;
    return values_begin(c, header->encoding, at, end);
}

static enum zd_status read_dictionary(
        struct parquet_column *c, const struct page_header *header)
{
    if (header->encoding != PARQUET_PLAIN &&
        header->encoding != PARQUET_PLAIN_DICTIONARY)
        return column_unsupported(
                c, "a dictionary of encoding number %d", header->encoding);
    ZD_TRY(read_body(c, header, &c->dictionary_page));
    return dictionary_read(c, header->entries, (size_t)header->bytes);
}

static enum zd_status next_page(struct parquet_column *c)
{
    struct page_header header;
    bool is_first = c->at == c->chunk.begin;
    if (c->at >= c->chunk.end)
        return column_damaged(c, "its pages end early");
    ZD_TRY(read_header(c, &header));
    if (header.type == PAGE_DICTIONARY)
        return is_first ? read_dictionary(c, &header)
                        : column_damaged(c, "a dictionary follows its pages");
    if ((header.type == PAGE_DATA || header.type == PAGE_DATA_V2) &&
        header.entries > 0)
        return begin_data(c, &header);
    c->at += (uint64_t)header.packed_bytes; /* an index page, or no entries */
    return ZD_OK;
}

/* --- entries -------------------------------------------------------------- */

static enum zd_status next_level(
        struct parquet_column *c, struct hybrid *levels, int most, int *out)
{
    uint32_t level = 0;
    if (most > 0 && (!hybrid_next(levels, &level) || level > (uint32_t)most))
        return column_damaged(c, "a level is missing, or too high");
    *out = (int)level;
    return ZD_OK;
}

enum zd_status column_advance(struct parquet_column *c)
{
    const struct parquet_leaf *leaf = c->leaf;
    while (c->page_left == 0) {
        if (c->entries_left == 0) {
            c->is_at_end = true;
            c->rep = c->def = 0;
            return ZD_OK;
        }
        ZD_TRY(next_page(c));
    }
    c->page_left--;
    ZD_TRY(next_level(c, &c->reps, leaf->max_rep, &c->rep));
    return next_level(c, &c->defs, leaf->max_def, &c->def);
}

enum zd_status column_begin(
        struct parquet_column *c, const struct parquet_chunk *chunk)
{
    int codec = chunk->codec;
    c->chunk = *chunk;
    c->at = chunk->begin;
    c->entries_left = chunk->entries;
    c->page_left = 0;
    c->is_at_end = false;
    c->dictionary_count = 0;
    if (codec < 0 || codec >= (int)(sizeof codecs / sizeof codecs[0]))
        return column_unsupported(c, "codec number %d", codec);
    if (!codecs[codec].inflate)
        return column_unsupported(c, "the codec %s", codecs[codec].name);
    return column_advance(c);
}

void column_fini(struct parquet_column *c)
{
    struct parquet_buffer *const buffers[] = {
            &c->page, &c->dictionary_page, &c->dictionary, &c->values.last};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        parquet_release(c->file, buffers[i]);
}
