/* sizes.h - the larger and the smaller of two sizes, and multiples. */
#pragma once

#include <stddef.h>

static inline size_t size_max(size_t a, size_t b)
{
    return a > b ? a : b;
}

static inline size_t size_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Up to a multiple of `unit`. */
static inline size_t size_round_up(size_t size, size_t unit)
{
    return (size + unit - 1) / unit * unit;
}
