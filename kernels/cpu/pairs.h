/* pairs.h - elements two by two, as they lie in memory: words of 32 bits of
 * which each holds a pair of bf16. What operations that are not products of
 * matrices need beyond simd.h. */
#pragma once

#include "kernels/cpu/simd.h"

/* Adds elements of `v`, which load_two made, to the floats at `to`. */
ALWAYS_INLINE void two_add_some(float *to, struct two v, int64_t count)
{
    v = two_in_order(v);
    vf_store_some(to, vf_load_some(to, count) + v.a, count);
    if (count > VL)
        vf_store_some(
                to + VL, vf_load_some(to + VL, count - VL) + v.b, count - VL);
}

#if HAS_BF16
ALWAYS_INLINE vu load_pairs(const elem *p)
{
    vu pairs = *(const vu_any *)p;
    /* GCC 12 would read memory again at each use. */
    __asm__("" : "+v"(pairs));
    return pairs;
}

ALWAYS_INLINE vu load_pairs_some(const elem *p, int64_t count)
{
    if (count >= 2 * VL)
        return load_pairs(p);
    elem lanes[2 * VL] = {0};
    memcpy(lanes, p, (size_t)count * sizeof *p);
    return load_pairs(lanes);
}

ALWAYS_INLINE struct two two_of_pairs(vu pairs)
{
    return (struct two){(vf)(pairs << 16), (vf)(pairs & 0xffff0000u)};
}

/* `sum` and products of pairs, without widening them: exact products, sums
 * fp32, subnormals 0. */
ALWAYS_INLINE vf pairs_dot(vf sum, vu a, vu b)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}
#endif

/* As load_two_some. */
ALWAYS_INLINE struct two read_two(const elem *p, int64_t count)
{
#if HAS_BF16
    return two_of_pairs(load_pairs_some(p, count));
#else
    return load_two_some(p, count);
#endif
}

/* v as it reads after store_two and load_two. */
ALWAYS_INLINE struct two round_two(struct two v)
{
#if HAS_BF16
    elem both[2 * VL];
    store_two(both, v);
    return read_two(both, 2 * VL);
#else
    return (struct two){round_to_elem(v.a), round_to_elem(v.b)};
#endif
}
