/* dtype_lanes.h - conversions between float and 16 bits, by the vectors of one
 * instruction set. Private to dtype.c and its test; others use dtype_convert.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef void dtype_widen_fn(float *out, const uint16_t *in, size_t count);
typedef void dtype_narrow_fn(uint16_t *out, const float *in, size_t count);

struct dtype_lanes {
    const char *name; /* "base", "avx2" */
    dtype_widen_fn *widen_bf16, *widen_fp16;
    dtype_narrow_fn *narrow_bf16, *narrow_fp16;
};

/* By name; NULL where this machine cannot run it. */
const struct dtype_lanes *dtype_lanes_at(const char *name);
