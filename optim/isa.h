/* isa.h - loops compiled for several instruction sets, chosen at run time.
 * Private to optim and its tests.
 *
 * A loop is written once, in a function `name` that is always inlined, and
 * ISA_VERSIONS(name, (its parameters), (their names)) makes name_by[isa] of it.
 */
#pragma once

#include <stdbool.h>

/* AVX2 comes with FMA and F16C; AVX512 is F, BW, VL and DQ. */
enum isa { ISA_BASELINE, ISA_AVX2, ISA_AVX512, ISA_COUNT };

#if defined(__CUDACC__)
#define INLINED static __host__ __device__ __forceinline__
#else
#define INLINED static inline __attribute__((always_inline))
#endif
#if defined(__x86_64__)
#define FOR_AVX2 __attribute__((target("avx2,fma,f16c")))
#define FOR_AVX512                                                             \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,"  \
                          "prefer-vector-width=512")))
#else
#define FOR_AVX2
#define FOR_AVX512
#endif

#define ISA_VERSIONS(name, parameters, arguments)                              \
    static void name##_baseline parameters                                     \
    {                                                                          \
        name arguments;                                                        \
    }                                                                          \
    FOR_AVX2 static void name##_avx2 parameters                                \
    {                                                                          \
        name arguments;                                                        \
    }                                                                          \
    FOR_AVX512 static void name##_avx512 parameters                            \
    {                                                                          \
        name arguments;                                                        \
    }                                                                          \
    static void(*const name##_by[ISA_COUNT])                                   \
            parameters = {name##_baseline, name##_avx2, name##_avx512};

/* Whether this machine can run code for it. */
bool isa_runs(enum isa isa);
/* The best of them. */
enum isa isa_best(void);
const char *isa_name(enum isa isa);
