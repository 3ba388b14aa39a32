/* column.h - a leaf's chunk in one row group, read page by page: at each entry
 * its levels, and its value where there is one. */
#ifndef ZD_DATA_PARQUET_COLUMN_H
#define ZD_DATA_PARQUET_COLUMN_H

#include "data/parquet/schema.h"
#include "data/parquet/values.h"

struct parquet_chunk { /* as the footer says it lies in the file */
    uint64_t begin, end;
    int64_t entries;
    int codec;
};

struct parquet_column {
    const struct parquet_leaf *leaf;
    struct parquet_file *file;

    /* of the entry that is next; at the end of the chunk rep is 0 */
    int rep, def;
    bool is_at_end;

    /* private */
    struct parquet_chunk chunk;
    uint64_t at;          /* of the next page */
    int64_t entries_left; /* in pages that were not begun */
    int64_t page_left;    /* entries of the page after the next one */
    struct parquet_buffer page, dictionary_page;
    struct hybrid reps, defs;
    struct dictionary dictionary;
    struct values values;
};

/* Begin a chunk: its first entry is next. */
enum zd_status column_begin(
        struct parquet_column *column, const struct parquet_chunk *chunk);
/* The value of the entry, whose def is max_def; borrowed until
 * column_advance. */
enum zd_status column_value(
        struct parquet_column *column, struct parquet_value *value_out);
enum zd_status column_advance(struct parquet_column *column);
void column_fini(struct parquet_column *column);

#endif
