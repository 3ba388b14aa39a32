/* schema.h - the columns of a Parquet file as a tree, whose leaves are what
 * chunks hold.
 *
 * An entry of a leaf has two levels. Its definition level says how much of the
 * path to it is there: a node is null where the level is below the node's
 * `def`, a list is empty where it is below its `element_def`. Its repetition
 * level says which list it continues: 0 begins a row, a list's `rep` its next
 * element. (Dremel, section 4.1) */
#ifndef ZD_DATA_PARQUET_SCHEMA_H
#define ZD_DATA_PARQUET_SCHEMA_H

#include "data/parquet/file.h"
#include "data/parquet/thrift.h"

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
    int def;
    int element_def, rep; /* of a list */
    int first_leaf, leaf_count;
    struct parquet_node *children; /* owned; of a list its element */
    int child_count;
};

struct parquet_schema {
    struct parquet_node root; /* a group */
    struct parquet_leaf *leaves;
    int leaf_count;
};

/* From the footer's list of `count` elements at `thrift`, which ends after
 * it. */
enum zd_status parquet_schema_read(
        const struct parquet_file *file, struct thrift *thrift, size_t count,
        struct parquet_schema *schema);
void parquet_schema_free(struct parquet_schema *schema);

#endif
