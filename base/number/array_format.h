/* array_format.h - how the elements of an array lie in memory: one after the
 * other in a type. Codes that share scales are formats of their own; each adds
 * what its codes and scales are, and what of them `count` elements take. */
#ifndef ZD_BASE_NUMBER_ARRAY_FORMAT_H
#define ZD_BASE_NUMBER_ARRAY_FORMAT_H

#include "base/number/dtype.h"

struct array_format {
    enum dtype type; /* of an element */
};

static inline struct array_format array_format_plain(enum dtype type)
{
    return (struct array_format){type};
}

/* What `count` elements take, a multiple of 256 of them. */
static inline size_t array_format_bytes(
        struct array_format format, size_t count)
{
    return count * dtype_bytes(format.type);
}

#endif
