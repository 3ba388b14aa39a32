/* emulate_math.h - CUDA's intrinsics of one thread: loads and stores, bits,
 * arithmetic, atomics. Included by emulate.h. */
#ifndef ZD_TESTS_CUDA_EMULATE_MATH_H
#define ZD_TESTS_CUDA_EMULATE_MATH_H

/* --- loads and stores: a GPU refuses what is not aligned to its size -------
 */

template <typename T> inline void zd_emulate_aligned(const T *p, const char *op)
{
    if ((uintptr_t)p % sizeof(T))
        zd_emulate_fail(
                __FILE__, __LINE__,
                "%s of %zu bytes at %p, which is "
                "not aligned",
                op, sizeof(T), (const void *)p);
}
#define LOAD(name)                                                             \
    template <typename T> inline T name(const T *p)                            \
    {                                                                          \
        zd_emulate_aligned(p, #name);                                          \
        return *p;                                                             \
    }
#define STORE(name)                                                            \
    template <typename T, typename V> inline void name(T *p, V value)          \
    {                                                                          \
        zd_emulate_aligned(p, #name);                                          \
        *p = (T)value;                                                         \
    }
LOAD(__ldg)
LOAD(__ldcs)
LOAD(__ldca)
LOAD(__ldcg)
LOAD(__ldlu)
LOAD(__ldcv)
STORE(__stcs)
STORE(__stcg)
STORE(__stwb)
STORE(__stwt)
#undef LOAD
#undef STORE

/* --- bits ----------------------------------------------------------------- */

template <typename To, typename From> inline To zd_emulate_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}
inline unsigned __float_as_uint(float x)
{
    return zd_emulate_bits<unsigned>(x);
}
inline int __float_as_int(float x)
{
    return zd_emulate_bits<int>(x);
}
inline float __uint_as_float(unsigned x)
{
    return zd_emulate_bits<float>(x);
}
inline float __int_as_float(int x)
{
    return zd_emulate_bits<float>(x);
}
inline long long __double_as_longlong(double x)
{
    return zd_emulate_bits<long long>(x);
}
inline double __longlong_as_double(long long x)
{
    return zd_emulate_bits<double>(x);
}
inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
inline int __clzll(long long x)
{
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}
inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
inline int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}
inline unsigned long long __brevll(unsigned long long x)
{
    unsigned long long out = 0;
    for (int i = 0; i < 64; i++)
        out |= (x >> i & 1) << (63 - i);
    return out;
}
inline unsigned __brev(unsigned x)
{
    return (unsigned)(__brevll(x) >> 32);
}
inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}
inline int __mulhi(int a, int b)
{
    return (int)((int64_t)a * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((uint64_t)high << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((uint64_t)high << 32 | low) >> (shift & 31));
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector)
{
    uint64_t bytes = (uint64_t)b << 32 | a;
    unsigned out = 0;
    for (int i = 0; i < 4; i++) {
        unsigned pick = selector >> (4 * i) & 15;
        unsigned byte = bytes >> (8 * (pick & 7)) & 255;
        if (pick & 8)
            byte = byte & 128 ? 255 : 0;
        out |= byte << (8 * i);
    }
    return out;
}

/* --- arithmetic ----------------------------------------------------------- */

/* glibc declares names such as __expf for itself: ours go by another. */
#define __expf    zd_emulate_expf
#define __exp10f  zd_emulate_exp10f
#define __logf    zd_emulate_logf
#define __log2f   zd_emulate_log2f
#define __powf    zd_emulate_powf
#define __sinf    zd_emulate_sinf
#define __cosf    zd_emulate_cosf
#define __sincosf zd_emulate_sincosf
inline float __expf(float x)
{
    return ::expf(x);
}
inline float __exp10f(float x)
{
    return ::exp10f(x);
}
inline float __logf(float x)
{
    return ::logf(x);
}
inline float __log2f(float x)
{
    return ::log2f(x);
}
inline float __powf(float x, float y)
{
    return ::powf(x, y);
}
inline float __sinf(float x)
{
    return ::sinf(x);
}
inline float __cosf(float x)
{
    return ::cosf(x);
}
inline void __sincosf(float x, float *sine, float *cosine)
{
    *sine = ::sinf(x);
    *cosine = ::cosf(x);
}
inline float rsqrtf(float x)
{
    return 1.0f / ::sqrtf(x);
}
inline double rsqrt(double x)
{
    return 1.0 / ::sqrt(x);
}
inline float __frsqrt_rn(float x)
{
    return 1.0f / ::sqrtf(x);
}
inline float __frcp_rn(float x)
{
    return 1.0f / x;
}
inline float __fsqrt_rn(float x)
{
    return ::sqrtf(x);
}
inline float __fadd_rn(float a, float b)
{
    return a + b;
}
inline float __fsub_rn(float a, float b)
{
    return a - b;
}
inline float __fmul_rn(float a, float b)
{
    return a * b;
}
inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
inline float __fmaf_rn(float a, float b, float c)
{
    return ::fmaf(a, b, c);
}
inline float __fdividef(float a, float b)
{
    return a / b;
}
inline double __dadd_rn(double a, double b)
{
    return a + b;
}
inline double __dmul_rn(double a, double b)
{
    return a * b;
}
inline double __dsub_rn(double a, double b)
{
    return a - b;
}
inline double __ddiv_rn(double a, double b)
{
    return a / b;
}
inline double __dsqrt_rn(double x)
{
    return ::sqrt(x);
}
inline double __fma_rn(double a, double b, double c)
{
    return ::fma(a, b, c);
}
inline float __saturatef(float x)
{
    return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
}
inline int __float2int_rn(float x)
{
    return (int)::lrintf(x);
}
inline int __float2int_rz(float x)
{
    return (int)x;
}
inline int __float2int_rd(float x)
{
    return (int)::floorf(x);
}
inline unsigned __float2uint_rn(float x)
{
    return (unsigned)::llrintf(x);
}
inline unsigned __float2uint_rz(float x)
{
    return (unsigned)x;
}
inline float __int2float_rn(int x)
{
    return (float)x;
}
inline float __uint2float_rn(unsigned x)
{
    return (float)x;
}
inline float __ull2float_rn(unsigned long long x)
{
    return (float)x;
}
inline float __double2float_rn(double x)
{
    return (float)x;
}

#define MINMAX(A, B, C)                                                        \
    inline C min(A a, B b)                                                     \
    {                                                                          \
        return (C)b < (C)a ? (C)b : (C)a;                                      \
    }                                                                          \
    inline C max(A a, B b)                                                     \
    {                                                                          \
        return (C)a < (C)b ? (C)b : (C)a;                                      \
    }
MINMAX(int, int, int)
MINMAX(unsigned, unsigned, unsigned)
MINMAX(int, unsigned, unsigned)
MINMAX(unsigned, int, unsigned)
MINMAX(long, long, long)
MINMAX(unsigned long, unsigned long, unsigned long)
MINMAX(long, unsigned long, unsigned long)
MINMAX(unsigned long, long, unsigned long)
MINMAX(long long, long long, long long)
MINMAX(unsigned long long, unsigned long long, unsigned long long)
#undef MINMAX
/* A NaN loses, as in fminf and fmaxf. */
inline float min(float a, float b)
{
    return ::fminf(a, b);
}
inline float max(float a, float b)
{
    return ::fmaxf(a, b);
}
inline double min(double a, double b)
{
    return ::fmin(a, b);
}
inline double max(double a, double b)
{
    return ::fmax(a, b);
}

/* --- atomics: each returns what was there before ----------------------------
 */

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
#define ATOMIC(name, T, expression)                                            \
    inline T name(T *p, T value)                                               \
    {                                                                          \
        return zd_emulate_atomic(                                              \
                p, [value](T was) -> T { return (T)(expression); });           \
    }
#define ATOMICS(T)                                                             \
    ATOMIC(atomicAdd, T, was + value)                                          \
    ATOMIC(atomicExch, T, ((void)was, value))
#define INTEGER_ATOMICS(T)                                                     \
    ATOMICS(T)                                                                 \
    ATOMIC(atomicMax, T, was < value ? value : was)                            \
    ATOMIC(atomicMin, T, value < was ? value : was)                            \
    ATOMIC(atomicAnd, T, was &value)                                           \
    ATOMIC(atomicOr, T, was | value)                                           \
    ATOMIC(atomicXor, T, was ^ value)                                          \
    inline T atomicCAS(T *p, T compare, T value)                               \
    {                                                                          \
        return zd_emulate_atomic(p, [compare, value](T was) -> T {             \
            return was == compare ? value : was;                               \
        });                                                                    \
    }
INTEGER_ATOMICS(int)
INTEGER_ATOMICS(unsigned)
INTEGER_ATOMICS(unsigned long long)
ATOMIC(atomicSub, int, was - value)
ATOMIC(atomicSub, unsigned, was - value)
ATOMIC(atomicInc, unsigned, was >= value ? 0 : was + 1)
ATOMICS(float)
ATOMICS(double)
#undef INTEGER_ATOMICS
#undef ATOMICS
#undef ATOMIC

#endif
