/* values.h - the values of a page, in whatever encoding, one after the other.
 */
#ifndef ZD_DATA_PARQUET_VALUES_H
#define ZD_DATA_PARQUET_VALUES_H

#include "data/parquet/decode.h"
#include "data/parquet/schema.h"

enum parquet_encoding {
    PARQUET_PLAIN = 0,
    PARQUET_PLAIN_DICTIONARY = 2,
    PARQUET_RLE = 3,
    PARQUET_DELTA_BINARY_PACKED = 5,
    PARQUET_DELTA_LENGTH_BYTE_ARRAY = 6,
    PARQUET_DELTA_BYTE_ARRAY = 7,
    PARQUET_RLE_DICTIONARY = 8
};

/* By the leaf's type one of these; booleans are integers. */
struct parquet_value {
    int64_t integer;
    double real;
    const unsigned char *bytes;
    size_t count;
};

struct dictionary {
    struct parquet_value *values; /* owned; their bytes are the page's */
    size_t count;
    struct parquet_buffer memory; /* counted; values lie in it */
};

struct values {
    const struct parquet_leaf *leaf;
    const struct dictionary *dictionary;
    enum parquet_encoding encoding;
    const unsigned char *at, *end; /* plain; bytes of DELTA_*_BYTE_ARRAY */
    unsigned bit;                  /* plain booleans */
    struct hybrid hybrid;          /* indexes, booleans */
    struct delta delta, suffixes;  /* integers, lengths; see values.c */
    struct parquet_buffer last;    /* DELTA_BYTE_ARRAY: the value before */
    size_t last_bytes;
};

/* Values of `encoding` in [at, end). The dictionary may be empty. `last` is
 * kept from page to page and released by its owner. */
enum zd_status values_begin(
        struct values *values, struct parquet_file *file,
        const struct parquet_leaf *leaf, const struct dictionary *dictionary,
        int encoding, const unsigned char *at, const unsigned char *end);
enum zd_status values_next(
        struct values *values, struct parquet_file *file,
        struct parquet_value *value_out);
/* `count` plain values, to which indexes point from then on. */
enum zd_status dictionary_read(
        struct dictionary *dictionary, struct parquet_file *file,
        const struct parquet_leaf *leaf, int64_t count, const unsigned char *at,
        const unsigned char *end);

#endif
