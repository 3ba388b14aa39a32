/* values.h - the values of a page, in whatever encoding, one after the other;
 * and runs of small integers, which levels are too.
 *
 * Source:  parquet-format Encodings.md. */
#ifndef ZD_DATA_PARQUET_VALUES_H
#define ZD_DATA_PARQUET_VALUES_H

#include "data/parquet/schema.h"

/* Runs of one value, and groups of 8 packed values of `width` bits. */
struct hybrid {
    const unsigned char *at, *end;
    int width;     /* 0 to 32 */
    uint64_t left; /* of the run */
    bool is_packed;
    unsigned bit; /* of the packed byte at `at` */
    uint32_t value;
};

void hybrid_begin(
        struct hybrid *hybrid, const unsigned char *at,
        const unsigned char *end, int width);
bool hybrid_next(struct hybrid *hybrid, uint32_t *value_out);

/* A first value, then blocks of differences to a least one. */
struct delta {
    const unsigned char *at, *end;
    uint64_t total, left;      /* values; not given yet */
    uint64_t minis, mini_size; /* miniblocks of a block, values of one */
    uint64_t minis_left, mini_left;
    const unsigned char *widths,
            *mini; /* of the next miniblock; the open one */
    unsigned width, bit;
    uint64_t value, least;
    bool has_begun;
};

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
