/* thrift.h - reads Thrift's compact protocol, in which Parquet stores its
 * footer and page headers. Parquet uses no sets or maps there.
 *
 * Source:  apache/thrift, doc/specs/thrift-compact-protocol.md.
 * Errors:  `is_bad` is set and stays; everything reads as 0 from then on.
 *          `is_short`: because the bytes ended. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum thrift_type {
    THRIFT_STOP = 0,
    THRIFT_TRUE = 1,
    THRIFT_FALSE = 2,
    THRIFT_BYTE = 3,
    THRIFT_I16 = 4,
    THRIFT_I32 = 5,
    THRIFT_I64 = 6,
    THRIFT_DOUBLE = 7,
    THRIFT_BINARY = 8,
    THRIFT_LIST = 9,
    THRIFT_STRUCT = 12
};

struct thrift {
    const unsigned char *at, *end;
    bool is_bad, is_short;
    int depth; /* nesting of the skipped value */
};

/* All zero before the first field of a struct. */
struct thrift_field {
    int id, type;
};

uint64_t thrift_varint(struct thrift *thrift);
/* False after the last field. The caller must read or skip the value. */
bool thrift_next(struct thrift *thrift, struct thrift_field *field);
/* Read a field that must be an integer, or a string (borrowed). */
int64_t thrift_integer(struct thrift *thrift, const struct thrift_field *field);
const char *thrift_string(
        struct thrift *thrift, const struct thrift_field *field,
        size_t *bytes_out);
/* Reads a list of structs: how many follow, at most the bytes left. */
size_t thrift_structs(struct thrift *thrift, const struct thrift_field *field);
/* Reads a struct's integer fields with ids below `count` into values[id]; skips
 * all others. */
void thrift_integers(struct thrift *thrift, int64_t *values, int count);
void thrift_skip(struct thrift *thrift, int type);
