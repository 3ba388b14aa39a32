/* thrift.h - reads Thrift's compact protocol, in which Parquet keeps its footer
 * and the headers of its pages. Parquet has no sets and maps in them.
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
    int depth; /* of what is being skipped */
};

/* All zero before the first field of a struct. */
struct thrift_field {
    int id, type;
};

uint64_t thrift_varint(struct thrift *thrift);
/* false after the last one. Its value must be read, or skipped. */
bool thrift_next(struct thrift *thrift, struct thrift_field *field);
/* A field that must be an integer, or a string (borrowed). */
int64_t thrift_integer(struct thrift *thrift, const struct thrift_field *field);
const char *thrift_string(
        struct thrift *thrift, const struct thrift_field *field,
        size_t *bytes_out);
/* One that must be a list of structs: how many follow, never more than bytes
 * are left. */
size_t thrift_structs(struct thrift *thrift, const struct thrift_field *field);
/* Of a struct the fields that are integers, each to values[its id], if that is
 * below `count`; all others are skipped. */
void thrift_integers(struct thrift *thrift, int64_t *values, int count);
void thrift_skip(struct thrift *thrift, int type);
