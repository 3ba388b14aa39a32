#include "optim/simd.h"

#if defined(__x86_64__)
extern const struct simd_code simd_avx2, simd_avx512;

const struct simd_code *simd_code_of(enum isa isa)
{
    static const struct simd_code *const all[ISA_COUNT] = {
            [ISA_AVX2] = &simd_avx2, [ISA_AVX512] = &simd_avx512};
    return all[isa];
}
#else
const struct simd_code *simd_code_of(enum isa isa)
{
    return NULL;
}
#endif
