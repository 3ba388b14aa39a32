/* array_format.h - how the elements of an array lie in memory: one after the
 * other in a type, or as codes in bytes, whose scales are another array. */
#pragma once

#include "base/number/dtype.h"

struct array_format {
    enum dtype type; /* of an element; in codes: that they decode to */
    int packed;      /* codes in a byte; 0: no codes */
};

static inline struct array_format array_format_plain(enum dtype type)
{
    return (struct array_format){.type = type};
}

static inline struct array_format array_format_codes(
        enum dtype type, int packed)
{
    return (struct array_format){type, packed};
}

/* What `count` elements take, a multiple of 256 of them. */
static inline size_t array_format_bytes(
        struct array_format format, size_t count)
{
    return format.packed ? count / (size_t)format.packed
                         : count * dtype_bytes(format.type);
}
