/* emulate_math.h - CUDA's intrinsics of one thread: loads and stores,
 * arithmetic, atomics. Included by emulate.h. */
#pragma once

/* --- loads and stores: a GPU refuses what is not aligned to its size ------ */

template <typename T> inline void zd_emulate_aligned(const T *p, const char *op)
{
    if ((uintptr_t)p % sizeof(T))
        zd_emulate_fail(
                __FILE__, __LINE__,
                "%s of %zu bytes at %p, which is "
                "not aligned",
                op, sizeof(T), (const void *)p);
}
template <typename T> inline T __ldcs(const T *p)
{
    zd_emulate_aligned(p, "__ldcs");
    return *p;
}
template <typename T, typename V> inline void __stcs(T *p, V value)
{
    zd_emulate_aligned(p, "__stcs");
    *p = (T)value;
}

/* --- arithmetic ----------------------------------------------------------- */

inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
/* glibc declares __expf for itself: ours goes by another name. */
#define __expf zd_emulate_expf
inline float __expf(float x)
{
    return ::expf(x);
}
inline float __fdividef(float a, float b)
{
    return a / b;
}
/* Four bytes of the eight of `low` and `high`, each by a digit of `order`. */
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned order)
{
    uint64_t both = (uint64_t)high << 32 | low;
    unsigned out = 0;
    for (int i = 0; i < 4; i++)
        out |= (unsigned)(both >> 8 * (order >> 4 * i & 7) & 0xff) << 8 * i;
    return out;
}
inline int min(int a, int b)
{
    return b < a ? b : a;
}
inline int max(int a, int b)
{
    return a < b ? b : a;
}

/* --- atomics: each returns what was there before ------------------------- */

/* Changes *p as `change` says. */
template <typename T, typename F> inline T zd_emulate_atomic(T *p, F change)
{
    zd_emulate_aligned(p, "an atomic operation");
    T before;
    __atomic_load(p, &before, __ATOMIC_SEQ_CST);
    for (;;) {
        T after = change(before);
        if (__atomic_compare_exchange(
                    p, &before, &after, false, __ATOMIC_SEQ_CST,
                    __ATOMIC_SEQ_CST))
            return before;
    }
}
template <typename T> inline T atomicAdd(T *p, T value)
{
    return zd_emulate_atomic(p, [value](T was) { return (T)(was + value); });
}
template <typename T> inline T atomicMax(T *p, T value)
{
    return zd_emulate_atomic(
            p, [value](T was) { return was < value ? value : was; });
}
