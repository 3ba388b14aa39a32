/* internal.h - shared by the files of this folder: counted memory (file.c), the
 * schema, the values of a page, the chunk of a column. */
#pragma once

#include "base/status.h"
#include "data/parquet/thrift.h"

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
    uint64_t held;                /* bytes of all buffers */
    int64_t row;                  /* the current row, from 1; 0: none yet */
    struct parquet_buffer packed; /* a page before it is decompressed, any
                                     column's */
};

/* Makes room for `bytes`; the old content is lost. E0452 if all buffers would
 * exceed PARQUET_HELD_MAX. */
enum zd_status parquet_reserve(
        struct parquet_file *file, struct parquet_buffer *buffer,
        uint64_t bytes);
void parquet_release(struct parquet_file *file, struct parquet_buffer *buffer);

/* E0452 (damaged) or E0453 (an unsupported feature of the column); `column` may
 * be NULL. */
enum zd_status parquet_fail(
        const struct parquet_file *file, const char *column, bool is_damaged,
        const char *format, ...) __attribute__((format(printf, 4, 5)));
#define parquet_damaged(file, column, ...)                                     \
    parquet_fail(file, column, true, __VA_ARGS__)
#define parquet_unsupported(file, column, ...)                                 \
    parquet_fail(file, column, false, __VA_ARGS__)

/* --- schema.c: the columns of a Parquet file as a tree; each leaf is stored in
 * chunks.
 *
 * An entry of a leaf has two levels. The definition level says how much of the
 * path to it is present: a node is null if the level is below the node's `def`,
 * a list is empty if they are equal. The repetition level says which list it
 * continues: 0 starts a row, a list's `rep` its next element. (Dremel, section
 * 4.1) */

enum parquet_type {
    PARQUET_BOOLEAN = 0,
    PARQUET_INT32 = 1,
    PARQUET_INT64 = 2,
    PARQUET_INT96 = 3,
    PARQUET_FLOAT = 4,
    PARQUET_DOUBLE = 5,
    PARQUET_BYTE_ARRAY = 6,
    PARQUET_FIXED = 7
};

struct parquet_leaf {
    char *path; /* a.list.element; owned */
    enum parquet_type type;
    bool is_unsigned;
    int max_def, max_rep;
};

struct parquet_node {
    const char *name; /* borrowed from the footer */
    size_t name_bytes;
    enum { PARQUET_LEAF, PARQUET_GROUP, PARQUET_LIST } kind;
    bool is_optional;
    int def, rep;
    int first_leaf, leaf_count;
    struct parquet_node *children; /* owned; a list has one, its element */
    int child_count;
};

struct parquet_schema {
    struct parquet_node root; /* a group */
    struct parquet_leaf *leaves;
    int leaf_count;
};

/* Reads the footer's list of `count` elements at `thrift`, which then is after
 * it. */
enum zd_status parquet_schema_read(
        const struct parquet_file *file, struct thrift *thrift, size_t count,
        struct parquet_schema *schema);
void parquet_schema_free(struct parquet_schema *schema);

/* --- values.c: decodes the values of a page in order, and the runs of small
 * integers that also store levels.
 *
 * Source:  parquet-format Encodings.md. */

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
/* The same for data at *at with its length (u32) before it; moves *at past
 * both; false: the length exceeds the available bytes. */
bool hybrid_begin_sized(
        struct hybrid *hybrid, const unsigned char **at,
        const unsigned char *end, int width);
bool hybrid_next(struct hybrid *hybrid, uint32_t *value_out);

/* A first value, then blocks of differences above a minimum. */
struct delta {
    const unsigned char *at, *end;
    uint64_t left;             /* values not yet read */
    uint64_t minis, mini_size; /* miniblocks of a block, values of one */
    uint64_t minis_left, mini_left;
    const unsigned char *widths,
            *mini; /* widths: of the next miniblock; mini: the current one */
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

/* The field that the leaf's type uses. */
struct parquet_value {
    int64_t integer; /* a boolean too, and the bits of a float or double */
    const unsigned char *bytes;
    size_t count;
};

struct values {
    enum parquet_encoding encoding;
    const unsigned char *at, *end; /* plain; bytes of DELTA_*_BYTE_ARRAY */
    unsigned bit;                  /* plain booleans */
    struct hybrid hybrid;          /* indexes, booleans */
    struct delta delta, suffixes;  /* integers, lengths; see values.c */
    struct parquet_buffer last;    /* DELTA_BYTE_ARRAY: the previous value, kept
                                      across pages */
    size_t last_bytes;
};

/* --- column.c: reads a leaf's chunk in one row group page by page: each
 * entry's levels, and its value unless null. */

struct parquet_chunk { /* as described in the footer */
    uint64_t begin, end;
    int64_t entries;
    int codec;
};

struct parquet_column {
    const struct parquet_leaf *leaf;
    struct parquet_file *file;

    /* of the next entry; rep is 0 at the end of the chunk */
    int rep, def;
    bool is_at_end;

    /* private */
    struct parquet_chunk chunk;
    uint64_t at;          /* file offset of the next page */
    int64_t entries_left; /* in pages not yet started */
    int64_t page_left;    /* entries of the page after the next one */
    struct parquet_buffer page, dictionary_page;
    struct hybrid reps, defs;
    struct parquet_buffer dictionary; /* values, which point into
                                         dictionary_page */
    size_t dictionary_count;
    struct values values;
};
#define column_damaged(column, ...)                                            \
    parquet_damaged((column)->file, (column)->leaf->path, __VA_ARGS__)
#define column_unsupported(column, ...)                                        \
    parquet_unsupported((column)->file, (column)->leaf->path, __VA_ARGS__)

/* Starts a chunk: its first entry is next. */
enum zd_status column_begin(
        struct parquet_column *column, const struct parquet_chunk *chunk);
enum zd_status column_advance(struct parquet_column *column);
void column_fini(struct parquet_column *column);
/* In values.c. Starts a page's values of `encoding` in [at, end). */
enum zd_status values_begin(
        struct parquet_column *column, int encoding, const unsigned char *at,
        const unsigned char *end);
/* The current entry's value (its def must be max_def); borrowed until
 * column_advance. */
enum zd_status column_value(
        struct parquet_column *column, struct parquet_value *value_out);
/* Reads the `count` plain values of the dictionary page. */
enum zd_status dictionary_read(
        struct parquet_column *column, int64_t count, size_t bytes);
