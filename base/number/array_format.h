/* array_format.h - how an array's elements are stored: contiguous in a type, or
 * quantized to codes in bytes, with their scales in another array. */
#pragma once

#include "base/number/dtype.h"

struct array_format {
    enum dtype type; /* of an element; of codes: what they decode to */
    int packed;      /* codes per byte; 0: not quantized */
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

/* Bytes of `count` elements; `count` is a multiple of 256. */
static inline size_t array_format_bytes(
        struct array_format format, size_t count)
{
    return format.packed ? count / (size_t)format.packed
                         : count * dtype_bytes(format.type);
}
